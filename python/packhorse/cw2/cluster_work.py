"""Runs an experiment as often as a file says, and loads its results."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from .. import _worker
from .._errors import PackhorseError
from .._exit_status import Report
from . import _ask, _program, _repetition, _told, cli_parser
from . import job as jobs
from .cw_config.cw_config import Config
from .cw_data import cw_logging

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from .experiment import AbstractExperiment
    from .scheduler import AbstractScheduler


class ClusterWork:
    """A program that runs experiments, as its command line says::

        if __name__ == "__main__":
            cw = cluster_work.ClusterWork(MyExperiment)
            cw.add_logger(PandasLogger())
            cw.run()

    ``python my_main.py config.yml`` runs them on this machine, ``-s`` on Slurm.
    """

    def __init__(self, exp_cls: type[AbstractExperiment] | None = None) -> None:
        """``exp_cls`` is derived from ``AbstractExperiment``. To load results, none is needed."""
        _worker.check_not_loading()
        # If this was imported long before, in a warm Python.
        _told.hide_label()
        # What was typed for `packhorse exp` is none of its business.
        typed = not _told.is_repetition() or _told.is_called_by_us()
        self._arguments = cli_parser.Arguments(None if typed else [])
        #: What was typed, by the names of the options.
        self.args = self._arguments.get()
        self.exp_cls = exp_cls
        self.logArray = cw_logging.LoggerArray()
        if not self.args["noconsolelog"]:
            self.add_logger(cw_logging.PythonLogger())
        self.joblist: list[jobs.Job] | None = None
        self._config: Config | None = None
        #: What stands before the names of experiments, with `-t`: the same for the run, its
        #: configuration and its results.
        self._time_stamp = _ask.time_stamp() if self.args["prefix_with_timestamp"] else None
        #: Whether options of `packhorse exp` were for it.
        self._has_run = False

    @property
    def config(self) -> Config:
        """The file, resolved. Read when it is first needed: a repetition knows what it is."""
        if self._config is None:
            config = Config(prefix_with_timestamp=self.args["prefix_with_timestamp"])
            config.time_stamp = self._time_stamp
            if self.args["config"] is not None:
                config.load_config(
                    self.args["config"],
                    self.args["experiments"],
                    self.args["debug"],
                    self.args["debugall"],
                )
            self._config = config
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config

    def add_logger(self, logger: cw_logging.AbstractLogger) -> None:
        """Adds a logger, which is told the results of each repetition."""
        self.logArray.add(logger)

    def run(self, root_dir: str = "", sch: AbstractScheduler | None = None) -> Report:
        """Runs all repetitions that have not been run; returns when all have ended.

        Each is a process of its own, which runs this script up to here. ``root_dir`` is put
        before all paths. With a scheduler of one's own, that one is given the jobs.

        Repetitions that fail do not keep the others from running. If nobody looks at
        ``exit_status`` of what this returns, the program ends with exit status 1 then.
        """
        if self.exp_cls is None:
            raise NotImplementedError(
                "there is nothing to run: give ClusterWork a class derived from AbstractExperiment"
            )
        number = _told.next_call()
        if _told.is_repetition():
            if number < _told.wanted_call():
                # It belongs to a later one.
                return Report(0)
            _repetition.run_and_exit(_told.take(), self.exp_cls, self.logArray, sch)
        if sch is not None and not self.args["slurm"]:
            return self._run_scheduler(sch, root_dir)
        self._has_run = True
        made = self._config_to_run(root_dir)
        args, time_stamp = self.args, self._time_stamp
        if self._config is not None:
            # It may be one that the program has made.
            time_stamp = self._config.time_stamp
        if made is not None:
            # What was made of the file has the names and the selection already.
            args = {**args, "experiments": None, "prefix_with_timestamp": False}
            time_stamp = None
        with nullcontext(args["config"]) if made is None else made.file() as file:
            status = _program.run(
                [file, *cli_parser.exp_words(args, time_stamp), *self._arguments.others],
                [*_program.this_script(self._python(file)), _told.LABEL, *sys.argv[1:]],
                {_told.NUMBER: str(number)},
            )
        if status not in (0, 1):
            # Nothing was run, or the run was ended: the program has said why.
            sys.exit(status)
        return Report(status)

    def load(self, root_dir: str = "") -> DataFrame:
        """The results of all repetitions, as the loggers have logged them: a row for each.

        ``root_dir`` is put before all paths: the folder of ``relative_CONFIG.yml``, if that
        is the file.
        """
        from .cw_data.cw_loading import Loader

        if not self._has_run:
            self._arguments.refuse_others()
        loader = Loader(self.config)
        loader.assign(self._get_jobs(self.config, root_dir, read_only=True))
        return loader.run()

    def _get_jobs(
        self, config: Config, root_dir: str = "", read_only: bool = False
    ) -> list[jobs.Job]:
        """All jobs, or the one that was asked for."""
        factory = jobs.JobFactory(
            self.exp_cls, self.logArray, root_dir=root_dir, read_only=read_only
        )
        self.joblist = factory.create_jobs(config.exp_configs)
        number = self.args["job"]
        if number is None:
            return self.joblist
        if number not in range(len(self.joblist)):
            self._arguments.refuse(f"there is no job {number}: there are {len(self.joblist)}")
        return [self.joblist[number]]

    def _run_scheduler(self, sch: AbstractScheduler, root_dir: str) -> Report:
        """Has a scheduler of the program's own run the jobs, in this process."""
        self._arguments.refuse_others()
        if self.logArray.is_empty():
            cw_logging.getLogger().warning("no logger was added: nothing will be logged")
        before = len(jobs.crashed)
        config = self.config.below(root_dir) if root_dir else self.config
        config.to_yaml()
        sch.assign(self._get_jobs(config))
        sch.run(overwrite=self.args["overwrite"])
        failed = jobs.crashed[before:]
        if failed:
            listed = "\n".join(f"  {folder}" for folder in failed)
            print(f"{len(failed)} repetitions failed:\n{listed}", file=sys.stderr, flush=True)
        return Report(int(bool(failed)))

    def _python(self, file: str) -> str:
        """The Python that repetitions run with: on Slurm, the one that the job's own lines
        choose."""
        if self.args["slurm"]:
            try:
                document = _ask.slurm_document(file, warn=False) or {}
            except PackhorseError:
                # Whoever runs the file says what is wrong with it.
                document = {}
            if document.get("venv") or document.get("sh_lines"):
                return "python3"
        return sys.executable

    def _config_to_run(self, root_dir: str) -> Config | None:
        """What to run, if it is not simply what is in the file."""
        if root_dir:
            return self.config.below(root_dir)
        if self._config is None or self._config.is_as_loaded():
            return None
        return self._config
