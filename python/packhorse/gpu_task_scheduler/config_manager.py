"""Reads a configuration, and makes the tests of it one by one."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_DEFAULTS: dict[str, Any] = {
    "result_root_folder": "results/",
    "force_rerun": False,
    "test_config_string_indicator": "-",
    "test_config_string_separator": ",",
    "test_config_string_inst_separator": "+",
    "temp_folder": "temp/",
    "log_file": "worker.log",
    "scheduler_log_file_path": "scheduler.log",
    "config_string_value_maxlen": 30,
    "ignored_keys_for_folder_name": [],
    "ignored_characters_for_folder_name": [" ", "[", "]"],
}

_SECTIONS = ["scheduler_config", "global_config", "test_config"]
#: What the original does not have: the same as in the files of ``packhorse grid``.
_OURS = ["env", "request", "priority", "preload"]
#: What `request` may say: as in the files of ``packhorse grid``.
_REQUEST = [
    "gpus",
    "vram",
    "gpu_model",
    "model",
    "signature",
    "probe",
    "cores",
    "cpu",
    "ram",
    "timeout",
    "time_limit",
    "retries",
    "grace",
]
#: Of these, what only a driver can tell.
_NEEDS_DRIVER = ["vram", "gpu_model", "model"]

#: No file system has longer names, in bytes.
_LONGEST_NAME = 255


class ConfigManager:
    """The parameters of all tests, and the names of their folders.

    ``config`` is the dictionary that ``GPUTaskScheduler`` takes. Two different tests whose
    truncated names are equal get a short hash at the end of theirs, with a warning; so do
    names that no folder can have.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        if not isinstance(config, Mapping):
            raise TypeError(f"the configuration is no dictionary: {config!r}")
        _warn_of_unknown("", config, [*_SECTIONS, *_OURS])
        if "scheduler_config" not in config:
            raise ValueError("the configuration has no scheduler_config")
        given = config["scheduler_config"]
        _warn_of_unknown("scheduler_config: ", given, ["gpu", *_DEFAULTS])
        self._scheduler_config: dict[str, Any] = {**_DEFAULTS, **given}
        self._global_config: dict[str, Any] = config.get("global_config") or {}
        tests = config.get("test_config")
        self._test_config: list[dict[str, Any]] = [{}] if tests is None else tests
        self._visible = [_visible(gpu) for gpu in self._gpus()]
        for test in self._test_config:
            for key, values in test.items():
                if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
                    raise ValueError(
                        f"test_config: the values of {key!r} are no list: {values!r}\n"
                        f"hint: write [{values!r}] for a single value"
                    )
        self._task_keys = _task_keys(config)
        asked = [key for key in _NEEDS_DRIVER if key in self._task_keys]
        if asked and self.is_handed_out_as_written():
            raise ValueError(
                f"request: {asked[0]!r} needs GPUs that the driver knows, each named once, and "
                f"not {self._visible}\n"
                "hint: name each GPU once, or leave it out of request"
            )
        self._ambiguous: set[str] = set()
        self._repeats = False
        self._compare_names()
        self._instances = self._tests()
        self._left = self._count()

    # -- what the original has -----------------------------------------------------------

    def get_all_scheduler_config(self) -> dict[str, Any]:
        """The settings of the scheduler, with the defaults of those left out."""
        return self._scheduler_config

    def get_all_global_config(self) -> dict[str, Any]:
        """The parameters that all tests have."""
        return self._global_config

    def get_all_test_config(self) -> list[dict[str, Any]]:
        """The parameters to combine, as they were given."""
        return self._test_config

    def get_all_test_config_in_string(self) -> str:
        """All parameters to combine, in one text."""
        indicator, separator = self._separators()
        text = ""
        for test in self._test_config:
            for key in sorted(test):
                text += f"{key}{indicator}{test[key]}{separator}"
            text += self._scheduler_config["test_config_string_inst_separator"]
        return text

    def get_next_config(self) -> dict[str, Any]:
        """The next test; ``{"config": None}`` if there is no more."""
        test = next(self._instances, None)
        if test is None:
            return {"config": None}
        self._left -= 1
        name = self._folder_name(test)
        return {
            "config": {**self._global_config, **test},
            "test_config_string": self._name(test),
            "test_config_string_filtered": name,
            "work_dir": os.path.join(self._scheduler_config["result_root_folder"], name),
        }

    def get_num_left_config(self) -> int:
        """How many tests were not asked for yet."""
        return self._left

    def get_gpu_envs(self) -> list[dict[str, Any]]:
        """The GPUs, or groups of them: their names here, and what shows them to a test."""
        return [
            {"name": f"gpu{number}", "env": {"CUDA_VISIBLE_DEVICES": visible}}
            for number, visible in enumerate(self._visible)
        ]

    def get_num_gpu(self) -> int:
        """How many tests can run at a time."""
        return len(self._visible)

    def get_task_keys(self) -> dict[str, Any]:
        """What each test needs, beyond the original: keys of a task line."""
        return self._task_keys

    def is_handed_out_as_written(self) -> bool:
        """Whether GPUs are handed out as they stand, without a look at the driver.

        So it is if one is named twice, which in the original has two tests at a time, or if
        an id means nothing to packhorse.
        """
        ids = [one for visible in self._visible for one in visible.split(",")]
        return len(set(ids)) < len(ids) or not all(map(_is_id, ids))

    def get_gpu_words(self) -> list[str]:
        """The words after ``--gpus``."""
        if self.is_handed_out_as_written():
            return self._visible
        # In one word: nothing there can be taken for a file.
        return [",".join(visible.replace(",", "+") for visible in self._visible)]

    # -- tests and names ---------------------------------------------------------------------

    def _gpus(self) -> list[Any]:
        gpus = self._scheduler_config.get("gpu")
        if not isinstance(gpus, (list, tuple)) or not gpus:
            raise ValueError(
                "scheduler_config needs a list of GPUs\n"
                'hint: write "gpu": ["0", "1"], or [["0", "1"]] for tests on two GPUs'
            )
        return list(gpus)

    def _tests(self) -> Iterator[dict[str, Any]]:
        """Every test's own parameters; one that is there several times comes once."""
        seen: set[str] = set()
        for test in self._all_tests():
            if self._repeats:
                identity = _identity(test)
                if identity in seen:
                    continue
                seen.add(identity)
            yield test

    def _all_tests(self) -> Iterator[dict[str, Any]]:
        for test in self._test_config:
            for values in itertools.product(*test.values()):
                yield dict(zip(test, values))

    def _count(self) -> int:
        if self._repeats:
            return sum(1 for _ in self._tests())
        count = 0
        for test in self._test_config:
            product = 1
            for values in test.values():
                product *= len(values)
            count += product
        return count

    def _separators(self) -> tuple[str, str]:
        config = self._scheduler_config
        return config["test_config_string_indicator"], config["test_config_string_separator"]

    def _name(self, test: dict[str, Any]) -> str:
        """The name before characters are taken out of it."""
        indicator, separator = self._separators()
        longest = self._scheduler_config["config_string_value_maxlen"]
        ignored = self._scheduler_config["ignored_keys_for_folder_name"]
        return "".join(
            f"{key}{indicator}{str(test[key])[:longest]}{separator}"
            for key in sorted(test)
            if key not in ignored
        )

    def _filtered(self, test: dict[str, Any]) -> str:
        """The name as the original has it."""
        name = self._name(test)
        for character in self._scheduler_config["ignored_characters_for_folder_name"]:
            name = name.replace(character, "")
        return name

    def _folder_name(self, test: dict[str, Any]) -> str:
        """The name of its folder: the original's, or one that can be told apart."""
        name = self._filtered(test)
        if name not in self._ambiguous and not _is_unusable(name):
            return name
        name = name.replace("/", "_").replace("\0", "_")
        suffix = f"#{_hash(_identity(test)):016x}"
        cut = os.fsencode(name)[: _LONGEST_NAME - len(suffix)]
        # Not in the middle of a character.
        return cut.decode(errors="ignore") + suffix

    def _compare_names(self) -> None:
        """Finds different tests that would share a folder, before anything starts."""
        seen: set[str] = set()
        shared: set[str] = set()
        unusable: str | None = None
        for test in self._all_tests():
            name = self._filtered(test)
            if unusable is None and _is_unusable(name):
                unusable = name
            if name in seen:
                shared.add(name)
            seen.add(name)
        identities: dict[str, str] = {}
        for test in self._all_tests() if shared else ():
            name = self._filtered(test)
            if name in shared:
                identity = _identity(test)
                if identities.setdefault(name, identity) != identity:
                    self._ambiguous.add(name)
        self._repeats = bool(shared)
        if self._ambiguous:
            example = min(self._ambiguous)
            warnings.warn(
                f"several tests would have the folder {example!r}"
                + (f" and {len(self._ambiguous) - 1} more" if len(self._ambiguous) > 1 else "")
                + ": a short hash at the end of their names tells them apart\n"
                "hint: raise config_string_value_maxlen to see more of their values",
                stacklevel=3,
            )
        if unusable is not None:
            warnings.warn(
                f"no folder can be called {unusable!r}: the name is changed, with a short hash "
                "at its end",
                stacklevel=3,
            )


