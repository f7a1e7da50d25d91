"""Runs the one repetition that this process is there for."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from . import job as jobs
from .cw_config import cw_conf_keys as KEYS

if TYPE_CHECKING:
    from .cw_data.cw_logging import LoggerArray
    from .experiment import AbstractExperiment
    from .scheduler import AbstractScheduler


class _Terminated(SystemExit):
    """Packhorse ends the task: the experiment can still clean up."""


def run_and_exit(
    config: dict[str, Any],
    exp_cls: type[AbstractExperiment],
    logger: LoggerArray,
    scheduler: AbstractScheduler | None,
) -> NoReturn:
    """Runs it, and ends the process: what follows in the script is not its business."""
    job = jobs.Job([config], exp_cls, logger)
    terminated = _listen(job)
    crash: BaseException | None = None
    if scheduler is None:
        folder = config[KEYS.i_REP_LOG_PATH]
        print(folder, flush=True)
        crash = job.run_repetition(config, folder)
    else:
        # Packhorse has found that it is to be run.
        scheduler.assign([job])
        scheduler.run(overwrite=True)
    if terminated:
        _die_of(terminated[0])
    if isinstance(crash, KeyboardInterrupt):
        _die_of(signal.SIGINT)
    sys.exit(_status(crash) if crash is not None else int(bool(jobs.crashed)))


def _status(crash: BaseException) -> int:
    code = crash.code if isinstance(crash, SystemExit) else None
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _listen(job: jobs.Job) -> list[signal.Signals]:
    """Has SIGTERM raise an exception in the experiment, unless the script does something else
    with it. The signals that came."""
    came: list[signal.Signals] = []
    if threading.current_thread() is not threading.main_thread():
        return came
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return came
    owner = os.getpid()

    def end(number: int, _: Any) -> None:
        if os.getpid() != owner:
            # A process that the experiment has forked, such as one that loads data.
            _die_of(signal.Signals(number))
        came.append(signal.Signals(number))
        # What cleans up is not interrupted: this may not be the first signal, and the
        # experiment may have come to its end by itself.
        if job.is_running:
            raise _Terminated(128 + number)

    signal.signal(signal.SIGTERM, end)
    return came


def _die_of(number: signal.Signals) -> NoReturn:
    """Ends as if nobody had listened: packhorse is told the truth."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # If it is blocked.
    os._exit(128 + number)
