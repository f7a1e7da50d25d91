"""Which repetition this process is, if packhorse has started it as one.

``PACKHORSE_EXPERIMENT`` has its configuration, or nothing if that is too long for a variable:
then the file has it that ``PACKHORSE_CONFIG`` names. ``PACKHORSE_CW2`` says which
``ClusterWork.run()`` of the script it belongs to: the first is 1.
The script's first argument is then the folder of the repetition, for people who look at the
commands of tasks; the script itself never sees it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ._values import decoded

EXPERIMENT = "PACKHORSE_EXPERIMENT"
NUMBER = "PACKHORSE_CW2"
#: What `packhorse exp` replaces by the folder.
LABEL = "{folder}"
#: The first that is there counts.
_CORES = ("PACKHORSE_CPU_CORES", "PACKHORSE_CORES")

#: Whether the label was taken out of the arguments.
_hidden = False
#: How many times ``run`` was called in this process.
_calls = 0


def is_repetition() -> bool:
    """Whether this process is a repetition that has not begun."""
    return EXPERIMENT in os.environ


def is_called_by_us() -> bool:
    """Whether a ``ClusterWork.run()`` has started it, and not ``packhorse exp`` by hand."""
    return NUMBER in os.environ


def hide_label() -> None:
    """Takes the folder out of the script's arguments."""
    global _hidden
    if is_repetition() and is_called_by_us() and not _hidden:
        _hidden = True
        del sys.argv[1:2]


def next_call() -> int:
    """The number of this call of ``run``."""
    global _calls
    _calls += 1
    return _calls


def take() -> dict[str, Any]:
    """The configuration of the repetition. What the experiment starts is none."""
    text = os.environ.pop(EXPERIMENT)
    if text == "{}":
        with open(os.environ["PACKHORSE_CONFIG"]) as opened:
            text = opened.read()
    config: dict[str, Any] = decoded(json.loads(text))
    config.setdefault("params", {})
    os.environ.pop(NUMBER, None)
    cores = _cores()
    if cores:
        config["cpu_cores"] = cores
    return config


def wanted_call() -> int:
    """The call of ``run`` that the repetition belongs to."""
    return int(os.environ.get(NUMBER, "1"))


def _cores() -> set[int]:
    text = next((os.environ[name] for name in _CORES if os.environ.get(name)), "")
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores
