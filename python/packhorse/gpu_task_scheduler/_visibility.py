"""Hides the GPUs from the scheduler's own process.

A task's file that imports TensorFlow at its top is imported by the scheduler too, which
needs no GPU and would occupy one. What CUDA shows is decided when it is first used, so it
is enough to hide the GPUs before that: when ``gpu_task`` is imported, which such a file
does. They are shown again when ``start()`` is over, and to whoever makes a ``GPUTask``
without a scheduler, to try it.
"""

from __future__ import annotations

import os

_VARIABLE = "CUDA_VISIBLE_DEVICES"

_hidden = False
_before: str | None = None
#: Whether a scheduler is at work, which makes task objects only to send them away.
scheduling = False


def hide() -> None:
    """Shows no GPUs to what is used from now on."""
    global _hidden, _before
    # A task has the GPUs that it was given.
    if _hidden or "PACKHORSE_TASK" in os.environ:
        return
    _hidden, _before = True, os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = ""


def show() -> None:
    """Shows what was shown before."""
    global _hidden
    if not _hidden:
        return
    _hidden = False
    # Whoever has set it in between means it.
    if os.environ.get(_VARIABLE) == "":
        if _before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = _before


def environment() -> dict[str, str]:
    """The environment of this process, as it would be if nothing was hidden."""
    variables = dict(os.environ)
    if _hidden and variables.get(_VARIABLE) == "":
        del variables[_VARIABLE]
        if _before is not None:
            variables[_VARIABLE] = _before
    return variables
