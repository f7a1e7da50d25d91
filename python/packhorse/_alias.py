"""The name ``gpu_task_scheduler`` for programs that were written for the original.

Only ``python -m packhorse SCRIPT`` and the tasks of such a script have it: whoever has
installed the original keeps it everywhere else.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

ORIGINAL = "gpu_task_scheduler"
OURS = "packhorse.gpu_task_scheduler"


class _Loader(importlib.abc.Loader):
    """Gives the module of ours under the original's name: one module, one class of each."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(OURS + spec.name[len(ORIGINAL) :])
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
        if name != ORIGINAL and not name.startswith(ORIGINAL + "."):
            return None
        ours = OURS + name[len(ORIGINAL) :]
        found = importlib.util.find_spec(ours)
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=package)


_finder = _Finder()


def install() -> None:
    """From now on this process finds ours under the original's name."""
    if not is_installed():
        sys.meta_path.insert(0, _finder)


def is_installed() -> bool:
    """Whether it does."""
    return _finder in sys.meta_path
