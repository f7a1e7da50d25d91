"""The command line of a program that runs experiments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

#: Options that mean the same to `packhorse exp`, and take no value.
_FLAGS = {
    "overwrite": ("-o", "--overwrite", "run repetitions again that have been run"),
    "slurm": ("-s", "--slurm", "run on a Slurm cluster"),
    "prefix_with_timestamp": (
        "-t",
        "--prefix-with-timestamp",
        "begin the names of experiments with the time; not with --slurm",
    ),
    "nocodecopy": ("--nocodecopy", "with --slurm: do not copy the code"),
    "zip": ("--zip", "with --slurm: copy the code into a zip file"),
    "skipsizecheck": ("--skipsizecheck", "with --slurm: copy more than 200 MB of code, too"),
    "multicopy": ("--multicopy", "with --slurm: copy the code once for each job"),
    "noconsolelog": ("--noconsolelog", "write no out.log and err.log"),
    "debug": ("--debug", "the first run of each experiment, one repetition, one iteration"),
    "debugall": ("--debugall", "every run, one repetition, one iteration"),
}


class Arguments:
    """What was typed. Wrong usage ends the program with exit status 2."""

    def __init__(self, words: Sequence[str] | None = None) -> None:
        """The words of the command line, if no others are given."""
        self._parser = argparse.ArgumentParser(
            epilog="All other options are those of `packhorse exp`, and go behind the file."
        )
        self._parser.add_argument(
            "config",
            metavar="CONFIG.yml",
            help="a file of experiments",
            nargs="?" if words is not None else None,
        )
        self._parser.add_argument(
            "-e",
            "--experiments",
            nargs="+",
            metavar="NAME",
            help="run only these experiments",
        )
        self._parser.add_argument(
            "-j", "--job", type=int, metavar="K", help="run only the K-th job; the first is 0"
        )
        for name, (*forms, text) in _FLAGS.items():
            self._parser.add_argument(*forms, dest=name, action="store_true", help=text)
        known, self.others = self._parser.parse_known_args(words)
        self._args = vars(known)
        if self._args["slurm"] and self._args["prefix_with_timestamp"]:
            self.refuse("-t (--prefix-with-timestamp) does not work with -s (--slurm)")

    def get(self) -> dict[str, Any]:
        """The options by their names."""
        return self._args

    def refuse_others(self) -> None:
        """Where ``packhorse exp`` is not called, its options mean nothing."""
        if self.others:
            self.refuse(f"unrecognized arguments: {' '.join(self.others)}")

    def refuse(self, problem: str) -> NoReturn:
        """Says what is wrong with what was typed, and ends the program."""
        self._parser.error(problem)


def exp_words(args: dict[str, Any], time_stamp: str | None = None) -> list[str]:
    """The same options for ``packhorse exp``, with the time to put before names."""
    words = [_FLAGS[name][-2] for name in _FLAGS if args[name]]
    if time_stamp is not None:
        words.append(f"--time-stamp={time_stamp}")
    if args["job"] is not None:
        words += ["--job", str(args["job"])]
    for name in args["experiments"] or ():
        words += ["-e", name]
    return words
