"""A game of three turns whose rows end at different times, for comparing engines."""

import torch

from llm_bridge import FunctionEnvironment

CHARACTERS = "abcdon"


def reward(task, texts):
    """More for letters of the task; a position that matters, so that returns differ."""
    return sum((k + 1) * (text[:1] == task) + 0.1 * text.count("c") for k, text in enumerate(texts))


def step(task, texts):
    """At most three turns; one that begins with b ends the episode."""
    return None if len(texts) == 3 or texts[-1][:1] == "b" else "on"


def game():
    return FunctionEnvironment(reward, step, tasks=["a", "b", "c", "d"])


def flat(model):
    """All parameters of a model or policy, sharded ones put together."""
    whole = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters())
    return torch.cat([p.detach().flatten() for p in whole]).double()
