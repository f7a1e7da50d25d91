"""What happens in the process of a repetition: it is told which one it is, and runs it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Script

EXPERIMENT = """
    import json, os, sys
    from packhorse.cw2 import cluster_work, cw_error, experiment, scheduler
    from packhorse.cw2.cw_data import cw_logging

    class Told(experiment.AbstractExperiment):
        def initialize(self, cw_config, rep, logger):
            self.config = cw_config

        def run(self, cw_config, rep, logger):
            exec(cw_config["params"].get("do", ""))

        def finalize(self, surrender=None, crash=False):
            payload = surrender.payload if surrender else None
            print("finalize", payload, crash, flush=True)
            exec(self.config["params"].get("finally", ""))

    class Steps(experiment.AbstractIterativeExperiment):
        def initialize(self, cw_config, rep, logger):
            self.saved = []

        def iterate(self, cw_config, rep, n):
            if n == cw_config["params"].get("stop"):
                raise cw_error.ExperimentSurrender({"last": n})
            return {"n": n}

        def save_state(self, cw_config, rep, n):
            self.saved.append(n)

        def finalize(self, surrender=None, crash=False):
            print("finalize", surrender and surrender.payload["last"], crash, self.saved)

    class Own(scheduler.AbstractScheduler):
        def run(self, overwrite=False):
            print("own", len(self.joblist), len(self.joblist[0].tasks), overwrite)
            for job in self.joblist:
                for config in job.tasks:
                    job.run_task(config, overwrite)

