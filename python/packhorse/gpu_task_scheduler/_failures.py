"""How the tests of a grid have ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._exit_status import Report


@dataclass(frozen=True)
class FailedTest:
    """A test that did not succeed."""

    #: Its result folder.
    work_dir: str
    #: Its configuration.
    config: dict[str, Any]
    #: How it ended, in words.
    reason: str
    #: The task's id; None if it never became one.
    task: str | None
    #: The file with what it wrote.
    log: str | None


class GridReport(Report):
    """How the tests of a grid have ended.

    Looking at ``failed`` or ``exit_status`` makes the failures yours to handle; otherwise
    the program ends with exit status 1 if there were any.
    """

    def __init__(self, run: int | None, succeeded: int, skipped: int, failed: list[FailedTest]):
        super().__init__(1 if failed else 0)
        #: The number of the run; None if there was nothing to run.
        self.run = run
        #: How many tests succeeded.
        self.succeeded = succeeded
        #: How many tests had been done before.
        self.skipped = skipped
        self._failed = failed

    @property
    def failed(self) -> list[FailedTest]:
        """The tests that did not succeed."""
        self._seen = True
        return self._failed

    def __repr__(self) -> str:
        counts = f"{self.succeeded} succeeded, {len(self._failed)} failed, {self.skipped} skipped"
        return f"<GridReport: {counts}>"
