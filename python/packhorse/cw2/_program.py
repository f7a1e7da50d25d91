"""The run of ``packhorse exp`` behind ``ClusterWork.run()``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from .. import _payload
from .._binary import binary, own_process
from .._driver import environment
from .._errors import PackhorseError

#: What this process is told, and the program must know: it is in a session of its own, so
#: that a terminal tells nobody twice.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH)


def this_script(python: str = sys.executable) -> list[str]:
    """The words that start this script once more with this Python, up to its arguments."""
    main = _payload.main_module()
    if main is None:
        raise PackhorseError(
            "each repetition is a process that runs your script, and there is none here\n"
            "hint: write it to a file, or run(sch=scheduler.LocalScheduler()) in this process"
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    words = [python, *flags]
    kind, where = main
    if kind == "module":
        return [*words, "-m", where]
    if _payload.aliased():
        words += ["-m", "packhorse"]
    return [*words, _from_here(where)]


def _from_here(path: str) -> str:
    """A path that also means the script in a copy of this folder, if it lies below."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir + os.sep) else relative


def run(words: Sequence[str], command: Sequence[str], variables: dict[str, str]) -> int:
    """Runs ``packhorse exp`` with these options, and this command for each repetition, to its
    end. Its exit status; ``KeyboardInterrupt`` if Ctrl-C has ended it."""
    driven = [f"--env={name}={value}" for name, value in variables.items()]
    if "--slurm" not in words or "--wait" in words:
        # Jobs that nobody waits for are there to outlive this program.
        driven.append(f"--end-with={own_process()}")
    sys.stdout.flush()
    sys.stderr.flush()
    process = subprocess.Popen(
        [binary(), "exp", *words, *driven, "--plain-command", "--", *command],
        env=environment(),
        start_new_session=True,
    )
    with _forwarding(process) as came:
        status = process.wait()
    if signal.SIGINT in came:
        raise KeyboardInterrupt
    return status if status >= 0 else 128 - status


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[set[int]]:
    """Meanwhile, signals are passed on to the program. Which have come."""
    came: set[int] = set()
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def forward(number: int, _: FrameType | None) -> None:
        came.add(number)
        process.send_signal(number)

    before = {}
    try:
        for number in _FORWARDED:
            # What somebody has chosen to ignore, as under `nohup`, stays so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, forward)
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
