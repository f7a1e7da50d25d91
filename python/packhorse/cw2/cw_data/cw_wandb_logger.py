"""Results on Weights & Biases. The key ``wandb`` of an experiment says where.

    wandb:
      project: my_project     # needed; the rest is not
      entity: my_team
      group: my_group
      job_type: my_type       # else the name of the run
      enabled: true
      log_interval: 10        # log every tenth iteration
      histogram: [weights]    # results that are histograms of numpy
      disable_stats: false
      use_group_parameters: false
      log_model: false        # send the files in cw_config["save_model_dir"]
      model_name: model
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..util import get_file_names_in_directory
from .cw_logging import AbstractLogger

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped,import-not-found,unused-ignore]

wandb: Any
try:
    wandb = importlib.import_module("wandb")
except ModuleNotFoundError as error:
    if error.name == "wandb":
        hint = "hint: `pip install wandb`, or add no WandBLogger"
        raise ModuleNotFoundError(f"WandBLogger needs wandb\n{hint}", name="wandb") from None
    raise

#: How often a connection is tried.
_TRIES = 10
#: So long may the names of jobs and runs be.
_LONGEST = 63
#: What one run of wandb leaves in the environment, and the next one must not find. The
#: person's own settings stay.
_OF_A_RUN = ("WANDB_RUN_ID", "WANDB_RUN_GROUP", "WANDB_NAME", "WANDB_JOB_TYPE", "WANDB_RESUME",
             "WANDB_NOTES", "WANDB_TAGS", "WANDB_SWEEP_ID", "WANDB_SERVICE")  # fmt: skip


def reset_wandb_env() -> None:
    """Forgets the run of wandb that was there before."""
    for name in _OF_A_RUN:
        os.environ.pop(name, None)


def group_parameters(list_of_strings: Iterable[str]) -> tuple[str, int]:
    """Puts parameters together whose names begin alike; how many groups that makes.

    ``mod.enc.hd64``, ``mod.enc.tid`` and ``local`` become ``local,mod_enc_[hd64,tid]``.
    """
    parts = []
    for first, members in itertools.groupby(
        sorted(list_of_strings), key=lambda name: name.partition(".")[0]
    ):
        group = list(members)
        if len(group) == 1:
            parts.append(group[0])
            continue
        inner, count = group_parameters(name.partition(".")[2] for name in group)
        parts.append(f"{first}_[{inner}]" if count > 1 else f"{first}_{inner}")
    return ",".join(parts), len(parts)


class WandBLogger(AbstractLogger):
    """Sends results to Weights & Biases. Does nothing for experiments without ``wandb``."""

    loads = False

    def __init__(
        self,
        ignore_keys: Iterable[str] | None = None,
        allow_keys: Iterable[str] | None = None,
    ) -> None:
        super().__init__(ignore_keys, allow_keys)
        self.log_path = ""
        #: The run on wandb, once there is one.
        self.run: Any = None

    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        self.run = None
        if "wandb" not in config:
            warnings.warn(
                "the experiment says nothing about `wandb`: nothing is sent there", stacklevel=2
            )
            return
        self.init_fields(config, rep, rep_log_path)
        self.connect_to_wandb()

    def init_fields(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        """Takes what it needs from the configuration."""
        self.log_path = rep_log_path
        self.rep = rep
        self.config: dict[str, Any] = config["wandb"]
        self.cw2_config = config
        reset_wandb_env()
        name = str(config["_experiment_name"]).replace("__", "_")
        self.use_group_parameters = bool(self.config.get("use_group_parameters", False))
        if self.use_group_parameters:
            name = group_parameters(name.split("_"))[0]
        self.runname = f"{name}_rep_{rep:02d}"
        self.job_name = str(self.config.get("job_type", name))
        self.entity = self.config.get("entity")
        self.group = self.config.get("group")
        self.wandb_log_model = bool(self.config.get("log_model", False))
        self.save_model_dir: str | None = None
        if self.wandb_log_model:
            self.save_model_dir = os.path.join(rep_log_path, "model")
            # Where the experiment finds it.
            config["save_model_dir"] = self.save_model_dir
            self.model_name = self.config.get("model_name", "model")

    def connect_to_wandb(self) -> None:
        """Starts a run on wandb. A connection that fails is tried again."""
        for number in range(_TRIES):
            try:
                self.run = wandb.init(**self._about())
                return
            except Exception as error:
                if number == _TRIES - 1:
                    raise
                # Many repetitions start at once, and must not come back at once.
                pause = (0.01 + random.random() / 50) * 2**number
                warnings.warn(
                    f"wandb cannot be reached ({error}): trying again in {pause:.2f} s",
                    stacklevel=2,
                )
                time.sleep(pause)

    def _about(self) -> dict[str, Any]:
        about = {
            "project": self.config["project"],
            "entity": self.entity,
            "group": self.group,
            "job_type": self.job_name[:_LONGEST],
            "name": self.runname[:_LONGEST],
            "config": self.cw2_config.get("params", {}),
            "dir": self.log_path,
            "mode": "disabled",
        }
        if self.config.get("enabled", True):
            about["mode"] = os.environ.get("WANDB_MODE", "online")
        if self.config.get("disable_stats", False):
            about["settings"] = _without_statistics()
        return about

    def process(self, data: dict[str, Any]) -> None:
        if self.run is None:
            return
        interval = self.config.get("log_interval")
        if interval is not None and data["iter"] % interval != 0:
            return
        sent = dict(self.filter(data))
        for key in self.config.get("histogram", ()):
            if key in data:
                sent[key] = wandb.Histogram(np_histogram=data[key])
        self.run.log(sent, step=data.get("iter"))

    def finalize(self) -> None:
        if self.run is None:
            return
        try:
            self.log_model()
        finally:
            self.run.finish()
            self.run = None

    def load(self) -> None:
        pass

    def log_model(self) -> None:
        """Sends the files of the model, if the experiment says so."""
        if not self.wandb_log_model or self.save_model_dir is None:
            return
        names = get_file_names_in_directory(self.save_model_dir)
        if names is None:
            warnings.warn(f"there is no model in {self.save_model_dir}", stacklevel=2)
            return
        artifact = wandb.Artifact(name=self.model_name, type="model")
        for name in names:
            artifact.add_file(os.path.join(self.save_model_dir, name))
        self.run.log_artifact(artifact, aliases=["latest", f"finished-rep-{self.rep}"])

    def log_plot(
        self,
        x: Iterable[Any],
        y: Iterable[Any],
        column_names: Sequence[str] = ("x", "y"),
        plot_id: str = "plot",
        title: str = "Plot",
    ) -> None:
        """Sends a line through these points."""
        points = [list(point) for point in zip(x, y)]
        table = wandb.Table(data=points, columns=list(column_names))
        line = wandb.plot.line(table, column_names[0], column_names[1], title=title)
        self.run.log({plot_id: line})

    def log_table(self, data: DataFrame, table_id: str = "table") -> None:
        """Sends a table of pandas."""
        self.run.log({table_id: wandb.Table(dataframe=data)})


def _without_statistics() -> Any:
    """Settings without measurements of the machine, which newer versions call otherwise."""
    try:
        return wandb.Settings(x_disable_stats=True)
    except Exception:
        return wandb.Settings(_disable_stats=True)