def _visible(gpu: Any) -> str:
    """What a test sees of a GPU, or of a group of them."""
    if isinstance(gpu, str):
        return gpu
    if isinstance(gpu, (list, tuple)) and gpu and all(isinstance(one, str) for one in gpu):
        return ",".join(gpu)
    raise ValueError(
        f"scheduler_config: {gpu!r} is no GPU\n"
        'hint: write "0" for a GPU, or ["0", "1"] for a group of GPUs'
    )


def _is_id(text: str) -> bool:
    """Whether ``--gpus`` understands it."""
    # Without regular expressions: scripts are loaded for each test, and this with them.
    if text.startswith(("GPU-", "MIG-")):
        text = text[4:].replace("-", "").replace("/", "")
        return text.isascii() and text.isalnum()
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _task_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the original does not have, as the keys of a task line."""
    keys: dict[str, Any] = {}
    for key, value in _mapping(config, "request").items():
        if key not in _REQUEST:
            # Unlike the original's own sections: no program says it and means nothing.
            raise ValueError(f"request: {key!r} means nothing here{_nearest(key, _REQUEST)}")
        keys["timeout" if key == "time_limit" else key] = value
    if "env" in config:
        env = _mapping(config, "env")
        for name, value in env.items():
            if isinstance(value, (list, tuple, Mapping)):
                raise ValueError(f"env: {name!r} is no text or number: {value!r}")
        keys["env"] = {str(name): str(value) for name, value in env.items()}
    if "priority" in config:
        keys["priority"] = config["priority"]
    modules = config.get("preload")
    if modules is not None:
        modules = [modules] if isinstance(modules, str) else list(modules)
        if not all(isinstance(module, str) for module in modules):
            raise ValueError(f"preload: {modules!r} is no list of the names of modules")
        keys["preload"] = modules
    return keys


def _mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{key} is no dictionary: {value!r}")
    return value or {}


def _nearest(key: Any, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(str(key), known, 1)
    return f": did you mean {near[0]!r}?" if near else ""


def _warn_of_unknown(where: str, given: Mapping[str, Any], known: list[str]) -> None:
    """The original ignores what it does not know; so do we, but not silently."""
    for key in given:
        if key not in known:
            hint = _nearest(key, known)
            warnings.warn(f"{where}{key!r} means nothing here{hint}", stacklevel=4)


def _is_unusable(name: str) -> bool:
    too_long = len(name) * 4 > _LONGEST_NAME and len(os.fsencode(name)) > _LONGEST_NAME
    return too_long or "/" in name or "\0" in name or name in (".", "..")


def _identity(test: dict[str, Any]) -> str:
    """Every key with its value, whatever is in the name of the folder."""
    pairs = sorted((str(key), repr(value)) for key, value in test.items())
    return "".join(f"{key}\0{value}\0" for key, value in pairs)


def _hash(text: str) -> int:
    """The hash in names of folders: `packhorse grid` computes the same, so that the same
    grid has the same folders, whoever runs it."""
    mask = (1 << 64) - 1
    value = 0xCBF29CE484222325
    for byte in text.encode(errors="surrogatepass"):
        value = ((value ^ byte) * 0x100000001B3) & mask
    value ^= value >> 32
    value = (value * 0x9E3779B97F4A7C15) & mask
    return value ^ (value >> 29)
