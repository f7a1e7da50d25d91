"""Each test has a state folder and a working folder of its own, and no GPU driver."""

from __future__ import annotations

import importlib.util
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


def needs(part: str, missing: str | None = None) -> None:
    """Fails the test where a part of the machine is missing, as those in Rust do; the variable
    PACKHORSE_SKIP names the parts whose tests are left out."""
    skip = [name.strip() for name in os.environ.get("PACKHORSE_SKIP", "").split(",")]
    if part in skip or "all" in skip:
        assert os.environ.get("CI") != "true", "with CI=true no test is left out"
        if record := os.environ.get("PACKHORSE_SKIPPED"):
            test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
            with open(record, "a") as file:
                file.write(f"{part} python3.{sys.version_info[1]} {test}\n")
        pytest.skip(f"PACKHORSE_SKIP names {part}")
    if missing := missing or _missing(part):
        pytest.fail(
            f"this test needs {part}: {missing}\n  "
            f"hint: `cargo xtask test` installs it; PACKHORSE_SKIP={part} leaves such tests out",
            pytrace=False,
        )


def _missing(part: str) -> str | None:
    """What of a part is missing here."""
    if part == "python":
        for module in ("cloudpickle", "mypy", "numpy", "pandas"):
            if importlib.util.find_spec(module) is None:
                return f"no {module}"
    if part == "cores" and len(os.sched_getaffinity(0)) < 2:
        return "there is only one core"
    return None


def built(program: str) -> Path:
    """Something that cargo has built for tests."""
    file = Path(os.environ.get("PACKHORSE_TEST_BUILT", ""), program)
    if not file.is_file():
        pytest.fail(f"no {program}: `cargo xtask test --python` builds it", pytrace=False)
    return file


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
    """A real Slurm."""
    needs("slurm")
    return Cluster(built("slurm-lab"))


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
