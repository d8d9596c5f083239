"""A process for each episode, with limits of time and memory: where tools run.

`Worker(target, options)` builds `target` ("module:attribute") in another process and sends requests
to its `handle`. A request that takes longer than its limit, or a process that dies, raises
`WorkerFailure`; the process is killed then, and what it held is gone. Workers are forks of one host
process for each set of modules (see `worker`), so that a new one costs a few milliseconds and no
imports, and starts from a clean state. The host is started at the first worker and ends with the
last.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

from .base import EnvironmentFault
from .limits import Limits
from .worker import receive, send

__all__ = ["Hold", "Worker", "WorkerFailure"]

_START_SECONDS = 120.0  # imports of a host may read much from a cold disk
_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")  # what an interpreter needs


class WorkerFailure(EnvironmentFault):
    """A worker process was too slow, or died; `reason` is "time limit" or "died"."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class _Host:
    """The process that forks workers; shared by all that import the same modules."""

    def __init__(self, preload: tuple[str, ...], strict: bool) -> None:
        ours, theirs = socket.socketpair()
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        if not strict:
            environ = dict(os.environ)
        environ |= {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "PYTHONHASHSEED": "0",
            "TZ": "UTC",
        }
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    f"{__package__}.worker",
                    str(theirs.fileno()),
                    json.dumps(preload),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environ,
                start_new_session=True,  # an interrupt from the keyboard is the trainer's to handle
            )
        self.control = ours
        self.lock = threading.Lock()
        self.users = 0
        ours.settimeout(_START_SECONDS)
        try:
            answer = receive(ours) or {"failed": f"it ended with code {self.process.wait()}"}
        except TimeoutError:
            answer = {"failed": f"no answer in {_START_SECONDS:g} s"}
        if "failed" in answer:
            self.end()
            raise EnvironmentFault(f"the worker process could not start: {answer['failed']}")

    def ask(self, request: dict[str, Any], fd: int | None = None) -> dict[str, Any]:
        body = json.dumps(request).encode()
        message = len(body).to_bytes(4, "big")
        with self.lock:
            if fd is None:
                self.control.sendall(message)
            else:
                socket.send_fds(self.control, [message], [fd])
            self.control.sendall(body)
            answer = receive(self.control)
        if answer is None:
            raise WorkerFailure("died", "the process that starts workers has ended")
        return answer

    def end(self) -> None:
        self.control.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_Key = tuple[int, tuple[str, ...], bool]
_HOSTS: dict[_Key, _Host] = {}
_HOSTS_LOCK = threading.RLock()
_FORGOTTEN: list[tuple[_Key, _Host]] = []  # of workers that were garbage before they were closed


def _key(target: str, preload: tuple[str, ...], strict: bool) -> _Key:
    if not hasattr(socket, "send_fds"):
        raise EnvironmentFault("worker processes need Linux or macOS")
    return os.getpid(), (target.split(":")[0], *preload), strict


def _acquire(key: _Key) -> _Host:
    with _HOSTS_LOCK:
        host = _HOSTS.get(key)
        if host is None or host.process.poll() is not None:
            host = _HOSTS[key] = _Host(*key[1:])
        host.users += 1
        return host


def _release(key: _Key, host: _Host, pid: int) -> None:
    """Kill a worker, and end its host if it was the last."""
    if key[0] != os.getpid():  # a fork of the trainer does not own the workers
        return
    with _HOSTS_LOCK:
        try:
            host.ask({"kill": pid})
        except (OSError, EnvironmentFault):
            host.users = 1  # the host has ended, and its workers with it
        _drop(key, host)
        while _FORGOTTEN:
            _drop(*_FORGOTTEN.pop())


def _drop(key: _Key, host: _Host) -> None:
    host.users -= 1
    if host.users == 0:
        if _HOSTS.get(key) is host:
            del _HOSTS[key]
        host.end()


