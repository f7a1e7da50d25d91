"""The future of a call that is a task, and what is kept of the call until it has ended."""

from __future__ import annotations

import concurrent.futures
import os
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ._pool import Pool

_T = TypeVar("_T")


class Future(concurrent.futures.Future[_T], Generic[_T]):
    """The result of a task that may not be there yet, and what is known about the task."""

    #: The task's id, such as ``"3.7"``, for ``packhorse logs`` and the like. None before it
    #: has started.
    task: str | None = None
    #: The GPUs it runs or ran on; empty before it has started, and without GPUs.
    gpus: list[str]
    #: The most GPU memory that was seen, in bytes. None if it was not measured.
    peak_vram: int | None = None
    #: The file with what it printed, once it has ended.
    log: str | None = None
    #: How many attempts it has had, once it has ended.
    attempts: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.gpus = []
        self._pool: Pool | None = None
        self._call: Call | None = None

    @property
    def gpu(self) -> str | None:
        """The GPU it runs or ran on; several are joined by commas."""
        return ",".join(self.gpus) if self.gpus else None

    def result(self, timeout: float | None = None) -> _T:
        """What the function returned, or raises what it raised; waits for that."""
        self.hurry()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the function raised, if it did; waits for its end."""
        self.hurry()
        return super().exception(timeout)

    def hurry(self) -> None:
        """Somebody waits for it: on a cluster, what was collected is submitted now."""
        pool, call = self._pool, self._call
        if pool is not None and call is not None:
            pool.hurry(call)

    def cancel(self) -> bool:
        """Cancels it, unless it has begun. True: its function is never called."""
        # They are taken away when it is done, which may be now.
        pool, call = self._pool, self._call
        if pool is None or call is None:
            return super().cancel()
        did = pool.give_up(call)
        if not did and not call.cancelled:
            return False
        # From here on nobody but those who cancel it changes it. Of two threads that do, the
        # second must not return before it is cancelled, so both see to it. No lock is held:
        # this calls what was added by `add_done_callback`.
        super().cancel()
        if did:
            # Whoever waits for it hears of it now: nobody will start it any more.
            self.set_running_or_notify_cancel()
        return True


class Call:
    """One call of a function: from ``submit`` to the end of its future."""

    __slots__ = ("cancelled", "data", "future", "label", "over", "path", "sent", "started")

    def __init__(self, future: Future[Any], path: str, label: str) -> None:
        self.future = future
        self.path = path
        self.label = label
        #: What to send; None once it is in its file.
        self.data: bytes | None = None
        self.sent = self.started = self.over = self.cancelled = False

    def write(self, about: bytes) -> None:
        """Writes what is sent to the task, after what it must know first."""
        path = self.path + ".task"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                for part in (about, self.data or b""):
                    view = memoryview(part)
                    while view:
                        view = view[file.write(view) :]
        except OSError:
            # The disk is full, and half of it is of no use.
            remove(path)
            raise
        self.data = None

    def remove_files(self, attempts: int) -> None:
        """Removes what is there."""
        remove(self.path + ".run")
        # A process that was killed before it could take it has left it.
        remove(self.path + ".task")
        for attempt in range(attempts + 1):
            # One that was killed while it wrote.
            remove(f"{self.path}.{attempt}.result.partial")
        for attempt in range(attempts):
            # The last one's is removed by who reads it.
            remove(f"{self.path}.{attempt}.result")


def fail(calls: list[tuple[Call, Exception]]) -> None:
    for call, error in calls:
        if not call.cancelled:
            settle(call.future, error=error)
            call.future._call = call.future._pool = None


def settle(future: Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Ends a future, unless somebody else has."""
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except concurrent.futures.InvalidStateError:
        pass


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
