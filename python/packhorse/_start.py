# What the process of a task is started as: `python _start.py PAYLOAD LABEL`. See _worker.py.
#
# By its path, not by `-m`: that needs no search, and a folder `packhorse` in the current
# folder cannot get in the way. It is short because a script is compiled whenever it is run,
# which the module it imports is not.
import sys

if __name__ == "__main__":
    if "packhorse._worker" not in sys.modules:
        # Where the package is, instead of its inside.
        sys.path[0] = __file__[: -len("/packhorse/_start.py")]
    from packhorse._worker import main

    main()
