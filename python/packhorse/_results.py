"""What a task has sent back, or the exception that says why it has not."""

from __future__ import annotations

import os
import pickle
from typing import Any, cast

from ._driver import Event
from ._errors import BrokenRun, RemoteTraceback, TaskError
from ._future import remove


def read_result(path: str) -> Any:
    """What the task has written: None if nothing, an exception if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return None
    except BaseException as error:
        # What is unpickled is somebody else's code.
        return error
    finally:
        remove(path)


def exception(result: Any, event: Event) -> BaseException:
    """The exception that the function raised, with its trace there as its cause."""
    _, error, trace = result
    if error is None:
        last = trace.strip().rpartition("\n")[2]
        error = _task_error(f"{last} (an exception that cannot be pickled)", event)
    error.__cause__ = RemoteTraceback(f'\n"""\n{trace}"""')
    return cast("BaseException", error)


def no_result(event: Event) -> Exception:
    """What to say of a task that has sent nothing back."""
    outcome, detail = event["outcome"], event["detail"]
    if outcome == "interrupted":
        return BrokenRun("the run was stopped while the task was running")
    message = {
        "succeeded": "the process ended before the function returned",
        "failed": f"the process ended with exit status {detail}",
        "killed": f"the process was killed by signal {detail}",
        "timed-out": "it ran longer than its time limit",
        "not-started": f"it could not be started: {event['message']}",
    }.get(outcome, outcome)
    return _task_error(f"task {event['task']}: {message}{_last_lines(event['log'])}", event)


def _task_error(message: str, event: Event) -> TaskError:
    log = event["log"] if isinstance(event["log"], str) else None
    return TaskError(
        message, task=event["task"], outcome=event["outcome"], detail=event["detail"], log=log
    )


def _last_lines(log: Any) -> str:
    if not isinstance(log, str):
        return ""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()[-5:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines)
