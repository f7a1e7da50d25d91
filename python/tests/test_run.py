"""Commands, tasks, grids of parameters, and what tasks can say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import packhorse
import pytest
from conftest import Script


def test_a_run_tells_its_events_and_results() -> None:
    with packhorse.run(
        ["echo one", packhorse.Task(["sh", "-c", "exit 3"], retries=1, env={"A": "b"})],
        devices="0,1",
    ) as run:
        kinds = [event["event"] for event in run]
    assert kinds[0] == "run-started" and kinds[-1] == "run-ended" and "retrying" in kinds
    assert (run.id, run.exit, run.wait()) == (1, 1, 1)
    first, second = run.results
    assert first.succeeded and first.gpus[0] in "01" and first.command == "echo one"
    assert first.log is not None and Path(first.log).read_text() == "one\n"
    assert (second.outcome, second.detail, second.attempts) == ("failed", 3, 2)
    assert run.failed == [second]


def test_wrong_tasks_are_refused_before_anything_starts() -> None:
    with pytest.raises(packhorse.PackhorseError, match="9X"):
        packhorse.run(["touch ran", packhorse.Task("true", vram="9X")], slots=1)
    with pytest.raises(TypeError, match="list of commands"):
        packhorse.run("echo one")
    with pytest.raises(ValueError, match="at least the name"):
        packhorse.run([[]], slots=1)
    assert not Path("ran").exists()


@pytest.mark.parametrize("end", ["stop", "wait"])
def test_a_run_may_be_ended_while_its_events_are_read(end: str) -> None:
    commands = ["true", "true"] if end == "wait" else ["true", "exec cat never"]
    os.mkfifo("never")
    run = packhorse.run(commands, devices="0,1")
    kinds = []
    for event in run:
        kinds.append(event["event"])
        if event["event"] == "finished":
            getattr(run, end)()
    assert kinds.count("finished") == 1
    assert run.exit == (0 if end == "wait" else run.wait()) and run.exit is not None
    assert list(run) == []
    if end == "stop":
        assert run.results[1].outcome == "interrupted"


def test_an_interpreter_that_ends_waits_for_its_run() -> None:
    done = Script('import packhorse; packhorse.run(["sleep 0.1; touch ran"], slots=1)').run()
    assert done.returncode == 0, done.stderr
    assert Path("ran").exists()


def test_a_task_takes_every_key_that_a_task_line_has() -> None:
    schema = json.loads((Path(__file__).parents[2] / "docs/schema/task.json").read_text())
    known = set(schema["properties"]) - {"model"}
    values = {
        "after": ["a"], "env": {"A": "b"}, "params": {"lr": 0.1}, "preload": ["numpy"],
        "folder": "f", "results": "r", "log": "l", "name": "n", "command": "true",
    }  # fmt: skip
    import inspect

    taken = set(inspect.signature(packhorse.Task).parameters)
    assert taken == known
    spec = packhorse.Task(**{key: values.get(key, 1) for key in taken}).spec()
    assert set(spec) == taken


def test_options_are_those_of_the_program() -> None:
    from packhorse._options import RunOptions, arguments

    help = subprocess.run(
        [packhorse.binary(), "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    values = {
        "env": {"A": "b"},
        "leases": False,
        "thread_caps": False,
        "mps": True,
        "devices": [0, [1, 2]],
    }
    for name in RunOptions.__annotations__:
        for word in arguments({name: values.get(name, "1"), "engine": "slurm"}):
            option = word.partition("=")[0]
            if option.startswith("--"):
                assert f"{option} " in help or f"{option}\n" in help or f"{option}[" in help, option
    assert arguments({"engine": "slurm", "time": 90, "sbatch": ["-x", "--y=z"]}) == [
        "--slurm", "--wait", "--time=90", "--sbatch=-x", "--sbatch=--y=z"
    ]  # fmt: skip
    assert arguments({"devices": [0, [1, 2]]}) == ["--gpus", "0", "1+2"]
    assert arguments({"timeout": 1.5, "grace": "2m"}) == ["--timeout=1.5s", "--grace=2m"]


def test_bytes_that_are_no_text_reach_a_command() -> None:
    name = b"caf\xe9 'x'\\"
    run = packhorse.run([packhorse.Task([b"touch", name])], slots=1)
    assert run.wait() == 0
    assert [path.name.encode(errors="surrogateescape") for path in Path(".").iterdir()] == [name]


def test_grid_gives_every_combination_in_order() -> None:
    points = list(packhorse.grid(lr=[0.1, 0.01], bs=[32, 64]))
    assert points == [(0.1, 32), (0.1, 64), (0.01, 32), (0.01, 64)]
    assert points[1].lr == 0.1 and points[1]._asdict() == {"lr": 0.1, "bs": 64}
    assert [lr for lr, _ in packhorse.grid(lr=[1], bs="text")] == [1]
    assert list(packhorse.grid()) == [()]
    with pytest.raises(AttributeError):
        packhorse.nothing


def test_log_prints_one_line_for_packhorse() -> None:
    done = Script(
        """
        import packhorse, os
        print("before", end="\\n")
        packhorse.log(loss=0.5, step=3)
        packhorse.log(loss=float("nan"), other=1)
        packhorse.log(loss=float("inf"))
        try:
            packhorse.log(loss="high")
        except TypeError as error:
            print(error)
        print(packhorse.params(), packhorse.results_dir() == os.getcwd())
        """
    ).run()
    assert done.stdout.splitlines() == [
        "before",
        'packhorse: {"loss": 0.5, "step": 3}',
        'packhorse: {"loss": NaN, "other": 1}',
        'packhorse: {"loss": Infinity}',
        "loss='high' is no number",
        "{} True",
    ], done.stderr


def test_a_task_finds_its_parameters_and_folder() -> None:
    code = "import packhorse; print(packhorse.params(), packhorse.results_dir())"
    task = packhorse.Task([sys.executable, "-c", code], params={"lr": 0.1}, results="out")
    run = packhorse.run([task], slots=1)
    assert run.wait() == 0
    log = run.results[0].log
    assert log is not None and Path(log).read_text() == "{'lr': 0.1} out\n"


def test_the_package_and_the_program_are_of_one_version() -> None:
    words = [packhorse.binary(), "--version"]
    version = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert version == f"packhorse {packhorse.__version__}\n"


def test_importing_the_package_imports_little() -> None:
    code = "import sys; before = set(sys.modules); import packhorse; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert not {"subprocess", "concurrent.futures", "json", "threading"} & set(done.stdout.split())


def test_what_a_task_logs_is_in_events_and_results() -> None:
    code = "import packhorse; [packhorse.log(loss=x, step=n) for n, x in enumerate([3, 1, 2])]"
    run = packhorse.run([packhorse.Task([sys.executable, "-c", code], params={"lr": 1})], slots=1)
    metrics = [event for event in run if event["event"] == "metrics"]
    assert [(event["values"], event["step"]) for event in metrics] == [
        ({"loss": 3}, 0),
        ({"loss": 1}, 1),
        ({"loss": 2}, 2),
    ]
    printed = subprocess.run(
        [packhorse.binary(), "results", "--json"], capture_output=True, text=True, check=True
    ).stdout
    assert '"lowest":1' in printed.replace(" ", "").replace("1.0", "1"), printed
