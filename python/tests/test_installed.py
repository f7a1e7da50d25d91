"""The programs that are installed with the package."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import packhorse
import pytest
from conftest import PATIENCE, needs

SCRIPTS = Path(sysconfig.get_path("scripts"))


def _why_not() -> str | None:
    """Why there is nothing to test here."""
    packages = Path(packhorse.__file__).parents[1]
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    if packages.resolve() not in installed:
        return f"the package is not installed, but found in {packages}"
    try:
        metadata.distribution("packhorse")
    except metadata.PackageNotFoundError:
        return "the package was not installed from a wheel"
    if "PACKHORSE_BINARY" in os.environ:
        return "PACKHORSE_BINARY names another program"
    return None


@pytest.fixture(autouse=True)
def _installed() -> None:
    needs("python", _why_not())


def test_the_program_is_the_native_one_beside_python() -> None:
    program = SCRIPTS / "packhorse"
    with program.open("rb") as file:
        assert file.read(4) == b"\x7fELF", "a script would start Python before each command"
    assert os.path.samefile(packhorse.binary(), program)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE)
    assert said.stdout == f"packhorse {packhorse.__version__}\n", said


def test_the_package_is_whole_and_has_nothing_else_in_it() -> None:
    files = metadata.files("packhorse")
    assert files is not None
    names = {str(file) for file in files if "__pycache__" not in str(file)}
    info = {name for name in names if ".dist-info/" in name}
    # pip adds to it what it knows of the installation.
    kinds = {name.rpartition("/")[2] for name in info}
    assert {"METADATA", "WHEEL", "RECORD"} <= kinds, kinds
    programs = {name for name in names if name.startswith("../")}
    assert {name.rpartition("/")[2] for name in programs} == {
        "packhorse",
        "simple_gpu_scheduler",
        "simple_hypersearch",
    }
    source = Path(__file__).parents[1] / "packhorse"
    modules = {f"packhorse/{path.relative_to(source)}" for path in source.rglob("*.py")}
    assert names - info - programs == modules | {"packhorse/py.typed"}
    [wheel] = [file for file in files if file.name == "WHEEL"]
    tags = [line for line in wheel.read_text().splitlines() if line.startswith("Tag: ")]
    # Any Python, but only this kind of machine.
    assert tags and all(tag.startswith("Tag: py3-none-") and "linux" in tag for tag in tags), tags


def test_simple_gpu_scheduler_runs_commands_on_the_gpus_it_is_given() -> None:
    done = subprocess.run(
        [SCRIPTS / "simple_gpu_scheduler", "--gpus", "0", "1"],
        input="echo $CUDA_VISIBLE_DEVICES > one\necho $CUDA_VISIBLE_DEVICES > two\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done
    assert {Path(name).read_text() for name in ("one", "two")} <= {"0\n", "1\n"}


def test_simple_hypersearch_prints_every_combination() -> None:
    done = subprocess.run(
        [SCRIPTS / "simple_hypersearch", "train {lr} {bs}", "-p", "lr", "1", "2", "-p", "bs", "3"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == ["train 1 3", "train 2 3"]


def test_the_package_that_runs_is_of_this_python() -> None:
    assert metadata.version("packhorse") == packhorse.__version__
    assert Path(sys.prefix) in SCRIPTS.parents
