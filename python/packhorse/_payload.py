"""What is sent to a task: a function and its arguments, and how to find their modules."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any

cloudpickle: Any
try:
    cloudpickle = importlib.import_module("cloudpickle")
except ImportError:
    cloudpickle = None

_HINT = "hint: `pip install cloudpickle`, or define it at the top of a module"


def dumps(value: Any) -> bytes:
    """Pickles it: by ``cloudpickle`` where it is installed."""
    if cloudpickle is not None:
        data: bytes = cloudpickle.dumps(value, 5)
        return data
    try:
        data = pickle.dumps(value, 5)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise pickle.PicklingError(f"{error}\n{_HINT}") from error
    if b"__main__" in data and main_module() is None:
        raise pickle.PicklingError(
            f"what is defined in an interactive session cannot be sent to a task\n{_HINT}"
        )
    return data


def about(
    *,
    keep: bool = True,
    module: tuple[str, str] | None = None,
    with_folder: bool = False,
    pythonpath: tuple[str | None, str] = (None, ""),
) -> bytes:
    """What a task must know before it can load the rest.

    ``keep``: its result is wanted. ``module``: the name and the file of a class's module.
    ``with_folder``: modules are found in the current folder as well. ``pythonpath``: what was
    given to a warm Python, and what stood there before.
    """
    # What a script defines comes back as that of `__mp_main__`, as with multiprocessing.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    here = os.getcwd()
    path = [entry or here for entry in sys.path]
    if with_folder and here not in path:
        path.append(here)
    return pickle.dumps(
        {
            "path": path,
            "pythonpath": pythonpath,
            "argv": list(sys.argv),
            "main": main_module(),
            "alias": aliased(),
            "keep": keep,
            "module": module,
        },
        5,
    )


def python_path(
    env: Mapping[str, Any] | None, *, with_folder: bool = False
) -> tuple[str | None, str]:
    """A ``PYTHONPATH`` by which a warm Python finds the program's own modules, and the one
    that tasks have without it. The first is None if there is nothing to add.

    Added are the script's folder and what else the program has put in front of Python's own
    folders. What stands behind them is left out: on a ``PYTHONPATH`` it would come before
    Python's own modules, and could hide some.
    """
    before = str((env or {}).get("PYTHONPATH", os.environ.get("PYTHONPATH", "")))
    library = os.path.dirname(os.__file__)
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    known = {os.path.abspath(entry) for entry in before.split(":") if entry}
    first: list[str] = []
    for entry in sys.path:
        if entry == library or os.path.basename(entry) == archive:
            break
        first.append(entry)
    if with_folder:
        first.append(os.getcwd())
    folders: list[str] = []
    for folder in map(os.path.abspath, first):
        # A name with a colon cannot be there.
        if folder not in known and folder not in folders and ":" not in folder:
            folders.append(folder)
    if not folders:
        return None, before
    return ":".join([*folders, before] if before else folders), before


def aliased() -> bool:
    """Whether the originals' names are ours in this process."""
    alias = sys.modules.get("packhorse._alias")
    return alias is not None and bool(alias.is_installed())


def main_module() -> tuple[str, str] | None:
    """Where the program's ``__main__`` can be loaded from again."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", "packhorse.__main__"):
        return ("module", spec.name)
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return ("file", os.path.abspath(path))
