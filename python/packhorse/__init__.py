"""Packs your work onto your GPUs: run Python functions and commands, each on a free GPU.

    import packhorse

    with packhorse.Executor(gpus=0.5, vram="auto", retries=1) as pool:
        futures = [pool.submit(train, lr=lr) for lr in (0.1, 0.01)]
        for future in packhorse.as_completed(futures):
            print(future.result(), future.gpu, future.peak_vram)

    run = packhorse.run(["python train.py --lr 0.1", "python train.py --lr 0.01"])
    for event in run:
        print(event)

Everything is done by the ``packhorse`` program that comes with this package; nothing here
starts threads, takes over signals or imports more than it needs before it is used.
"""

from __future__ import annotations

# Not from `typing`, which takes longer to import than all of this: type checkers know the
# name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._waiting import as_completed as as_completed
    from ._waiting import wait as wait

    from ._affinity import assign_process_to_cpu as assign_process_to_cpu
    from ._binary import binary as binary
    from ._errors import BrokenRun as BrokenRun
    from ._errors import PackhorseError as PackhorseError
    from ._errors import RemoteTraceback as RemoteTraceback
    from ._errors import TaskError as TaskError
    from ._executor import Executor as Executor
    from ._future import Future as Future
    from ._grid import grid as grid
    from ._run import Run as Run
    from ._run import TaskResult as TaskResult
    from ._run import run as run
    from ._task import Task as Task
    from ._inside import log as log
    from ._inside import params as params
    from ._inside import results_dir as results_dir

__version__ = "0.1.0"

# Where each name is found when it is first used: a task that only calls `packhorse.log`
# need not wait until everything else is imported.
_HOMES = {
    "as_completed": "packhorse._waiting",
    "wait": "packhorse._waiting",
    "assign_process_to_cpu": "packhorse._affinity",
    "binary": "packhorse._binary",
    "BrokenRun": "packhorse._errors",
    "PackhorseError": "packhorse._errors",
    "RemoteTraceback": "packhorse._errors",
    "TaskError": "packhorse._errors",
    "Executor": "packhorse._executor",
    "Future": "packhorse._future",
    "grid": "packhorse._grid",
    "Run": "packhorse._run",
    "TaskResult": "packhorse._run",
    "run": "packhorse._run",
    "Task": "packhorse._task",
    "log": "packhorse._inside",
    "params": "packhorse._inside",
    "results_dir": "packhorse._inside",
}

__all__ = [
    "BrokenRun",
    "Executor",
    "Future",
    "PackhorseError",
    "RemoteTraceback",
    "Run",
    "Task",
    "TaskError",
    "TaskResult",
    "as_completed",
    "assign_process_to_cpu",
    "binary",
    "grid",
    "log",
    "params",
    "results_dir",
    "run",
    "wait",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
