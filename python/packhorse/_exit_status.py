"""What becomes of a run that failed: the program's exit status says so.

Calls that run everything return, as the originals' do: a script that goes on to collect
results must not break because one of a hundred tasks failed. If nobody looks at the report
that they return, the program ends with the exit status of the run, as an error that nobody
has handled would.
"""

from __future__ import annotations

import atexit
import os
import sys


class Report:
    """How a run has ended, and whether somebody has asked about it."""

    def __init__(self, status: int) -> None:
        """The exit status of the run; 0 if all went well."""
        self._status = status
        self._seen = False
        if status != 0:
            _reports.append(self)
            _at_exit()

    @property
    def exit_status(self) -> int:
        """0 if all succeeded, 1 if not. Looking at it makes failures yours to handle."""
        self._seen = True
        return self._status


_reports: list[Report] = []
_registered = False


def unseen() -> int:
    """The exit status of failures that nobody has looked at, else 0. From now on there are
    none."""
    there = [report._status for report in _reports if not report._seen]
    _reports.clear()
    return max(there, default=0)


def _at_exit() -> None:
    global _registered
    # Who sits before a prompt has read what was printed.
    if _registered or hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return
    _registered = True
    atexit.register(_exit_with_failure, os.getpid())


def _exit_with_failure(pid: int) -> None:
    """The interpreter knows no other way to change the exit status at its end."""
    if os.getpid() != pid:
        return
    status = unseen()
    if status == 0:
        return
    # What others have to do at the end is done before.
    atexit.unregister(_exit_with_failure)
    atexit._run_exitfuncs()
    _write_out()
    os._exit(status)


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
