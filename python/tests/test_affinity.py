"""Processes on cores of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import packhorse
import pytest
from conftest import needs

CORES = sorted(os.sched_getaffinity(0))
THREADS = """
import sys, threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def two_cores() -> None:
    needs("cores")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """One with four threads."""
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        yield started
        started.communicate()


@pytest.mark.usefixtures("two_cores")
def test_all_threads_of_a_process_are_moved(process: subprocess.Popen[str]) -> None:
    packhorse.assign_process_to_cpu(process.pid, {CORES[-1]})
    threads = os.listdir(f"/proc/{process.pid}/task")
    assert len(threads) == 4
    assert [os.sched_getaffinity(int(thread)) for thread in threads] == [{CORES[-1]}] * 4


@pytest.mark.usefixtures("two_cores")
def test_the_recipe_of_cw2_gives_each_environment_cores_of_its_own() -> None:
    from packhorse.cw2 import util

    children = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        for _ in range(2)
    ]
    cw_config = {"cpu_cores": set(CORES)}
    env_pids = [child.pid for child in children]
    cores_per_env = len(cw_config["cpu_cores"]) // 2
    cpu_cores_list = list(cw_config["cpu_cores"])
    for i, pid in enumerate(env_pids):
        cores_env = cpu_cores_list[i * cores_per_env : (i + 1) * cores_per_env]
        util.assign_process_to_cpu(pid, set(cores_env))
    found = [os.sched_getaffinity(pid) for pid in env_pids]
    for child in children:
        child.communicate(b"\n")
    assert found[0] and found[1] and not found[0] & found[1]


def test_a_process_that_is_gone_and_cores_that_are_not_there_are_errors() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(ProcessLookupError, match=f"no process {ended.pid}"):
        packhorse.assign_process_to_cpu(ended.pid, {CORES[0]})
    before = os.sched_getaffinity(0)
    for cores in (set[int](), {-1}, {100_000}):
        with pytest.raises(ValueError, match="core"):
            packhorse.assign_process_to_cpu(0, cores)
    assert os.sched_getaffinity(0) == before
    packhorse.assign_process_to_cpu(0, before)
