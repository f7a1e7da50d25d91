"""``python -m packhorse SCRIPT [ARGUMENTS]``: a program that was written for the original
``gpu_task_scheduler`` or ``cw2`` runs on packhorse, unmodified."""

from __future__ import annotations

import os
import sys

USAGE = """\
usage: python -m packhorse SCRIPT [ARGUMENTS]

Runs a Python script in which `gpu_task_scheduler` and `cw2` are packhorse: programs that
were written for the originals run unmodified. The exit status is 1 if a test or a
repetition failed.

  -h, --help   this text
  --version    the version

Everything else is done by the program `packhorse`: try `packhorse --help`.
"""


def main(words: list[str]) -> None:
    """Does what the command line says."""
    if not words or words[0] in ("-h", "--help"):
        (sys.stdout if words else sys.stderr).write(USAGE)
        sys.exit(0 if words else 2)
    if words[0] in ("-V", "--version"):
        from packhorse import __version__

        print(f"packhorse {__version__}")
        return
    script = words[0]
    if script.startswith("-") or not os.path.exists(script):
        problem = "there is no such option" if script.startswith("-") else "no such file"
        sys.stderr.write(f"error: {script}: {problem}\n{_advice(script)}")
        sys.exit(2)

    from packhorse import _alias
    from packhorse.gpu_task_scheduler import _visibility

    _alias.install()
    # Before the script's first line: what it imports finds no GPU to occupy.
    _visibility.hide()
    sys.argv = words
    folder = os.path.dirname(os.path.abspath(script))
    # What `-m` has put there: the current folder. A script finds its own folder there.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)
    _run_as_main(script)
    from packhorse import _exit_status

    # A script that has come to its end, and whose tasks have not all succeeded.
    status = _exit_status.unseen()
    if status != 0:
        sys.exit(status)


def _run_as_main(script: str) -> None:
    """Runs a script as Python itself would: it stays the module ``__main__`` to the end."""
    import io
    import types

    module = types.ModuleType("__main__")
    # As Python has it: a script that changes the folder still finds what lies beside it.
    path = os.path.abspath(script)
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _advice(script: str) -> str:
    commands = "run sweep csv grid exp slurm results ls show logs gpus"
    if script in commands.split():
        return f"hint: commands are run without `python -m`: `packhorse {script}`\n"
    return "hint: `python -m packhorse --help` shows what can be given\n"


if __name__ == "__main__":
    main(sys.argv[1:])
