"""Commands as tasks: a run whose events are read as they come."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from . import _worker
from ._driver import ClusterDriver, Driver, Event
from ._options import RunOptions, arguments, is_on_slurm
from ._task import Command, Task

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass
class TaskResult:
    """What is known about one task of a run."""

    #: Its id, such as ``"3.7"``.
    task: str
    #: Its command, as it was given.
    command: str | list[str]
    #: How it ended: ``"succeeded"``, ``"failed"``, ``"killed"``, ``"timed-out"``,
    #: ``"not-started"``, ``"skipped"``, ``"interrupted"``; None while it has not.
    outcome: str | None = None
    #: The exit status if it failed, the signal if it was killed.
    detail: int | None = None
    #: Why it could not be started, or what else there is to say.
    message: str | None = None
    #: How many attempts it has had.
    attempts: int = 0
    #: How long the last attempt took.
    seconds: float | None = None
    #: The file with what it wrote.
    log: str | None = None
    #: The GPUs of the last attempt.
    gpus: list[str] = field(default_factory=list)
    #: The most GPU memory that was seen on one GPU, in bytes.
    peak_vram: int | None = None
    #: The last values of its metrics.
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.outcome == "succeeded"


class Run:
    """A run of commands. Iterate over its events, or ``wait()`` for its end.

    ::

        run = packhorse.run(["python a.py", "python b.py"], devices=[0, 1])
        for event in run:
            print(event["event"], event.get("task"))
        print(run.wait(), [result.outcome for result in run.results])

    Events are dictionaries, described in the manual under "Events". Nothing is lost if you
    do not read them; an interpreter that ends waits for the run.
    """

    def __init__(self, tasks: Iterable[Command | Task], options: dict[str, Any]) -> None:
        """Use :func:`packhorse.run`."""
        _worker.check_not_loading()
        # A file, not a pipe: it is checked as a whole before anything starts.
        lines = [json.dumps(_task(task).spec()) + "\n" for task in tasks]
        with tempfile.NamedTemporaryFile("w", prefix="packhorse-", suffix=".jsonl") as file:
            file.writelines(lines)
            file.flush()
            kind = ClusterDriver if is_on_slurm(options) else Driver
            self._driver = kind(arguments(options), tasks=file.name)
            first = self._driver.started()
        self._waiting_events: list[Event] = [first]
        self._results: dict[str, TaskResult] = {}
        #: The run's number, for ``packhorse show`` and the like.
        self.id: int = first["run"]
        #: The exit status: 0 all succeeded, 1 some failed; None while it goes on.
        self.exit: int | None = None
        for number, line in enumerate(lines, 1):
            task = f"{self.id}.{number}"
            self._results[task] = TaskResult(task, json.loads(line)["command"])
        _runs.add(self)

    def __iter__(self) -> Iterator[Event]:
        """The events that nobody has read yet, as they come."""
        try:
            while self._waiting_events:
                yield self._waiting_events.pop(0)
            if self.exit is None:
                for event in self._driver.events():
                    self._note(event)
                    yield event
                self._end()
        except KeyboardInterrupt:
            self.stop()
            raise

    def wait(self) -> int:
        """Waits for the end. The exit status: 0 if all tasks succeeded, 1 if some failed.

        Ctrl-C ends the tasks that are running.
        """
        for _ in self:
            pass
        assert self.exit is not None
        return self.exit

    @property
    def results(self) -> list[TaskResult]:
        """What is known of each task, in their order, as far as events were read."""
        return list(self._results.values())

    @property
    def failed(self) -> list[TaskResult]:
        """The tasks that have ended, and not well."""
        return [result for result in self.results if result.outcome and not result.succeeded]

    def stop(self) -> None:
        """Ends the tasks that are running, starts no others, and waits for that.

        ``packhorse resume`` can go on with the run.
        """
        if self.exit is None:
            self._driver.stop(signal.SIGTERM)
            for event in self._driver.events():
                self._note(event)
            self._end()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is None:
            self.wait()
        else:
            self.stop()

    def __repr__(self) -> str:
        state = "going on" if self.exit is None else f"exit status {self.exit}"
        return f"<packhorse.Run {self.id}: {len(self._results)} tasks, {state}>"

    def _end(self) -> None:
        if self.exit is not None:
            # Whoever reads the events has stopped the run, or waited for it.
            return
        status = self._driver.wait()
        self._driver.end_leftovers()
        exit = self._driver.exit
        self.exit = exit if exit is not None else (status if status >= 0 else 128 - status)
        _runs.discard(self)

    def _note(self, event: Event) -> None:
        result = self._results.get(event.get("task") or "")
        if result is None:
            return
        kind = event["event"]
        if kind == "started":
            result.gpus = list(event["gpus"])
        elif kind == "measured" and event["attempt"] > 0:
            result.peak_vram = event["peak"]
        elif kind == "metrics":
            for name, value in event["values"].items():
                # JSON has no NaN and no infinity: they come as text.
                result.metrics[name] = float(value) if isinstance(value, str) else value
        elif kind == "finished":
            result.outcome = event["outcome"]
            result.detail = event["detail"]
            result.message = event["message"]
            result.attempts = event["attempts"]
            result.seconds = event["seconds"]
            result.log = event["log"] if isinstance(event["log"], str) else None


def run(tasks: Iterable[Command | Task] | str, **options: Unpack[RunOptions]) -> Run:
    """Starts a run of commands: lines for the shell, lists of words, or :class:`Task`.

    Returns at once; ``PackhorseError`` if something is wrong with the tasks or options,
    before anything was started. The options are those of :class:`RunOptions`.
    """
    if isinstance(tasks, str):
        raise TypeError(f"tasks is a list of commands: [{tasks!r}]")
    return Run(tasks, cast("dict[str, Any]", options))


def _task(task: Command | Task) -> Task:
    return task if isinstance(task, Task) else Task(task)


_runs: set[Run] = set()
_owner = os.getpid()


def _wait_at_exit() -> None:
    """The run ends with this process, so the process waits for it."""
    if os.getpid() != _owner:
        return
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    for run in list(_runs):
        if interrupted:
            run.stop()
        else:
            run.wait()


atexit.register(_wait_at_exit)
