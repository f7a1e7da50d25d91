"""Pins processes to cores."""

from __future__ import annotations

import os
from collections.abc import Iterable


def assign_process_to_cpu(pid: int, cores: Iterable[int]) -> None:
    """Has a process, with all of its threads, run on these cores only. 0 is this process.

    ``cores`` are numbers as in ``cw_config["cpu_cores"]`` or ``PACKHORSE_CPU_CORES``. What the
    process starts from now on stays on them too; what it has started before is moved by
    calls of its own. ``ProcessLookupError`` if there is no such process.
    """
    wanted = _checked(cores)
    # A thread that is started meanwhile has the cores of the one that started it, which may
    # not have been moved yet: look again until there is nothing left to move.
    while any([_move(thread, wanted) for thread in _threads(pid)]):
        pass


def _checked(cores: Iterable[int]) -> set[int]:
    wanted = set(cores)
    for core in wanted:
        if isinstance(core, bool) or not isinstance(core, int) or core < 0:
            raise ValueError(f"{core!r} is no number of a core")
    if not wanted:
        raise ValueError("a process needs at least one core")
    return wanted


def _threads(pid: int) -> list[int]:
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid or 'self'}/task")]
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None


def _move(thread: int, cores: set[int]) -> bool:
    """Moves a thread; whether that was needed."""
    try:
        if os.sched_getaffinity(thread) == cores:
            return False
        os.sched_setaffinity(thread, cores)
        now = os.sched_getaffinity(thread)
    except ProcessLookupError:
        # It has ended.
        return False
    except OSError as error:
        raise _refused(cores, error) from error
    if now != cores:
        # The kernel leaves out what is not allowed, and says nothing.
        raise _refused(cores, None)
    return True


def _refused(cores: set[int], error: OSError | None) -> OSError | ValueError:
    if isinstance(error, PermissionError):
        return PermissionError(error.errno, "the process belongs to somebody else")
    return ValueError(
        f"not all of the cores {sorted(cores)} can be used here\n"
        f"hint: this process may use {sorted(os.sched_getaffinity(0))}"
    )
