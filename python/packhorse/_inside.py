"""What a task can say and ask while it runs."""

from __future__ import annotations

import os
import sys
from typing import Any


def log(**metrics: float) -> None:
    """Reports metrics of the task that calls it: ``packhorse.log(loss=0.1, step=3)``.

    They are kept with the task, and ``packhorse results`` shows them. ``step`` is not a
    metric but says where the others were measured. Outside a task the line is printed all
    the same, and means nothing.
    """
    import json

    values: dict[str, float] = {}
    for name, value in metrics.items():
        # What numpy and torch call a number has `item`.
        value = value.item() if hasattr(value, "item") else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name}={value!r} is no number")
        if name == "step" and int(value) != value:
            raise ValueError(f"step={value!r} is no whole number")
        # NaN and infinity too: `json` writes them, and Packhorse reads them.
        values[name] = value
    if not values.keys() - {"step"}:
        return
    line = f"packhorse: {json.dumps(values)}\n"
    # What was printed before goes first. Then one write: lines of threads and processes
    # that share the stream do not mix.
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        # A notebook's stream, or one that a test has put there.
        sys.stdout.write(line)
        sys.stdout.flush()
        return
    data = line.encode()
    while data:
        data = data[os.write(descriptor, data) :]


def params() -> dict[str, Any]:
    """The parameters of the task that calls it (``PACKHORSE_PARAMS``); empty if it has none."""
    import json

    text = os.environ.get("PACKHORSE_PARAMS")
    if not text:
        return {}
    value = json.loads(text)
    return value if isinstance(value, dict) else {}


def results_dir() -> str:
    """The folder for the results of the task that calls it (``PACKHORSE_RESULTS``).

    The current folder if the task has none, so that a script also works on its own.
    """
    return os.environ.get("PACKHORSE_RESULTS") or os.getcwd()
