"""Asks the ``packhorse`` program what experiments mean."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Union

from .._binary import binary
from . import cw_error
from ._values import as_yaml, decoded
from .cw_data.cw_logging import getLogger

Document = dict[str, Any]
#: A file of experiments, or what one would hold.
Source = Union[str, "os.PathLike[str]", Iterable[Document]]


class Repetition(NamedTuple):
    """A repetition, as the program lists it."""

    #: The number of its job.
    job: int
    config: Document


def repetitions(
    source: Source,
    *,
    debug: bool = False,
    debug_all: bool = False,
    experiments: Sequence[str] | None = None,
    time_stamp: str | None = None,
) -> list[Repetition]:
    """All repetitions, in their order."""
    words = ["--list", "--json", *_debug(debug, debug_all)]
    words += [] if time_stamp is None else [f"--time-stamp={time_stamp}"]
    for name in experiments or ():
        words += ["-e", name]
    return [Repetition(found["job"], found["config"]) for found in _ask(source, words)]


def time_stamp() -> str:
    """What stands before the names of experiments that are told apart by the time."""
    return time.strftime("%m%d-%H%M%S")


def expanded(
    source: Iterable[Document], *, debug: bool = False, debug_all: bool = False
) -> list[Document]:
    """All runs, in their order."""
    documents = list(source)
    # A file without experiments is a mistake; no experiments have no runs.
    return _ask(documents, ["--expand", *_debug(debug, debug_all)]) if documents else []


def slurm_document(source: Source, *, warn: bool = True) -> Document | None:
    """The ``SLURM`` document that counts on this machine."""
    found = _ask(source, ["--slurm-document"], warn)
    return found[0] if found else None


def jobs_of(configs: Sequence[Document]) -> list[list[Document]]:
    """Repetitions, by their jobs."""
    listed = repetitions(configs) if configs else []
    # By their folders: what is there twice is listed once.
    job_of = {found.config["_rep_log_path"]: found.job for found in listed}
    jobs: dict[int, list[Document]] = {}
    for config in configs:
        number = job_of.pop(config["_rep_log_path"], None)
        if number is not None:
            jobs.setdefault(number, []).append(config)
    return [jobs[number] for number in sorted(jobs)]


def write_back(source: Source, folder: str) -> None:
    """Writes everything that is in a file into a folder."""
    _ask(source, ["--write-back", folder])


def text_of(configs: Iterable[Document]) -> str:
    """Documents as they stand in a file."""
    return "".join(f"---\n{as_yaml(config)}\n" for config in configs)


def _debug(debug: bool, debug_all: bool) -> list[str]:
    return ["--debugall"] if debug_all else ["--debug"] if debug else []


def _ask(source: Source, words: list[str], warn: bool = True) -> list[Any]:
    if isinstance(source, (str, os.PathLike)):
        file, text = os.fspath(source), ""
        if not os.path.exists(file):
            raise cw_error.MissingConfigError(f"there is no file {file}")
    else:
        file, text = "-", text_of(source)
    done = subprocess.run(
        [binary(), "exp", file, *words], input=text.encode(), capture_output=True, check=False
    )
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode != 0:
        said = said.removeprefix("error: ")
        if said.startswith("there is no experiment"):
            raise cw_error.ExperimentNotFoundError(said)
        raise cw_error.ConfigKeyError(said)
    if said and warn:
        getLogger().warning("%s", said.removeprefix("warning: "))
    return [decoded(json.loads(line)) for line in done.stdout.splitlines()]
