"""Jobs: repetitions that are run one after the other, or some at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..gpu_task_scheduler._marker import MARKER, is_done
from . import cw_error
from .cw_config import cw_conf_keys as KEYS
from .cw_data import cw_logging

if TYPE_CHECKING:
    from .experiment import AbstractExperiment

#: The folders of repetitions that crashed in this process.
crashed: list[str] = []


class Job:
    """Some repetitions of an experiment, and what runs them."""

    def __init__(
        self,
        tasks: list[dict[str, Any]],
        exp_cls: type[AbstractExperiment] | None,
        logger: cw_logging.LoggerArray,
        delete_old_files: bool = False,
        root_dir: str = "",
        read_only: bool = False,
    ) -> None:
        """``tasks`` are the configurations of the repetitions. Their folders are made, unless
        it is only to load (``read_only``). ``delete_old_files`` means nothing."""
        self.tasks = tasks
        self.logger = logger
        if exp_cls is not None:
            self.exp = exp_cls()
        #: How many repetitions may run at a time.
        self.n_parallel: int = tasks[0].get(KEYS.REPS_PARALL, 1)
        #: Whether the experiment is at work, and not about to end: it can be interrupted.
        self.is_running = False
        self._root_dir = root_dir
        if not read_only:
            for config in tasks:
                os.makedirs(os.path.join(root_dir, config[KEYS.i_REP_LOG_PATH]), exist_ok=True)

    def run_task(self, c: dict[str, Any], overwrite: bool) -> None:
        """Runs a repetition in this process, unless it has been run and ``overwrite`` is not
        set. An exception is logged, and not raised: the others go on."""
        folder = os.path.join(self._root_dir, c[KEYS.i_REP_LOG_PATH])
        print(folder, flush=True)
        if not overwrite and _has_been_run(folder, bool(c.get(KEYS.i_DEBUG_FLAG))):
            cw_logging.getLogger().warning(
                "%s is skipped: it is not empty. Use -o to overwrite.", folder
            )
            return
        error = self.run_repetition(c, folder)
        if isinstance(error, KeyboardInterrupt):
            # Whoever presses Ctrl-C does not mean this one alone.
            raise error

    def run_repetition(self, c: dict[str, Any], folder: str) -> BaseException | None:
        """Runs a repetition, whatever is in its folder; the exception that it ended with."""
        rep = c[KEYS.i_REP_IDX]
        surrender: cw_error.ExperimentSurrender | None = None
        crash: BaseException | None = None
        self.logger.initialize(c, rep, folder)
        try:
            try:
                try:
                    self.is_running = True
                    self.exp.initialize(c, rep, self.logger)
                    self.exp.run(c, rep, self.logger)
                finally:
                    self.is_running = False
            except cw_error.ExperimentSurrender as given_up:
                cw_logging.getLogger().warning("SURRENDER: %s", folder)
                surrender = given_up
            except BaseException as error:
                # Everything: also who leaves by `sys.exit` has not come to the end.
                cw_logging.getLogger().exception("EXCEPTION: %s", folder)
                crash = error
            try:
                self.exp.finalize(surrender, crash is not None)
            except BaseException as error:
                cw_logging.getLogger().exception("EXCEPTION in finalize: %s", folder)
                crash = crash or error
        finally:
            self.logger.finalize()
        if crash is not None:
            crashed.append(folder)
        return crash

    def load_task(self, c: dict[str, Any]) -> dict[str, Any]:
        """What the loggers have logged in a repetition."""
        folder = os.path.join(self._root_dir, c[KEYS.i_REP_LOG_PATH])
        return self.logger.load_from(c, c[KEYS.i_REP_IDX], folder)


class JobFactory:
    """Makes jobs of repetitions."""

    def __init__(
        self,
        exp_cls: type[AbstractExperiment] | None,
        logger: cw_logging.LoggerArray,
        delete_old_files: bool = False,
        root_dir: str = "",
        read_only: bool = False,
    ) -> None:
        self.exp_cls = exp_cls
        self.logger = logger
        self.delete_old_files = delete_old_files
        self.root_dir = root_dir
        self.read_only = read_only

    def create_jobs(self, exp_configs: Sequence[dict[str, Any]]) -> list[Job]:
        """The jobs of these repetitions, ``reps_per_job`` in each."""
        from ._ask import jobs_of

        return [
            Job(
                tasks,
                self.exp_cls,
                self.logger,
                self.delete_old_files,
                self.root_dir,
                self.read_only,
            )
            for tasks in jobs_of(exp_configs)
        ]


def _has_been_run(folder: str, debug: bool) -> bool:
    """Whether there is something in its folder, and not just of a failure or a trial."""
    names = os.listdir(folder)
    return is_done(folder, debug) if MARKER in names else bool(names)