"""


def repetition(
    *lines: str, params: dict[str, Any] | None = None, env: dict[str, str] | None = None,
    words: tuple[str, ...] = ("config.yml",), by_hand: bool = False, **config: Any,
) -> tuple[Script, dict[str, Any]]:  # fmt: skip
    """A script that ends in these lines, and how it is started as a repetition."""
    text = EXPERIMENT + "".join(f"    {line}\n" for line in lines or (RUN,))
    Path("log/rep_01").mkdir(parents=True)
    about = {"_rep_idx": 1, "_rep_log_path": "log/rep_01", "name": "e", "params": params or {}, **config}
    told = {
        "PACKHORSE_EXPERIMENT": json.dumps(about),
        **({} if by_hand else {"PACKHORSE_CW2": "1"}),
        **(env or {}),
    }
    label = () if by_hand else ("log/rep_01",)
    return Script(text, *label, *words), {"env": {**os.environ, **told}}


RUN = "cluster_work.ClusterWork(Told).run(); print('after')"


def test_the_configuration_is_what_packhorse_was_told() -> None:
    do = "print(json.dumps({**cw_config, 'cpu_cores': sorted(cw_config['cpu_cores'])}), rep)"
    script, options = repetition(
        params={"do": do, "net": {"lr": 1e-3}},
        env={"PACKHORSE_CPU_CORES": "0,2-4"},
        iterations=5,
        _debug=False,
    )
    done = script.run(**options)
    assert done.returncode == 0, done.stdout + done.stderr
    folder, config, last = done.stdout.splitlines()
    assert (folder, last) == ("log/rep_01", "finalize None False")
    assert json.loads(config.rpartition(" ")[0]) == {
        "_rep_idx": 1, "_rep_log_path": "log/rep_01", "name": "e", "iterations": 5,
        "_debug": False, "params": {"do": do, "net": {"lr": 0.001}}, "cpu_cores": [0, 2, 3, 4],
    }  # fmt: skip
    assert config.endswith(" 1")


def test_without_cores_of_its_own_there_are_none_in_the_configuration() -> None:
    script, options = repetition(params={"do": "print(type(cw_config.get('cpu_cores')))"})
    assert "<class 'NoneType'>" in script.run(**options).stdout
    # A set, whichever of the names tells it.
    options["env"]["PACKHORSE_CORES"] = "1"
    assert "<class 'set'>" in script.run(**options).stdout


def test_an_exception_is_logged_with_its_trace_and_the_exit_status_tells() -> None:
    script, options = repetition(params={"do": "1 / 0"})
    done = script.run(**options)
    assert done.returncode == 1, done.stderr
    assert "after" not in done.stdout and "finalize None True" in done.stdout
    for log in (done.stdout, Path("log/rep_01/err.log").read_text()):
        assert "[ERROR] EXCEPTION: log/rep_01\nTraceback" in log
        assert "ZeroDivisionError: division by zero" in log


def test_giving_up_is_no_failure() -> None:
    script, options = repetition(
        params={"do": "raise cw_error.ExperimentSurrender({'why': 'enough'})"}
    )
    done = script.run(**options)
    assert done.returncode == 0, done.stderr
    assert "finalize {'why': 'enough'} False" in done.stdout
    assert "[WARNING] SURRENDER: log/rep_01" in Path("log/rep_01/out.log").read_text()


@pytest.mark.parametrize(("stop", "end"), [(None, "None False [0, 1, 2]"), (1, "1 False [0, 1]")])
def test_iterations_are_logged_and_saved_up_to_the_last(stop: int | None, end: str) -> None:
    script, options = repetition(
        "cw = cluster_work.ClusterWork(Steps)",
        "cw.add_logger(cw_logging.Printer(ignore_keys=['ts']))",
        "cw.run()",
        params={"stop": stop},
        iterations=3,
    )
    done = script.run(**options)
    assert done.returncode == 0, done.stderr
    results = [f"{{'iter': {n}, 'n': {n}, 'rep': 1}}" for n in range(3)]
    if stop is not None:
        results = [results[0], "{'iter': 1, 'last': 1, 'rep': 1}"]
    told = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    assert told == ["log/rep_01", *results, f"finalize {end}"]


@pytest.mark.parametrize(("code", "status"), [("3", 3), ("0", 1), ("'text'", 1)])
def test_leaving_before_the_end_is_a_failure(code: str, status: int) -> None:
    script, options = repetition(params={"do": f"sys.exit({code})"})
    done = script.run(**options)
    assert done.returncode == status and "finalize None True" in done.stdout, done.stderr


def test_an_exception_in_finalize_is_a_failure_and_loggers_are_closed() -> None:
    script, options = repetition(
        "class Closing(cw_logging.Printer):",
        "    def finalize(self): print('closed')",
        "cw = cluster_work.ClusterWork(Told)",
        "cw.add_logger(Closing())",
        "cw.run()",
        params={"finally": "raise OSError('full')"},
    )
    done = script.run(**options)
    assert done.returncode == 1 and done.stdout.endswith("closed\n"), done.stderr
    assert "OSError: full" in Path("log/rep_01/err.log").read_text()


def test_a_repetition_that_is_ended_can_clean_up() -> None:
    script, options = repetition(params={"do": "import signal; signal.raise_signal(15)"})
    done = script.run(**options)
    assert "finalize None True" in done.stdout, done.stderr
    assert done.returncode == -signal.SIGTERM


def test_a_repetition_that_cleans_up_is_not_interrupted() -> None:
    again = "import signal; signal.raise_signal(15); print('cleaned up', flush=True)"
    script, options = repetition(params={"do": "1 / 0", "finally": again})
    done = script.run(**options)
    assert "finalize None True\ncleaned up" in done.stdout, done.stderr
    assert done.returncode == -signal.SIGTERM


def test_forked_children_of_an_experiment_end_as_ever() -> None:
    do = (
        "import signal\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    signal.raise_signal(15)\n"
        "print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    script, options = repetition(params={"do": do})
    done = script.run(**options)
    assert done.returncode == 0 and "child -15" in done.stdout, done.stderr
    assert done.stdout.count("finalize") == 1


def test_a_repetition_belongs_to_one_call_of_run() -> None:
    script, options = repetition(
        "first = cluster_work.ClusterWork(Steps).run()",
        "print('first', first.exit_status)",
        "cluster_work.ClusterWork(Told).run()",
        env={"PACKHORSE_CW2": "2"},
        iterations=1,
    )
    done = script.run(**options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "first 0\nlog/rep_01\nfinalize None False\n"


def test_a_scheduler_of_ones_own_is_given_the_repetition() -> None:
    script, options = repetition("cluster_work.ClusterWork(Told).run(sch=Own())")
    Path("log/rep_01/.packhorse.json").write_text('{"outcome": "running"}')
    done = script.run(**options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "own 1 1 True\nlog/rep_01\nfinalize None False\n"
    about = json.loads(options["env"]["PACKHORSE_EXPERIMENT"])
    options["env"]["PACKHORSE_EXPERIMENT"] = json.dumps({**about, "params": {"do": "1 / 0"}})
    assert script.run(**options).returncode == 1


def test_what_an_experiment_starts_is_no_repetition() -> None:
    inner = [sys.executable, "-c", "import os; print([k for k in os.environ if 'EXPERIMENT' in k or 'CW2' in k])"]
    script, options = repetition(params={"do": f"import subprocess; subprocess.run({inner!r})"})
    assert "\n[]\n" in script.run(**options).stdout


def test_a_script_is_a_repetition_of_packhorse_exp_by_hand() -> None:
    """``packhorse exp config.yml -- python script.py`` adds parameters as arguments."""
    words = ("--lr", "0.1", "--job", "no number")
    script, options = repetition(words=words, by_hand=True)
    done = script.run(**options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "log/rep_01\nfinalize None False\n"


def test_no_files_are_written_without_the_console_log() -> None:
    script, options = repetition(words=("config.yml", "--noconsolelog"), params={"do": "1 / 0"})
    done = script.run(**options)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stdout
    assert list(Path("log/rep_01").iterdir()) == []
