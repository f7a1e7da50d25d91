"""The names ``gpu_task_scheduler`` and ``cw2`` for programs that were written for the originals.

Only ``python -m packhorse SCRIPT``, its processes and its tasks have them: whoever has
installed the originals keeps them everywhere else.

This process finds them by a finder. One that multiprocessing starts anew (``spawn``,
``forkserver``) is given no more than ``sys.path``, and finds them in the folder
``_originals``, whose modules install the finder there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

#: The originals' names, and where ours are.
NAMES = {
    "gpu_task_scheduler": "packhorse.gpu_task_scheduler",
    "cw2": "packhorse.cw2",
}

#: A folder with a module for each of these names.
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_originals")


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
    if _FOLDER not in sys.path:
        # The first entry stays the script's folder, and an original that is installed comes
        # later.
        sys.path.insert(1, _FOLDER)


def take_place_of(name: str) -> None:
    """Called by a module of the folder while it is imported: ours is imported instead."""
    install()
    sys.modules[name] = importlib.import_module(NAMES[name])


def is_installed() -> bool:
    """Whether it does."""
    return _finder in sys.meta_path
