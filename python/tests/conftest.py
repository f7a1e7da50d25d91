"""Each test has a state folder and a working folder of its own, and no GPU driver."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Nothing here takes long; what does, hangs.
PATIENCE = 60
#: How the program ends that starts a Slurm where it cannot.
NOT_HERE = 77


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the test works in."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PACKHORSE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PACKHORSE_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("PACKHORSE_NVML_LIBRARY", "none")
    monkeypatch.setenv("PACKHORSE_STORE_PATIENCE", "1h")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield work


class Script:
    """A Python program of its own."""

    def __init__(self, text: str, *words: str, name: str = "script.py", module: str = "") -> None:
        Path(name).write_text(textwrap.dedent(text))
        self.command = [sys.executable, *(["-m", module] if module else []), name, *words]

    def run(self, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command, capture_output=True, text=True, timeout=PATIENCE, **options
        )

    def start(self, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )


class Cluster:
    """A Slurm cluster of its own for each program that is run in it."""

    def __init__(self, lab: Path) -> None:
        # Its own folder must be open to everybody, which those of tests are not.
        self.lab = ["env", "-u", "TMPDIR", str(lab)]

    def inside(self, script: Script, *options: str) -> Script:
        """The same program on the cluster."""
        folder = f"TMPDIR={os.environ['TMPDIR']}"
        script.command = [*self.lab, *options, "env", folder, *script.command]
        return script


@pytest.fixture
def cluster() -> Cluster:
    """A real Slurm; the test is left out where there can be none."""
    lab = Path(os.environ.get("PACKHORSE_TEST_BUILT", ""), "slurm-lab")
    if not lab.is_file():
        pytest.skip("`cargo xtask test` builds the program that starts a Slurm")
    cluster = Cluster(lab)
    tried = subprocess.run([*cluster.lab, "true"], capture_output=True, timeout=PATIENCE)
    if tried.returncode == NOT_HERE:
        pytest.skip("this machine cannot start a Slurm")
    return cluster


def wait_for_end(pid: int) -> None:
    """Waits for the end of any process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with open(handle, "rb", buffering=0):
        ready, _, _ = select.select([handle], [], [], PATIENCE)
        assert ready, f"process {pid} is still there"


def hear(pipe: str) -> str:
    """What somebody writes into a named pipe."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor) as file:
        # Before anybody has opened it for writing, it is not at its end but empty.
        ready, _, _ = select.select([file], [], [], PATIENCE)
        assert ready, f"nobody has written into {pipe}"
        os.set_blocking(descriptor, True)
        return file.read()


def is_alive(pid: int) -> bool:
    """Whether it is there. One that has ended and was not waited for is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return not stat.rpartition(")")[2].startswith(" Z")


def packhorse(*words: str) -> str:
    """What the program prints."""
    import packhorse as package

    done = subprocess.run(
        [package.binary(), *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + done.stderr
