"""Several calls in one task, for ``Executor.map`` with a chunk size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def call_each(function: Callable[..., Any], chunk: list[tuple[Any, ...]]) -> list[Any]:
    """The results of a function for these arguments."""
    return [function(*arguments) for arguments in chunk]