def _forget(key: _Key, host: _Host, connection: socket.socket) -> None:
    """Let an idle worker end by itself; called by the garbage collector, so it takes no lock."""
    connection.close()
    _FORGOTTEN.append((key, host))


@atexit.register
def _end_all() -> None:
    for key, host in list(_HOSTS.items()):
        if key[0] == os.getpid():
            host.end()


class Hold:
    """Keeps the host for a target running between workers, so that it imports only once."""

    def __init__(self, target: str, *, preload: tuple[str, ...] = (), strict: bool = True) -> None:
        key = _key(target, preload, strict)
        self._owned = (key, _acquire(key))
        self._finalizer = weakref.finalize(self, _FORGOTTEN.append, self._owned)

    def close(self) -> None:
        """Let it end with its last worker; harmless when called again."""
        if self._finalizer.detach() is not None:
            _release(*self._owned, 0)


class Worker:
    """One object in a process of its own; closed at the latest when this is garbage.

    `strict`: the process has nothing of our environment variables and writes no files.

    >>> worker = Worker("llm_bridge.environments.process:Echo", {}, limits=Limits(seconds=1))
    >>> worker.call({"say": "hello"})
    {'say': 'hello'}
    >>> worker.close()
    """

    def __init__(
        self,
        target: str,
        options: dict[str, Any],
        *,
        limits: Limits,
        preload: tuple[str, ...] = (),
        strict: bool = True,
    ) -> None:
        self.limits = limits
        key = _key(target, preload, strict)
        host = _acquire(key)
        ours, theirs = socket.socketpair()
        order = {
            "target": target,
            "options": options,
            "memory_mb": limits.memory_mb,
            "strict": strict,
        }
        try:
            with theirs:
                self.pid = host.ask({"spawn": order}, theirs.fileno())["pid"]
        except BaseException:
            ours.close()
            _release(key, host, 0)
            raise
        self._connection = ours
        self._owned = (key, host)
        self._finalizer = weakref.finalize(self, _forget, key, host, ours)
        try:
            self._exchange(None, limits.seconds)
        except BaseException:
            self.close()
            raise

    def call(self, request: dict[str, Any], seconds: float | None = None) -> Any:
        """Send a request, return the answer; an error inside `handle` is an `EnvironmentFault`."""
        return self._exchange(request, self.limits.seconds if seconds is None else seconds)

    def _exchange(self, request: dict[str, Any] | None, seconds: float) -> Any:
        if not self._finalizer.alive:
            raise WorkerFailure("died", "the worker process is closed")
        connection = _Deadline(self._connection, seconds)
        try:
            if request is not None:
                send(connection, request)  # type: ignore[arg-type]
            answer = receive(connection)  # type: ignore[arg-type]
        except TimeoutError:
            self.close()
            raise WorkerFailure("time limit", f"no answer in {seconds:g} s") from None
        except (OSError, ValueError) as error:
            self.close()
            raise WorkerFailure("died", str(error)) from None
        except BaseException:  # an interrupt would leave half an answer in the socket
            self.close()
            raise
        if answer is None:
            self.close()
            raise WorkerFailure("died", "the worker process ended (out of memory, or killed)")
        if "error" in answer:
            raise EnvironmentFault(f"{answer['type']}: {answer['error']}")
        return answer.get("ok")

    def close(self) -> None:
        """Kill the process; harmless when called again."""
        if self._finalizer.detach() is not None:
            self._connection.close()
            _release(*self._owned, self.pid)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the process has not been closed."""
        return self._finalizer.alive


class _Deadline:
    """A socket whose operations together may take so many seconds."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds

    def _left(self) -> socket.socket:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection

    def recv(self, size: int) -> bytes:
        return self._left().recv(size)

    def sendall(self, data: bytes) -> None:
        self._left().sendall(data)


class Echo:
    """A handler that answers with what it is asked; for the example of `Worker`."""

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        return request
