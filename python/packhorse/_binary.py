"""Where the ``packhorse`` program is, and how it is told whom it belongs to."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def binary() -> str:
    """The path of the ``packhorse`` program.

    ``PACKHORSE_BINARY`` if that is set; else the one that was installed with this package;
    else the one on the ``PATH``.
    """
    chosen = os.environ.get("PACKHORSE_BINARY")
    if chosen:
        return chosen
    for folder in _script_folders():
        path = os.path.join(folder, "packhorse")
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    found = shutil.which("packhorse")
    if found is None:
        raise FileNotFoundError(
            "there is no packhorse program beside this Python or on the PATH\n"
            "hint: reinstall the package, or set PACKHORSE_BINARY to the program"
        )
    return found


def _script_folders() -> list[str]:
    """Where pip puts programs: beside this interpreter, with --user, with --target."""
    folders = [sysconfig.get_path("scripts")]
    user = "posix_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user))
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders.append(os.path.join(packages, "bin"))
    folders.append(os.path.dirname(sys.executable or ""))
    return [folder for folder in folders if folder]


def own_process() -> str:
    """This process for ``--end-with``: its number and when it was started."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the program's name in brackets, with anything in it.
            start = file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return str(pid)
    return f"{pid}:{start}"


def command_simple_gpu_scheduler() -> None:
    """The command ``simple_gpu_scheduler``: the same program under the original's name."""
    _become("simple_gpu_scheduler")


def command_simple_hypersearch() -> None:
    """The command ``simple_hypersearch``: the same program under the original's name."""
    _become("simple_hypersearch")


def _become(name: str) -> None:
    # The program acts as what it is called.
    os.execv(binary(), [name, *sys.argv[1:]])
