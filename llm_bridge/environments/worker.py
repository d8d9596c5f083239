"""The other side of `process`: a host that forks one worker an episode, and the worker's loop.

The host imports the modules that workers need once, then waits on its control socket. At "spawn" it
forks: the child inherits the imports as they were, so nothing that an episode leaves in a module
can reach another episode. The child sets its limits, builds its handler, and answers requests on
its own socket until that is closed. When the control socket closes (the trainer has ended, however
it ended) the host kills its children and leaves.

Messages are JSON with their length in front. Linux and macOS only (fork, passing of sockets).
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

MAX_MESSAGE = 64 * 2**20  # bytes; what is longer is no answer
_LENGTH = struct.Struct("!I")
_OPEN_FILES = 32  # a strict worker's; it needs a socket


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Return the next message, None where the other side has closed."""
    head = _read(connection, _LENGTH.size)
    if head is None:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes; at most {MAX_MESSAGE} are read")
    body = _read(connection, size)
    return None if body is None else json.loads(body)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    body = json.dumps(message).encode()
    if len(body) > MAX_MESSAGE:
        raise ValueError(f"a message of {len(body)} bytes; at most {MAX_MESSAGE} are sent")
    connection.sendall(_LENGTH.pack(len(body)) + body)


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        part = connection.recv(min(size, 2**20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def resolve(target: str) -> Callable[..., Any]:
    """Import `"module:attribute"`."""
    module, attribute = target.split(":")
    return getattr(importlib.import_module(module), attribute)


def host(control_fd: int, preload: list[str]) -> None:
    """Import, then fork workers on demand until the control socket closes."""
    control = socket.socket(fileno=control_fd)
    try:
        for name in preload:
            importlib.import_module(name)
    except BaseException as error:
        send(control, {"failed": f"{type(error).__name__}: {error}"})
        return
    send(control, {"ready": True})
    children: set[int] = set()
    try:
        while True:
            data, fds, _, _ = socket.recv_fds(control, _LENGTH.size, 1)
            if not data:
                return
            request = _control_message(control, data)
            _reap(children)
            if "spawn" in request:
                pid = os.fork()
                if pid == 0:
                    control.close()
                    _child(fds[0], request["spawn"])
                os.close(fds[0])
                children.add(pid)
                send(control, {"pid": pid})
            else:
                _kill(children, request["kill"])
                send(control, {"killed": request["kill"]})
    finally:
        for pid in list(children):
            _kill(children, pid)


def _control_message(control: socket.socket, head: bytes) -> dict[str, Any]:
    rest = _read(control, _LENGTH.size - len(head))
    assert rest is not None
    body = _read(control, _LENGTH.unpack(head + rest)[0])
    assert body is not None
    return json.loads(body)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def _kill(children: set[int], pid: int) -> None:
    if pid in children:  # a child that was not waited for keeps its number
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        children.discard(pid)


def _child(fd: int, order: dict[str, Any]) -> None:
    """Serve one episode, then end without running anything that belongs to the host."""
    try:
        connection = socket.socket(fileno=fd)
        _limit(order["memory_mb"], order["strict"])
        _serve(connection, order)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _serve(connection: socket.socket, order: dict[str, Any]) -> None:
    handler: Any = None
    try:
        handler = resolve(order["target"])(**order["options"])
        send(connection, {"ready": True})
    except Exception as error:
        send(connection, {"error": str(error), "type": type(error).__name__})
        return
    while True:
        request = receive(connection)
        if request is None:
            break
        try:
            answer = {"ok": handler.handle(request)}
        except Exception as error:
            answer = {"error": str(error)[:2_000], "type": type(error).__name__}
        send(connection, answer)
    close = getattr(handler, "close", None)
    if close is not None:
        close()


def _limit(memory_mb: int, strict: bool) -> None:
    """Limit what may be added to the memory in use now; strict: no files are written either."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_AS, _address_space() + memory_mb * 2**20)
    if strict:
        _lower(resource.RLIMIT_FSIZE, 0)
        _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses some of them
        resource.setrlimit(kind, (value, value))


def _address_space() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


if __name__ == "__main__":
    host(int(sys.argv[1]), json.loads(sys.argv[2]))
