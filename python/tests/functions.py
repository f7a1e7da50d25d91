"""Functions that the tests send to tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path


class Broken(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def double(x: int) -> int:
    return 2 * x


def add(x: int, y: int = 0) -> int:
    return x + y


def nothing() -> None:
    pass


def speak(text: str) -> None:
    print(text)
    print("to stderr", file=sys.stderr)


def environment(name: str) -> str | None:
    return os.environ.get(name)


def fail(message: str) -> None:
    raise ValueError(message)


def fail_unpicklable() -> None:
    raise Broken("one", "two")


def touch(path: str) -> None:
    Path(path).touch()


def wait_at(gate: str) -> str:
    """Waits until somebody opens the named pipe for writing."""
    return Path(gate).read_text()


def announce(pipe: str) -> None:
    """Says who runs this and on whose behalf, and waits for its end."""
    Path(pipe).write_text(f"{os.getpid()} {os.getppid()}")
    Path(pipe + ".never").read_text()


def fail_once(path: str) -> str:
    attempt = os.environ["PACKHORSE_ATTEMPT"]
    with open(path, "a") as file:
        file.write(f"{attempt}\n")
    if attempt == "1":
        raise ValueError("the first time")
    return attempt


def fail_then_die(path: str) -> None:
    if os.environ["PACKHORSE_ATTEMPT"] == "1":
        raise ValueError("the first time")
    print("dying")
    sys.stdout.flush()
    os.kill(os.getpid(), 9)


def leave(status: int) -> None:
    os._exit(status)


def leave_half_a_result() -> None:
    """As a process that is killed while it writes what came of it."""
    path, attempt = _payload(), os.environ["PACKHORSE_ATTEMPT"]
    Path(f"{path}.{attempt}.result.partial").write_text("half")
    os._exit(1)


def leave_untaken() -> None:
    """As a process that is killed before it takes what it was sent."""
    os.rename(_payload() + ".run", _payload() + ".task")
    os._exit(1)


def _payload() -> str:
    with open("/proc/self/cmdline") as file:
        return file.read().split("\0")[-3]


def large(size: int, data: bytes) -> bytes:
    return bytes([data[0]]) * size


def unpicklable() -> object:
    return threading.Lock()


def parent() -> int:
    return os.getppid()


def out_of_memory_once() -> str:
    attempt = os.environ["PACKHORSE_ATTEMPT"]
    if attempt == "1":
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)")
    return attempt


def call_program(words: list[str]) -> int:
    return subprocess.run(words).returncode


def pid_with_heavy(_: int) -> int:
    import heavy  # noqa: F401  # type: ignore[import-not-found]

    return os.getpid()
