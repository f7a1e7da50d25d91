"""Expands experiments: their grids, lists and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _ask


def expand_experiments(
    _experiment_configs: Sequence[dict[str, Any]], debug: bool = False, debug_all: bool = False
) -> list[dict[str, Any]]:
    """The runs of these experiments: one for each combination of parameters."""
    return _ask.expanded(_experiment_configs, debug=debug, debug_all=debug_all)


def unfold_exps(
    exp_configs: Sequence[dict[str, Any]], debug: bool = False, debug_all: bool = False
) -> list[dict[str, Any]]:
    """The repetitions of these experiments."""
    return [
        found.config for found in _ask.repetitions(exp_configs, debug=debug, debug_all=debug_all)
    ]


def unroll_exp_reps(exp_configs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The repetitions of these runs."""
    return unfold_exps(exp_configs)
