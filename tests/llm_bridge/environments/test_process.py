"""Worker processes: limits of time and memory, separation, and nothing left behind."""

import os
import time

import pytest

from llm_bridge.environments import IsolatedEnvironment, StateError, TaskError
from llm_bridge.environments.base import EnvironmentFault, StepResult, message
from llm_bridge.environments.limits import Limits
from llm_bridge.environments.process import _HOSTS, Hold, Worker, WorkerFailure

LIMITS = Limits(seconds=30)
SEEN: list[str] = []  # a global of this module, to see that workers do not share it


class Tool:
    """A handler that does what a request says."""

    def __init__(self, start=0):
        self.value = start

    def handle(self, request):
        kind = request["do"]
        if kind == "add":
            self.value += request["by"]
            SEEN.append("added")
            return {"value": self.value, "seen": len(SEEN), "pid": os.getpid()}
        if kind == "power":
            return {"bits": (7 ** request["by"]).bit_length()}
        if kind == "memory":
            return {"size": len(bytearray(request["by"]))}
        if kind == "exit":
            os._exit(3)
        if kind == "write":
            with open(request["path"], "w") as file:
                file.write("x" * 100_000)
        if kind == "environment":
            return {"names": sorted(os.environ)}
        raise LookupError("no such request")


TARGET = f"{__name__}:Tool"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def hold():
    held = Hold(TARGET)
    yield held
    held.close()
    assert not _HOSTS


def test_workers_share_nothing(hold):
    first, second = (Worker(TARGET, {"start": n}, limits=LIMITS) for n in (0, 100))
    assert first.call({"do": "add", "by": 1})["value"] == 1
    again = first.call({"do": "add", "by": 1})
    other = second.call({"do": "add", "by": 1})
    assert (again["value"], again["seen"]) == (2, 2)
    assert (other["value"], other["seen"]) == (101, 1)
    assert SEEN == []
    assert len({again["pid"], other["pid"], os.getpid()}) == 3
    first.close()
    assert not alive(first.pid) and alive(second.pid)
    second.close()
    assert not alive(second.pid)


def test_an_endless_computation_is_killed(hold):
    worker = Worker(TARGET, {}, limits=LIMITS)
    with pytest.raises(WorkerFailure) as caught:
        worker.call({"do": "power", "by": 10**9}, seconds=0.5)
    assert caught.value.reason == "time limit"
    assert not worker.alive and not alive(worker.pid)
    with pytest.raises(WorkerFailure):
        worker.call({"do": "add", "by": 1})
    with Worker(TARGET, {}, limits=LIMITS) as other:
        assert other.call({"do": "add", "by": 1})["value"] == 1


def test_memory_is_limited(hold):
    with Worker(TARGET, {}, limits=LIMITS.replace(memory_mb=100)) as worker:
        assert worker.call({"do": "memory", "by": 10**6})["size"] == 10**6
        with pytest.raises(EnvironmentFault, match="MemoryError"):
            worker.call({"do": "memory", "by": 10**9})


def test_a_dead_worker_is_reported(hold):
    worker = Worker(TARGET, {}, limits=LIMITS)
    with pytest.raises(WorkerFailure, match="ended"):
        worker.call({"do": "exit"})


def test_a_strict_worker_writes_no_files_and_sees_no_environment(hold, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s")
    with Worker(TARGET, {}, limits=LIMITS) as worker:
        with pytest.raises(EnvironmentFault, match="OSError"):
            worker.call({"do": "write", "path": str(tmp_path / "file")})
        assert "SECRET_TOKEN" not in worker.call({"do": "environment"})["names"]
    assert (tmp_path / "file").stat().st_size == 0


def test_errors_inside_are_errors_here_and_the_worker_lives_on(hold):
    with Worker(TARGET, {}, limits=LIMITS) as worker:
        with pytest.raises(EnvironmentFault, match="LookupError: no such request"):
            worker.call({"do": "nothing"})
        assert worker.call({"do": "add", "by": 5})["value"] == 5


def test_what_cannot_be_built_says_so():
    with pytest.raises(EnvironmentFault, match="unexpected keyword argument"):
        Worker(TARGET, {"begin": 0}, limits=LIMITS)
    with pytest.raises(EnvironmentFault, match="no_such_module"):
        Worker("no_such_module:X", {}, limits=LIMITS)
    assert not _HOSTS


def test_a_forgotten_worker_ends():
    worker = Worker(TARGET, {}, limits=LIMITS)
    pid = worker.pid
    del worker
    with Worker(TARGET, {}, limits=LIMITS) as other:  # the next close clears up
        assert other.alive
    assert not alive(pid) and not _HOSTS


class Slow:
    """An environment with tools of both kinds."""

    tasks = ("a", "b")
    tools = ({"type": "function", "function": {"name": "wait"}},)

    def __init__(self, size=3):
        self.size = size
        self.texts = None

    def reset(self, task, seed):
        if task not in self.tasks:
            raise TaskError(f"task = {task!r}: should be a or b")
        self.texts = []
        return [message("user", f"{task} {seed} " + "x" * self.size)]

    def step(self, text):
        if text == "wait":
            time.sleep(1_000)
        if text == "die":
            os._exit(1)
        self.texts.append(text)
        over = len(self.texts) == 2
        return StepResult(
            [message("user", ",".join(self.texts))], len(text), over, {"n": 1, "o": {}}
        )

    def close(self):
        pass


SPEC = f"{__name__}:Slow"


@pytest.fixture
def isolated():
    environment = IsolatedEnvironment(SPEC, limits={"seconds": 30, "output_chars": 100}, size=1000)
    yield environment
    environment.close()
    environment.close()
    assert not _HOSTS


def test_an_isolated_environment_is_the_same_environment(isolated):
    assert isolated.tasks == ["a", "b"]
    first = isolated.reset("a", 7)
    assert first[0]["content"].startswith("a 7 x") and len(first[0]["content"]) == 100
    assert isolated.tools == [{"type": "function", "function": {"name": "wait"}}]
    result = isolated.step("hello")
    assert (result.reward, result.done, result.info) == (5.0, False, {"n": 1})
    assert isolated.step("x").done
    with pytest.raises(StateError):
        isolated.step("x")
    with pytest.raises(TaskError, match="should be a or b"):
        isolated.reset("c", 0)


@pytest.mark.parametrize("text", ["wait", "die"])
def test_an_episode_that_hangs_or_dies_ends_and_the_next_begins(isolated, text):
    isolated.reset("a", 0)
    isolated.limits = isolated.limits.replace(seconds=30 if text == "die" else 1)
    isolated._worker.limits = isolated.limits
    result = isolated.step(text)
    assert result.done and result.reward == 0.0 and result.info["truncated"]
    isolated.limits = isolated.limits.replace(seconds=30)
    isolated.reset("b", 0)
    assert isolated.step("ok").messages[0]["content"] == "ok"


def test_spawned_environments_share_no_state(isolated):
    pair = [isolated.spawn(), isolated.spawn()]
    for environment in pair:
        environment.reset("a", 0)
    pair[0].step("one")
    assert pair[1].step("two").messages[0]["content"] == "two"
    for environment in pair:
        environment.close()
