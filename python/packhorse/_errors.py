"""What can go wrong."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor


class PackhorseError(Exception):
    """The ``packhorse`` program refused to start a run; the text says why."""


class BrokenRun(BrokenExecutor):
    """The run has ended before its tasks did: somebody stopped or killed ``packhorse``.

    Raised by the futures that were not done yet, and by ``submit`` from then on.
    """


class TaskError(RuntimeError):
    """A task's process ended without a result or an exception that could be sent back.

    It was killed, ran out of time, could not be started, or left by ``os._exit``. Also
    stands in for an exception that cannot be pickled, with the text of that.
    """

    #: The task's id, such as ``"3.7"``.
    task: str | None
    #: How it ended: ``"failed"``, ``"killed"``, ``"timed-out"``, ``"not-started"``, …
    outcome: str | None
    #: The exit status if it failed, the signal if it was killed.
    detail: int | None
    #: The file with what it wrote.
    log: str | None

    def __init__(
        self,
        message: str,
        *,
        task: str | None = None,
        outcome: str | None = None,
        detail: int | None = None,
        log: str | None = None,
    ) -> None:
        super().__init__(message)
        self.task = task
        self.outcome = outcome
        self.detail = detail
        self.log = log


class RemoteTraceback(Exception):
    """Where a task raised its exception: the cause of what ``Future.result`` raises."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return self.trace
