"""What users write passes `mypy --strict`, and so does the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs

USER = '''
import packhorse
from packhorse.gpu_task_scheduler.config_manager import ConfigManager
from packhorse.gpu_task_scheduler.gpu_task import GPUTask
from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler


def train(lr: float, bs: int = 32) -> float:
    packhorse.log(loss=0.1, step=3)
    return lr * bs


class MyTask(GPUTask):
    def required_env(self) -> dict[str, str]:
        return {"A": "b"}

    def main(self) -> None:
        print(self._config["lr"], self._work_dir)


with packhorse.Executor(gpus=0.5, vram="auto", retries=1, preload=["torch"]) as pool:
    futures = [pool.submit(train, lr=lr, bs=bs) for lr, bs in packhorse.grid(lr=[.1], bs=[32])]
    for future in packhorse.as_completed(futures):
        loss: float = future.result()
        gpu: str | None = future.gpu
        peak: int | None = future.peak_vram
    done, not_done = packhorse.wait(futures)
    losses: list[float] = list(pool.map(train, [0.1, 0.2], chunksize=2))
run = packhorse.run(["true", packhorse.Task(["a"], vram="9G", env={"A": "b"})], devices=[0, 1])
for event in run:
    print(event["event"])
status: int = run.wait()
outcomes: list[str | None] = [result.outcome for result in run.results]
scheduler = GPUTaskScheduler(config={"scheduler_config": {"gpu": ["0"]}}, gpu_task_class=MyTask)
failed: int = len(scheduler.start().failed)
left: int = ConfigManager({}).get_num_left_config()
'''
EXPERIMENT = '''
from typing import Any

import packhorse
from packhorse.cw2 import cluster_work, cw_error, experiment, job, scheduler
from packhorse.cw2.cw_config import conf_unfolder, cw_config
from packhorse.cw2.cw_data import cw_logging
from packhorse.cw2.cw_data.cw_loading import Loader
from packhorse.cw2.cw_data.cw_pd_logger import PandasLogger


class MyExperiment(experiment.AbstractIterativeExperiment):
    def initialize(
        self, cw_config: dict[str, Any], rep: int, logger: cw_logging.LoggerArray
    ) -> None:
        packhorse.assign_process_to_cpu(0, cw_config["cpu_cores"])

    def iterate(self, cw_config: dict[str, Any], rep: int, n: int) -> dict[str, Any]:
        raise cw_error.ExperimentSurrender({"n": n})

    def save_state(self, cw_config: dict[str, Any], rep: int, n: int) -> None:
        pass

    def finalize(
        self, surrender: cw_error.ExperimentSurrender | None = None, crash: bool = False
    ) -> None:
        pass


class MyScheduler(scheduler.AbstractScheduler):
    def run(self, overwrite: bool = False) -> None:
        for one in self.joblist:
            for config in one.tasks:
                one.run_task(config, overwrite)


class MyLocal(scheduler.LocalScheduler):
    def execute_task(self, j: job.Job, c: dict[str, Any], overwrite: bool = False) -> None:
        super().execute_task(j, c, overwrite)


cw = cluster_work.ClusterWork(MyExperiment)
cw.add_logger(PandasLogger(ignore_keys=["ts"]))
cw.add_logger(cw_logging.Printer())
status: int = cw.run(root_dir="", sch=MyScheduler()).exit_status
cw.run(sch=MyLocal(cw.config))
print(cw.load().cw2.flatten_pd_log())
runs: list[dict[str, Any]] = conf_unfolder.expand_experiments([{"name": "e"}], False, False)
configs: list[dict[str, Any]] = cw_config.Config("config.yml", ["e"]).exp_configs
cw_logging.getLogger().info("said")
'''
WRONG_EXPERIMENT = [
    "cluster_work.ClusterWork(int)",
    "cw.add_logger(1)",
    "cw.run(sch=3)",
    "class Wrong(cw_logging.Printer):\n    def process(self, data: int) -> None: ...",
]
WRONG = [
    "pool.submit(train)",
    'pool.submit(train, "x")',
    "text: str = pool.submit(train, 0.1).result()",
    "packhorse.Executor(retry=1)",
    'packhorse.Executor(place="near")',
    'packhorse.Task("a", vrma="9G")',
]


def mypy(*words: str) -> subprocess.CompletedProcess[str]:
    needs("python")
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "/dev/null", *words],
        capture_output=True,
        text=True,
    )


def test_a_users_program_passes_and_mistakes_do_not() -> None:
    right = USER.count("\n")
    Path("user.py").write_text(USER + "\n".join(WRONG) + "\n")
    done = mypy("user.py")
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == set(range(right + 1, right + 1 + len(WRONG))), done.stdout


def test_a_users_experiment_passes_and_mistakes_do_not() -> None:
    right = EXPERIMENT.count("\n")
    Path("user.py").write_text(EXPERIMENT + "\n".join(WRONG_EXPERIMENT) + "\n")
    done = mypy("user.py")
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == {right + 1, right + 2, right + 3, right + 5}, done.stdout


def test_the_package_passes() -> None:
    done = mypy("-p", "packhorse")
    assert done.returncode == 0, done.stdout
