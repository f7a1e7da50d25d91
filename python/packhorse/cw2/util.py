"""Small things that programs use."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

from .._affinity import assign_process_to_cpu as assign_process_to_cpu


def deep_update(base_dict: dict[Any, Any], update_dict: Mapping[Any, Any]) -> dict[Any, Any]:
    """Lays one dictionary over another, dictionaries within them key by key."""
    for key, value in update_dict.items():
        if isinstance(value, Mapping):
            below = base_dict.get(key)
            value = deep_update(below if isinstance(below, dict) else {}, value)
        base_dict[key] = value
    return base_dict


def flatten_dict(d: Mapping[str, Any], parent_key: str = "", sep: str = "_") -> dict[str, Any]:
    """One dictionary of those within it: ``{"a": {"b": 1}}`` is ``{"a_b": 1}``.

    The items of lists are numbered: ``{"a": [5, 6]}`` is ``{"a_0": 5, "a_1": 6}``.
    """
    flat: dict[str, Any] = {}
    for key, value in d.items():
        name = f"{parent_key}{sep}{key}" if parent_key else key
        if isinstance(value, MutableMapping):
            flat.update(flatten_dict(value, name, sep))
        elif isinstance(value, MutableSequence):
            flat.update((f"{name}_{place}", item) for place, item in enumerate(value))
        else:
            flat[name] = value
    return flat


def flatten_dict_to_tuple_keys(d: Mapping[Any, Any]) -> dict[tuple[Any, ...], Any]:
    """The lists in a dictionary and in those within it, by the keys that lead to them."""
    flat: dict[tuple[Any, ...], Any] = {}
    for key, value in d.items():
        if isinstance(value, MutableMapping):
            inner = flatten_dict_to_tuple_keys(value)
            flat.update(((key, *keys), item) for keys, item in inner.items())
        elif isinstance(value, MutableSequence):
            flat[(key,)] = value
    return flat


def insert_deep_dictionary(d: MutableMapping[Any, Any], t: Any, value: Any) -> None:
    """Puts a value where these keys lead to; dictionaries on the way are made."""
    inner, last = _reach(d, t)
    inner[last] = value


def append_deep_dictionary(d: MutableMapping[Any, Any], t: Any, value: Any) -> None:
    """Adds a value to the list that these keys lead to, which is made if it is not there."""
    if not isinstance(t, tuple):
        d[t] = value
        return
    inner, last = _reach(d, t)
    inner.setdefault(last, []).append(value)


def _reach(d: MutableMapping[Any, Any], t: Any) -> tuple[MutableMapping[Any, Any], Any]:
    *way, last = t if isinstance(t, tuple) else (t,)
    for key in way:
        d = d.setdefault(key, {})
    return d, last


def format_time(time_in_secs: float) -> str:
    """A time as people write it: ``1:01:05``."""
    return str(datetime.timedelta(seconds=time_in_secs))


def shorten_param(_param_name: str) -> str:
    """The short form of a parameter in the names of runs: ``net.hidden_size`` is ``net.hs``."""
    return convert_param_names([_param_name], [""])


def convert_param_names(_param_names: Sequence[str], values: Sequence[Any]) -> str:
    """What a run with these parameters is called, behind the name of its experiment."""
    from .cw_config.conf_unfolder import expand_experiments

    grid: dict[str, Any] = {}
    for name, value in zip(_param_names, values):
        insert_deep_dictionary(grid, tuple(name.split(".")), [value])
    [experiment] = expand_experiments([{"name": "x", "path": "", "grid": grid}], False, False)
    called: str = experiment["_experiment_name"]
    return called.removeprefix("x__")


def get_size(start_path: str) -> float:
    """The size of all files in a folder and in those below it, in MB."""
    found = 0
    for folder, _, names in os.walk(start_path):
        found += sum(os.path.getsize(os.path.join(folder, name)) for name in names)
    return found / 1e6


def check_subdir(parent: str, child: str) -> bool:
    """Whether a folder is another one, or somewhere below it."""
    above = os.path.abspath(parent)
    return os.path.commonpath([above, os.path.abspath(child)]) == above


def get_file_names_in_directory(directory: str) -> list[str] | None:
    """The names of the files in a folder; None if there are none."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if not entry.is_dir()] or None
    except OSError:
        print(f"cannot read the folder {directory}")
        return None
