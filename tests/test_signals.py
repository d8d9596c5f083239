"""A command that is told to stop leaves no process behind, and no half-written result."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT = 120
"""Seconds to wait for what takes a few; beyond it something hangs."""


def members(group):
    """Processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "everyone"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["term", "int"]
)
def test_workers_end_with_the_command(tmp_path, number, everyone):
    out = tmp_path / "audit"
    words = [sys.executable, "-m", "seeupo_theory.cli", "audit", "--quick", "--claim", "T1"]
    process = subprocess.Popen(
        [*words, "--out", str(out)],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    try:
        until = time.monotonic() + LIMIT
        while len(members(process.pid)) < 3:  # the command and two workers
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        # as a terminal does (the whole group), and as a batch system does (the command alone)
        (os.killpg if everyone else os.kill)(process.pid, number)
        process.wait(LIMIT)
        assert process.returncode in (128 + number, -number)
        while members(process.pid):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert not (out / "ledger.json").exists() and not list(out.glob("*.json"))
    finally:
        for pid in members(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.stderr.close()


STARTING = """
import os, signal, subprocess, sys
from seeupo_theory._interrupts import starting_workers
child = "import signal as s; print(s.SIGINT in s.pthread_sigmask(s.SIG_BLOCK, []), flush=True)"
try:
    with starting_workers():
        os.kill(os.getpid(), signal.SIGINT)
        subprocess.run([sys.executable, "-c", child], check=True)
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted", signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_an_interrupt_does_not_reach_workers_that_start():
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "interrupted", "False"], done.stderr
