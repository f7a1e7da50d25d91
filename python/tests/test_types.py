"""What users write passes `mypy --strict`, and so does the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
WRONG = [
    "pool.submit(train)",
    'pool.submit(train, "x")',
    "text: str = pool.submit(train, 0.1).result()",
    "packhorse.Executor(retry=1)",
    'packhorse.Executor(place="near")',
    'packhorse.Task("a", vrma="9G")',
]


def mypy(*words: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
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


def test_the_package_passes() -> None:
    done = mypy("-p", "packhorse")
    assert done.returncode == 0, done.stdout
