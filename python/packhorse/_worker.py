"""What a task of an Executor or a GPUTaskScheduler runs: calls one function.

``python _start.py PAYLOAD LABEL``. PAYLOAD is a path without its ending:

    PAYLOAD.task         what to call, as it was sent
    PAYLOAD.run          the same once a process has taken it
    PAYLOAD.N.result     what came of attempt N

Taking it is a rename, which only one can win: the process that runs it, or the program
that cancels it by removing the file. So what was cancelled never runs, whatever the
scheduler has done with it in between, and no message has to be waited for.

Nothing happens at import, and little is imported: this stands before every task. A warm
Python (``preload``) may have imported it long ago.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

#: What the program's script is called here, as in multiprocessing.
_MAIN_NAME = "__mp_main__"


class StopLoading(BaseException):
    """A script that is loaded for its functions has come to where it would start a run."""


#: Whether the program's script is being loaded.
loading = False


def check_not_loading() -> None:
    """Called where a run would be started.

    A script without ``if __name__ == "__main__"`` does so when it is loaded for its
    functions. What stands above has been defined by then, and that is all a task needs.
    """
    if loading:
        raise StopLoading


def program() -> "list[str]":
    """The words that start a task; its payload and its label come next."""
    import subprocess

    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_start.py")
    return [sys.executable, *flags, start]


def main() -> None:
    """Takes the payload of the command line, calls its function, writes what came of it."""
    path = sys.argv[1]
    attempt = os.environ.get("PACKHORSE_ATTEMPT", "1")
    try:
        os.rename(path + ".task", path + ".run")
    except FileNotFoundError:
        # A second attempt finds what the first has taken.
        if not os.path.exists(path + ".run"):
            if not os.path.isdir(os.path.dirname(path)):
                sys.exit("the program that this task belonged to has ended")
            print("cancelled before it started")
            return
    if not _call(path, path + "." + attempt + ".result"):
        sys.exit(1)


def _call(path: str, result: str) -> bool:
    """Whether the function returned."""
    # What is in C of `pickle`: that needs no regular expressions to be imported.
    import _pickle as pickle

    sys.argv = sys.argv[:1]
    keep = True
    try:
        with open(path + ".run", "rb") as file:
            about = pickle.load(file)
            keep = about["keep"]
            _prepare(about)
            unpickler = _unpickler(file, about)
            function, args, kwargs = unpickler.load()
        value = function(*args, **kwargs)
        if keep:
            _write(result, _dumps((True, value)))
    except BaseException as error:
        if keep:
            _write_exception(result, error)
        elif isinstance(error, SystemExit):
            # Nobody waits for a result: it is a program of its own, and ends as it likes.
            raise
        else:
            _print_exception(error)
        return False
    return True


def _prepare(about: "dict[str, Any]") -> None:
    """Finds modules where the program found them."""
    ours, before = about["pythonpath"]
    # What a warm Python needed to find the program's modules is not for others that the
    # task starts.
    if ours is not None and os.environ.get("PYTHONPATH") == ours:
        if before:
            os.environ["PYTHONPATH"] = before
        else:
            del os.environ["PYTHONPATH"]
    sys.path[:] = about["path"]
    sys.argv = about["argv"]
    if about["alias"]:
        from packhorse import _alias

        _alias.install()


def _unpickler(file: "Any", about: "dict[str, Any]") -> "Any":
    import _pickle as pickle

    class Unpickler(pickle.Unpickler):
        """Loads the program's script when something of it is first needed."""

        def find_class(self, module: str, name: str) -> "Any":
            if module == "__main__":
                load_main(about["main"])
            elif about["module"] and module == about["module"][0]:
                load_module(*about["module"])
            return super().find_class(module, name)

    return Unpickler(file)


def load_main(main: "tuple[str, str] | None") -> None:
    """Makes the program's script the module ``__main__``, without running it as one."""
    global loading
    if main is None or _MAIN_NAME in sys.modules:
        return
    import types

    kind, where = main
    module = types.ModuleType(_MAIN_NAME)
    # As multiprocessing does: what the script defines says that it is of `__mp_main__`,
    # and is found under either name.
    sys.modules[_MAIN_NAME] = module
    loading = True
    try:
        if kind == "module":
            code = _code_of_module(where, module)
        else:
            module.__file__ = where
            code = _code_of_file(where)
        sys.modules["__main__"] = module
        exec(code, module.__dict__)
    except StopLoading:
        pass
    finally:
        loading = False


def _code_of_file(path: str) -> "Any":
    import io

    with io.open_code(path) as file:
        return compile(file.read(), path, "exec")


def _code_of_module(name: str, module: "ModuleType") -> "Any":
    import importlib.util

    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    module.__file__ = spec.origin
    module.__package__ = spec.parent
    module.__spec__ = spec
    return spec.loader.get_code(name)  # type: ignore[attr-defined]


def load_module(name: str, path: str) -> None:
    """Loads a class's module from its file, wherever a search would look for the name."""
    import importlib
    import importlib.util

    if name in sys.modules:
        return
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is not None and found.origin and os.path.samefile(found.origin, path):
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}", name=name, path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _dumps(value: "Any") -> bytes:
    """Pickles it: by value what is of the program's `__main__` and came so."""
    import _pickle as pickle

    try:
        return pickle.dumps(value, 5)
    except Exception as error:
        try:
            import importlib

            cloudpickle = importlib.import_module("cloudpickle")
        except ImportError:
            raise pickle.PicklingError(f"the result cannot be pickled: {error}") from error
        data: bytes = cloudpickle.dumps(value, 5)
        return data


def _write(path: str, data: bytes) -> None:
    """Writes what came of it: whole, or not at all."""
    partial = path + ".partial"
    with open(partial, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
    os.rename(partial, path)


def _print_exception(error: BaseException) -> str:
    """Prints the exception: what reads the output sees why the task failed. The text."""
    import traceback

    # Our own frame at the top says nothing to anybody.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        sys.stdout.flush()
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
    return text


def _write_exception(path: str, error: BaseException) -> None:
    """Prints the exception, and writes it for the program."""
    import pickle

    text = _print_exception(error)
    error.__traceback__ = None
    try:
        data = _dumps((False, error, text))
        # Many exceptions can be pickled, but not unpickled again.
        pickle.loads(data)
    except Exception:
        data = pickle.dumps((False, None, text), 5)
    _write(path, data)
