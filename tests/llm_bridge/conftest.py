"""One thread a test: tiny tensors gain nothing from more, and threads that wait for each other do harm."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


def pytest_configure(config):
    """Marks of these tests."""
    config.addinivalue_line("markers", "slow: a real model, minutes on a busy machine")
