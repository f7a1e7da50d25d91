"""A file of experiments, resolved."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import _ask
from . import cw_conf_keys as KEYS

#: What paths a repetition has.
_PATHS = (KEYS.PATH, KEYS.LOG_PATH, KEYS.i_BASIC_PATH, KEYS.i_REP_LOG_PATH)


class Config:
    """The repetitions of a file, and its ``SLURM`` document.

    Programs may change both before ``ClusterWork.run()``, which then runs what they are.
    """

    def __init__(
        self,
        config_path: str | None = None,
        experiment_selections: Sequence[str] | None = None,
        debug: bool = False,
        debug_all: bool = False,
        prefix_with_timestamp: bool = False,
    ) -> None:
        """Loads the file, if there is one."""
        #: The configurations of all repetitions.
        self.exp_configs: list[dict[str, Any]] = []
        #: The name of the file, without its folder.
        self.f_name = ""
        self.config_path = config_path
        self.exp_selections = experiment_selections
        self.prefix_with_timestamp = prefix_with_timestamp
        #: Made once: whoever loads the results looks where they were written.
        self.time_stamp = _ask.time_stamp() if prefix_with_timestamp else None
        self._loaded: list[dict[str, Any]] = []
        self._slurm: dict[str, Any] | None = None
        #: What it was at first, once it was asked for.
        self._slurm_loaded: tuple[dict[str, Any] | None] | None = None
        if config_path is not None:
            self.load_config(config_path, experiment_selections, debug, debug_all)

    def load_config(
        self,
        config_path: str,
        experiment_selections: Sequence[str] | None = None,
        debug: bool = False,
        debug_all: bool = False,
    ) -> None:
        """Loads a file, or some of the experiments in it."""
        self.config_path = config_path
        self.f_name = os.path.basename(config_path)
        self.exp_selections = experiment_selections
        found = _ask.repetitions(
            config_path,
            debug=debug,
            debug_all=debug_all,
            experiments=experiment_selections,
            time_stamp=self.time_stamp,
        )
        self.exp_configs = [repetition.config for repetition in found]
        self._loaded = copy.deepcopy(self.exp_configs)
        self._slurm_loaded = None

    @property
    def slurm_config(self) -> dict[str, Any] | None:
        """The ``SLURM`` document that counts on this machine, if there is one."""
        if self._slurm_loaded is None and self.config_path is not None:
            self._slurm = _ask.slurm_document(self.config_path)
            self._slurm_loaded = (copy.deepcopy(self._slurm),)
        return self._slurm

    @slurm_config.setter
    def slurm_config(self, document: dict[str, Any] | None) -> None:
        # Asked for first, so that the change is seen.
        _ = self.slurm_config
        self._slurm = document

    def to_yaml(self, dir_path: str = "", relpath: bool = True) -> None:
        """Writes everything into a folder, else into the one that ``path`` names:
        ``relative_FILE.yml``, and ``NAME/relative_FILE_NAME.yml`` for each experiment.

        Paths in them begin at the folder. With ``relpath=False`` they stay as they are, and
        there is one file.
        """
        folder = dir_path or self.exp_configs[0][KEYS.i_BASIC_PATH]
        if relpath:
            with self.file() as file:
                _ask.write_back(file, folder)
            return
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"relative_{self._name()}"), "w", encoding="utf-8") as out:
            out.write(_ask.text_of(self.documents()))

    @contextmanager
    def file(self) -> Iterator[str]:
        """A file with everything in it, as long as it is needed."""
        with tempfile.TemporaryDirectory(prefix="packhorse-") as folder:
            # The same name: so are the files called that are made of it.
            path = os.path.join(folder, self._name())
            with open(path, "w", encoding="utf-8") as file:
                file.write(_ask.text_of(self.documents()))
            yield path

    def _name(self) -> str:
        return self.f_name or "experiments.yml"

    def documents(self) -> list[dict[str, Any]]:
        """Everything, as the documents of a file."""
        slurm = [] if self.slurm_config is None else [self.slurm_config]
        return [*slurm, *self.exp_configs]

    def is_as_loaded(self) -> bool:
        """Whether nobody has changed anything."""
        if self._slurm_loaded is not None and self._slurm_loaded[0] != self._slurm:
            return False
        return self.exp_configs == self._loaded

    def below(self, root_dir: str) -> Config:
        """The same with all paths below a folder."""
        moved = copy.deepcopy(self)
        for config in moved.exp_configs:
            for key in _PATHS:
                config[key] = os.path.join(root_dir, config[key])
        return moved
