"""What becomes of tests that failed: the program's exit status says so.

``start()`` returns, as the original's does: a script that goes on to collect results must
not break because one of a hundred tests failed. If nobody looks at the report that it
returns, the program ends with exit status 1, as an error that nobody has handled would.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass
from typing import Any


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


class GridReport:
    """How the tests of a grid have ended.

    Looking at ``failed`` or ``exit_status`` makes the failures yours to handle; otherwise
    the program ends with exit status 1 if there were any.
    """

    def __init__(self, run: int | None, succeeded: int, skipped: int, failed: list[FailedTest]):
        #: The number of the run; None if there was nothing to run.
        self.run = run
        #: How many tests succeeded.
        self.succeeded = succeeded
        #: How many tests had been done before.
        self.skipped = skipped
        self._failed = failed
        self._seen = False
        if failed:
            _reports.append(self)
            _at_exit()

    @property
    def failed(self) -> list[FailedTest]:
        """The tests that did not succeed."""
        self._seen = True
        return self._failed

    @property
    def exit_status(self) -> int:
        """0 if all succeeded, 1 if not: ``sys.exit(scheduler.start().exit_status)``."""
        self._seen = True
        return 1 if self._failed else 0

    def __repr__(self) -> str:
        counts = f"{self.succeeded} succeeded, {len(self._failed)} failed, {self.skipped} skipped"
        return f"<GridReport: {counts}>"


_reports: list[GridReport] = []
_registered = False


def unseen() -> bool:
    """Whether there are failures that nobody has looked at. From now on there are not."""
    there = any(not report._seen for report in _reports)
    _reports.clear()
    return there


def _at_exit() -> None:
    global _registered
    # Who sits before a prompt has read what was printed.
    if _registered or hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return
    _registered = True
    atexit.register(_exit_with_failure, os.getpid())


def _exit_with_failure(pid: int) -> None:
    """The interpreter knows no other way to change the exit status at its end."""
    if os.getpid() != pid or not unseen():
        return
    # What others have to do at the end is done before.
    atexit.unregister(_exit_with_failure)
    atexit._run_exitfuncs()
    _write_out()
    os._exit(1)


def _write_out() -> None:
    """Writes out the files that are open, as the interpreter would when it takes them apart."""
    import gc
    import io

    written = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    files = [thing for thing in gc.get_objects() if issubclass(type(thing), written)]
    # What stands above a buffer first: a text file's own buffer goes to the one below.
    files.sort(key=lambda file: not isinstance(file, io.TextIOWrapper))
    for file in [*files, sys.stdout, sys.stderr]:
        try:
            file.flush()
        except Exception:
            # It is closed, broken, or not there.
            pass
