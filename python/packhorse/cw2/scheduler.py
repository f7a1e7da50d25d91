"""Schedulers: who runs jobs, for programs that bring their own.

``ClusterWork.run()`` has packhorse run everything. ``ClusterWork.run(sch=MyScheduler())``
gives that one the jobs instead::

    class MyScheduler(scheduler.AbstractScheduler):
        def run(self, overwrite=False):
            for job in self.joblist:
                for config in job.tasks:
                    job.run_task(config, overwrite)
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from . import job as jobs

if TYPE_CHECKING:
    from .cw_config.cw_config import Config


class AbstractScheduler(abc.ABC):
    """Runs jobs. ``joblist`` are its jobs, ``config`` is what it was made with."""

    def __init__(self, conf: Config | None = None) -> None:
        self.joblist: list[jobs.Job] = []
        self.config = conf

    def assign(self, joblist: list[jobs.Job]) -> None:
        """Takes the jobs to run."""
        self.joblist = joblist

    @abc.abstractmethod
    def run(self, overwrite: bool = False) -> Any:
        """Runs the jobs. ``overwrite``: also what has been run before."""


class LocalScheduler(AbstractScheduler):
    """Runs one job after the other on this machine, ``reps_in_parallel`` repetitions at a time.

    It knows nothing of GPUs: all repetitions see all of them.
    """

    def run(self, overwrite: bool = False) -> Any:
        for job in self.joblist:
            if min(job.n_parallel, len(job.tasks)) > 1:
                self._in_processes(job, overwrite)
                continue
            for config in job.tasks:
                self.execute_task(job, config, overwrite)

    def execute_task(self, j: jobs.Job, c: dict[str, Any], overwrite: bool = False) -> None:
        """Runs a repetition."""
        j.run_task(c, overwrite)

    def _in_processes(self, job: jobs.Job, overwrite: bool) -> None:
        """Each repetition in a process of its own; what it has printed is shown at its end."""
        from .. import Executor, as_completed

        everything, self.joblist = self.joblist, []
        try:
            with Executor(slots=job.n_parallel) as pool:
                futures = [
                    pool.submit(_execute, self, job, config, overwrite) for config in job.tasks
                ]
                for future in as_completed(futures):
                    _show(future.log)
                    jobs.crashed.extend(future.result())
        finally:
            self.joblist = everything


def _execute(
    scheduler: LocalScheduler, job: jobs.Job, config: dict[str, Any], overwrite: bool
) -> list[str]:
    """In the process of a repetition: the folders of what crashed."""
    scheduler.execute_task(job, config, overwrite)
    return jobs.crashed


def _show(log: str | None) -> None:
    if log is not None:
        with open(log, encoding="utf-8", errors="replace") as file:
            print(file.read(), end="", flush=True)
