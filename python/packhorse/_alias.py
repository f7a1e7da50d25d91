"""The names ``gpu_task_scheduler`` and ``cw2`` for programs that were written for the originals.

Only ``python -m packhorse SCRIPT`` and the tasks of such a script have them: whoever has
installed the originals keeps them everywhere else.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

#: The originals' names, and where ours are.
NAMES = {
    "gpu_task_scheduler": "packhorse.gpu_task_scheduler",
    "cw2": "packhorse.cw2",
}


def _ours(name: str) -> str | None:
    """What a module of an original is called here; None if it is none."""
    original, dot, rest = name.partition(".")
    return NAMES[original] + dot + rest if original in NAMES else None


class _Loader(importlib.abc.Loader):
    """Gives the module of ours under the original's name: one module, one class of each."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._ours)
        # The import system writes its own idea of the module into it, and takes it back
        # below: it stays what it was.
        self._spec = module.__spec__
        self._loader = getattr(module, "__loader__", None)
        self._package = module.__package__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        module.__loader__ = self._loader
        module.__package__ = self._package
        module.__name__ = self._spec.name if self._spec is not None else module.__name__


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        ours = _ours(name)
        if ours is None:
            return None
        found = importlib.util.find_spec(ours)
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(name, _Loader(ours), is_package=package)


_finder = _Finder()


def install() -> None:
    """From now on this process finds ours under the originals' names."""
    if not is_installed():
        sys.meta_path.insert(0, _finder)


def is_installed() -> bool:
    """Whether it does."""
    return _finder in sys.meta_path
