"""Values of experiment files, on their way between this process and the program.

JSON has no infinity, no tuples and only text for keys. The program writes those as
``{"!float": "inf"}``, ``{"!tuple": [...]}`` and ``{"!dict": [[key, value], ...]}``; what it
reads is YAML, which has a form for each.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from datetime import date
from typing import Any

from . import cw_error


def decoded(value: Any) -> Any:
    """What the program has written, once ``json`` has read it."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(form, inner)] = value.items()
        if form == "!float":
            return float(inner)
        if form == "!tuple":
            return tuple(decoded(item) for item in inner)
        if form == "!dict":
            return {decoded(key): decoded(item) for key, item in inner}
    return {key: decoded(item) for key, item in value.items()}


def as_yaml(value: Any) -> str:
    """A value on one line of YAML."""
    if value is None or isinstance(value, (str, bool, int)):
        return json.dumps(value)
    if isinstance(value, float):
        if math.isnan(value):
            return ".nan"
        if math.isinf(value):
            return ".inf" if value > 0 else "-.inf"
        return json.dumps(value)
    if isinstance(value, Mapping):
        members = (f"{_key(key)}: {as_yaml(inner)}" for key, inner in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, tuple):
        return "!!python/tuple " + as_yaml(list(value))
    if isinstance(value, (set, frozenset)):
        return as_yaml(sorted(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, (date, os.PathLike)):
        return json.dumps(str(value))
    # What numpy and torch call a number or an array.
    if hasattr(value, "tolist"):
        return as_yaml(value.tolist())
    raise cw_error.ConfigKeyError(
        f"{value!r} cannot be a parameter: those are numbers, text, lists and dictionaries"
    )


def _key(key: Any) -> str:
    if isinstance(key, tuple):
        return f"? {as_yaml(key)} "
    plain = key is None or isinstance(key, (str, bool, int, float))
    return as_yaml(key if plain else str(key))
