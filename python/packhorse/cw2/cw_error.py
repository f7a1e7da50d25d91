"""What can go wrong, and how an experiment gives up."""

from __future__ import annotations

from typing import Any

from .._errors import PackhorseError


class ConfigKeyError(PackhorseError):
    """Something is wrong with a file of experiments; the text says where and what."""


class MissingConfigError(PackhorseError):
    """A file or a document is not there."""


class ExperimentNotFoundError(PackhorseError):
    """None of the experiments that were asked for is in the file."""


class ExperimentSurrender(Exception):
    """Raised by an experiment that sees no point in going on: that is no failure.

    ``payload`` is what an iterative experiment would have returned; it is logged.
    """

    payload: dict[str, Any]

    def __init__(self, payload: dict[str, Any] | None = None) -> None:
        super().__init__(payload)
        self.payload = {} if payload is None else payload
