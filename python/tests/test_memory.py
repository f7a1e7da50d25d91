"""GPU memory, on a pretended machine with two GPUs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import functions as f
import packhorse
import pytest
from conftest import Script, built


@pytest.fixture
def cuda(world: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program that takes memory on that machine."""
    program = built("fake-cuda")
    shutil.copytree(os.environ["PACKHORSE_TEST_MACHINE"], world.parent / "machine")
    monkeypatch.setenv("FAKE_NVML_STATE", str(world.parent / "machine"))
    monkeypatch.setenv("PACKHORSE_NVML_LIBRARY", str(built("libpackhorse_fake_nvml.so")))
    return str(program)


def test_out_of_memory_is_tried_again_with_more_and_the_peak_is_told(cuda: str) -> None:
    with packhorse.Executor(vram="1G") as pool:
        assert isinstance(pool, packhorse.Executor)
        # No retries: this is the ladder of those who ran out of memory.
        future = pool.submit(f.out_of_memory_once)
        assert future.result() == "2" and future.attempts == 2
        taken = pool.submit(f.call_program, [cuda, "--peak", "700M", "--hold-looks", "3"])
        assert taken.result() == 0
    assert taken.peak_vram == 700 << 20
    assert taken.gpu in ("0", "1")


def test_memory_is_remembered_by_the_function(cuda: str) -> None:
    from conftest import packhorse as program

    with packhorse.Executor(vram="auto", devices=[0]) as pool:
        pool.submit(f.call_program, [cuda, "--peak", "300M", "--hold-looks", "3"]).result()
    assert "functions.call_program" in program("peaks")


def test_a_grid_may_ask_for_memory(cuda: str) -> None:
    done = Script(
        f"""
        import os, subprocess
        from packhorse.gpu_task_scheduler.gpu_task import GPUTask
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

        class Test(GPUTask):
            def main(self):
                print("sees", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
                subprocess.run([{cuda!r}, "--peak", "100M", "--hold-looks", "2"], check=True)

        if __name__ == "__main__":
            for gpus in (["0", "1"], [["0", "1"]]):
                config = {{
                    "scheduler_config": {{"gpu": gpus, "force_rerun": True}},
                    "test_config": [{{"n": [1, 2, 3]}}],
                    "request": {{"vram": "1G"}},
                }}
                report = GPUTaskScheduler(config, Test).start()
                assert not report.failed and report.succeeded == 3
        """
    ).run()
    assert done.returncode == 0, done.stdout + done.stderr
    # Groups are known by their place, however events write them.
    last = done.stdout.splitlines()[-1]
    assert last.endswith("gpu0 finished"), done.stdout
    assert {path.read_text().splitlines()[0] for path in Path("results").rglob("worker.log")} == {
        "sees 0,1"
    }
