"""What is sent to a task: a function and its arguments, and how to find their modules."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
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


def about(*, keep: bool = True, module: tuple[str, str] | None = None) -> bytes:
    """What a task must know before it can load the rest.

    ``keep``: its result is wanted. ``module``: the name and the file of a class's module.
    """
    # What a script defines comes back as that of `__mp_main__`, as with multiprocessing.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    here = os.getcwd()
    return pickle.dumps(
        {
            "path": [entry or here for entry in sys.path],
            "argv": list(sys.argv),
            "main": main_module(),
            "alias": aliased(),
            "keep": keep,
            "module": module,
        },
        5,
    )


def aliased() -> bool:
    """Whether the name ``gpu_task_scheduler`` is ours in this process."""
    alias = sys.modules.get("packhorse._alias")
    return alias is not None and bool(alias.is_installed())


def main_module() -> tuple[str, str] | None:
    """Where the program's ``__main__`` can be loaded from again."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", "packhorse.__main__"):
        return ("module", spec.name.removesuffix(".__main__") + _dunder_main(spec.name))
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return ("file", os.path.abspath(path))


def _dunder_main(name: str) -> str:
    return ".__main__" if name.endswith(".__main__") else ""
