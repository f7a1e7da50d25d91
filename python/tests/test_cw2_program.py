"""Programs for cw2 as their users meet them: with the import paths changed, and unmodified."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import PATIENCE, Script, hear, is_alive, packhorse, wait_for_end

FILE = """\
---
name: DEFAULT
path: out
repetitions: 2
iterations: 3
params:
  net: {depth: 2}
---
name: tried
grid:
  lr: [0.1, 0.2]
---
name: plain
params: {lr: 0.3}
"""
#: The original's own names.
SCRIPT = """\
import json
import os
import sys

from cw2 import cluster_work, cw_error, experiment
from cw2.cw_data import cw_logging


class Training(experiment.AbstractIterativeExperiment):
    def initialize(self, cw_config, rep, logger):
        self.config = cw_config
        self.loss = cw_config["params"]["lr"]
        cw_logging.getLogger().info(f"begins with {self.loss}")

    def iterate(self, cw_config, rep, n):
        do = os.environ.get("DO_" + str(cw_config["params"]["lr"]).replace(".", ""))
        if do and rep == 1:
            exec(do)
        self.loss /= 2
        return {"loss": self.loss}

    def save_state(self, cw_config, rep, n):
        with open(os.path.join(cw_config["_rep_log_path"], "config.json"), "w") as file:
            json.dump({**cw_config, "cpu_cores": sorted(cw_config.get("cpu_cores", ()))}, file)

    def finalize(self, surrender=None, crash=False):
        with open(os.path.join(self.config["_rep_log_path"], "ended"), "a") as file:
            file.write(f"{self.loss} {crash}\\n")


if __name__ == "__main__":
    print("begins", sys.argv[1:], flush=True)
    cw = cluster_work.ClusterWork(Training)
    cw.add_logger(cw_logging.Printer(allow_keys=["loss"]))
    cw.run()
    print("after", flush=True)
"""


def program(*words: str, modified: bool = True, script: str = SCRIPT) -> Script:
    """A program for these files, and how it is started."""
    Path("config.yml").write_text(FILE)
    if modified:
        script = script.replace("from cw2", "from packhorse.cw2")
    module = "" if modified else "packhorse"
    return Script(script, "config.yml", *words, name="my_main.py", module=module)


def ended() -> dict[str, str]:
    """What each repetition wrote at its end, by its folder."""
    paths = Path("out").glob("**/ended")
    return {str(path.parent)[len("out/") :]: path.read_text() for path in paths}


TRIED = "tried/tried__l0.2/log"
ALL = {
    "tried/tried__l0.1/log/rep_00": "0.0125 False\n",
    "tried/tried__l0.1/log/rep_01": "0.0125 False\n",
    f"{TRIED}/rep_00": "0.025 False\n",
    f"{TRIED}/rep_01": "0.025 False\n",
    "plain/log/rep_00": "0.0375 False\n",
    "plain/log/rep_01": "0.0375 False\n",
}


def test_parameters_are_what_the_file_says() -> None:
    """In its order, and of its kinds, whoever runs the repetition."""
    file = """
        name: e
        path: out
        params:
          layers: {conv: 1, act: [1e-3, yes, ~]}
          sched: {100: 0.1, 20: 0.01}
          most: .inf
          least: -.inf
          none: .nan
          shape: !!python/tuple [1, 2]
          big: 123456789012345678901234567890
          '!tuple': {'!tuple': x}
    """
    script = """
        from packhorse.cw2 import cluster_work, experiment, scheduler

        class Shown(experiment.AbstractExperiment):
            def initialize(self, cw_config, rep, logger):
                pass
            def run(self, cw_config, rep, logger):
                with open("shown", "w") as file:
                    file.write(repr(cw_config["params"]))
            def finalize(self, surrender=None, crash=False):
                pass

        if __name__ == "__main__":
            import sys
            here = "-o" in sys.argv
            cw = cluster_work.ClusterWork(Shown)
            cw.run(sch=scheduler.LocalScheduler() if here else None)
    """
    expected = (
        "{'layers': {'conv': 1, 'act': [0.001, True, None]}, 'sched': {100: 0.1, 20: 0.01}, "
        "'most': inf, 'least': -inf, 'none': nan, 'shape': (1, 2), "
        "'big': 123456789012345678901234567890, '!tuple': {'!tuple': 'x'}}"
    )
    Path("config.yml").write_text(textwrap.dedent(file))
    for words in ([], ["-o"]):
        Path("shown").unlink(missing_ok=True)
        done = Script(script, "config.yml", *words, name="my_main.py").run()
        assert done.returncode == 0, done.stdout + done.stderr
        assert Path("shown").read_text() == expected


def test_parameters_may_be_longer_than_a_variable() -> None:
    numbers = ", ".join(["12345678"] * 20_000)
    # Nothing else about them changes.
    params = 'cw_config["params"]'
    taken = f'({params}["odd"][100] == float("inf")) * float(len({params}["long"]))'
    script = SCRIPT.replace(f'{params}["lr"]', taken, 1).replace(f'{params}["lr"]', '"none"')
    main = program("--slots", "1", script=script)
    text = f"{{name: e, path: out, iterations: 1, params: {{odd: {{100: .inf}}, long: [{numbers}]}}}}\n"
    Path("config.yml").write_text(text)
    done = main.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert ended() == {"e/log/rep_00": "10000.0 False\n"}


@pytest.mark.parametrize("modified", [True, False])
def test_a_program_runs_every_repetition_once(modified: bool) -> None:
    script = program("--slots", "2", modified=modified)
    done = script.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert ended() == ALL
    assert done.stdout.count("begins") == 1 and done.stdout.endswith("after\n")
    folder = Path("out", TRIED, "rep_01")
    assert json.loads((folder / "config.json").read_text()) == {
        "name": "tried", "path": "out/tried/tried__l0.2", "log_path": f"out/{TRIED}",
        "repetitions": 2, "iterations": 3, "params": {"net": {"depth": 2}, "lr": 0.2},
        "_experiment_name": "tried__l0.2", "_basic_path": "out", "_nested_dir": "tried",
        "_rep_idx": 1, "_rep_log_path": str(folder), "_debug": False, "cpu_cores": [],
    }  # fmt: skip
    assert (folder / "out.log").read_text() == "[cw2] [INFO] begins with 0.2\n"
    assert (folder / "err.log").read_text() == ""
    # What it printed is the task's log.
    log = packhorse("logs", "1.6")
    assert log.startswith(f"begins ['config.yml', '--slots', '2']\n{folder}\n"), log
    assert log.endswith("{'loss': 0.1}\n{'loss': 0.05}\n{'loss': 0.025}\n"), log
    again = script.run()
    assert again.returncode == 0 and ended() == ALL, again.stderr
    script.command.append("-o")
    assert script.run().returncode == 0
    assert ended() == {key: value * 2 for key, value in ALL.items()}


def test_one_that_fails_does_not_keep_the_others_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DO_02", "raise ValueError('oh')")
    script = program("--slots", "2")
    done = script.run()
    assert done.returncode == 1 and done.stdout.endswith("after\n"), done.stderr
    assert ended() == {**ALL, f"{TRIED}/rep_01": "0.2 True\n"}
    said = Path("out", TRIED, "rep_01/err.log").read_text()
    assert "EXCEPTION: out/tried/tried__l0.2/log/rep_01\nTraceback" in said
    assert "ValueError: oh" in said and "ValueError: oh" in packhorse("logs", "1.6")
    # It alone runs again.
    monkeypatch.delenv("DO_02")
    again = script.run()
    assert again.returncode == 0, again.stderr
    assert ended() == {**ALL, f"{TRIED}/rep_01": "0.2 True\n0.025 False\n"}


def test_failures_that_somebody_looks_at_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO_02", "os._exit(3)")
    text = SCRIPT.replace("    cw.run()", "    print('status', cw.run().exit_status)")
    done = program("--slots", "2", script=text).run()
    assert done.returncode == 0 and done.stdout.endswith("status 1\nafter\n"), done.stderr


def test_giving_up_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO_02", "raise cw_error.ExperimentSurrender({'loss': 7})")
    done = program("--slots", "2").run()
    assert done.returncode == 0, done.stderr
    assert ended() == {**ALL, f"{TRIED}/rep_01": "0.2 False\n"}
    assert packhorse("logs", "1.6").count("{'loss': 7}") == 1


def test_some_can_be_chosen() -> None:
    assert program("--slots", "1", "-e", "plain", "--debug").run().returncode == 0
    assert ended() == {"plain/log/rep_00": "0.15 False\n"}
    assert program("--slots", "1", "-j", "1").run().returncode == 0
    assert list(ended()) == ["plain/log/rep_00", "plain/log/rep_01"] or len(ended()) == 2


def test_wrong_usage_and_wrong_files_end_the_program_with_2() -> None:
    missing = program("--slots", "1", "-e", "other").run()
    assert missing.returncode == 2 and "there is no experiment `other`" in missing.stderr
    assert "after" not in missing.stdout
    unknown = program("--no-such-option").run()
    assert unknown.returncode == 2 and "--no-such-option" in unknown.stderr
    both = program("-s", "-t").run()
    assert both.returncode == 2 and "does not work with" in both.stderr
    nothing = Script(SCRIPT.replace("from cw2", "from packhorse.cw2"), name="alone.py").run()
    assert nothing.returncode == 2 and "CONFIG.yml" in nothing.stderr
    script = program("-s")
    Path("config.yml").write_text("name: [a\n")
    broken = script.run()
    assert broken.returncode == 2 and broken.stderr.startswith("error: the closing ] is missing")
    assert not Path("out").exists()


def test_options_of_packhorse_can_be_given() -> None:
    done = program("--dry-run").run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("my_main.py out/") == 6
    # People see which one it is, and the script does not.
    assert "my_main.py out/plain/log/rep_01 config.yml --dry-run\n" in done.stdout
    assert not list(Path("out").glob("**/rep_*"))


def test_a_module_is_started_again_as_one() -> None:
    program("--slots", "2")
    Path("package").mkdir()
    Path("my_main.py").rename("package/training.py")
    done = subprocess.run(
        [sys.executable, "-m", "package.training", "config.yml", "--slots", "2"],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0 and ended() == ALL, done.stderr


def test_several_calls_of_run_have_their_own_repetitions() -> None:
    text = SCRIPT.replace(
        "    cw.run()\n",
        "    cw.run()\n"
        "    class Second(Training):\n"
        "        def iterate(self, cw_config, rep, n):\n"
        "            return {'loss': -1}\n"
        "    for config in cw.config.exp_configs:\n"
        "        for key in ('_rep_log_path', '_basic_path'):\n"
        "            config[key] = config[key].replace('out', 'second')\n"
        "    other = cluster_work.ClusterWork(Second)\n"
        "    other.config = cw.config\n"
        "    other.run()\n",
    )
    done = program("--slots", "2", script=text).run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert ended() == ALL
    second = {str(path)[7:-6]: path.read_text() for path in Path("second").glob("**/ended")}
    assert second == {
        folder: f"{lr} False\n"
        for folder, lr in zip(ALL, (0.1, 0.1, 0.2, 0.2, 0.3, 0.3))
    }


def test_all_paths_are_below_the_root() -> None:
    text = SCRIPT.replace("cw.run()", "cw.run(root_dir='root')")
    done = program("--slots", "2", script=text).run()
    assert done.returncode == 0, done.stdout + done.stderr
    found = {str(path)[9:-6]: path.read_text() for path in Path("root/out").glob("**/ended")}
    assert found == ALL and not Path("out").exists()


def test_the_names_of_the_original_are_ours_for_the_script_alone() -> None:
    text = (
        "import os, cw2\n"
        "import cw2.cw_data.cw_logging\n"
        "from cw2.experiment import AbstractExperiment\n"
        "from cw2.cw_config.conf_unfolder import expand_experiments\n"
        "import packhorse.cw2.experiment as ours\n"
        "assert AbstractExperiment is ours.AbstractExperiment\n"
        "assert cw2.experiment is ours and cw2.__name__ == 'packhorse.cw2'\n"
        "print(os.environ['CUDA_VISIBLE_DEVICES'])\n"
    )
    # Unlike a program for gpu_task_scheduler, it may need GPUs itself.
    done = Script(text, module="packhorse").run(env={**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"})
    assert done.stdout == "0,1\n", done.stderr
    assert Script("import packhorse, cw2\n").run().returncode == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("original", ["cw2", "gpu_task_scheduler"])
def test_processes_of_the_script_have_the_names_of_the_originals_too(
    method: str, original: str
) -> None:
    # Another package of that name is installed, behind Python's own modules.
    Path("installed", original).mkdir(parents=True)
    Path("installed", original, "__init__.py").write_text("")
    text = f"""\
        import multiprocessing
        import sys

        sys.path.append("installed")

        def look(pipe):
            import {original}.{"experiment" if original == "cw2" else "gpu_task"} as module
            pipe.send((module.__name__, sys.modules["{original}"].__name__, sys.path[0]))

        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            mine, theirs = context.Pipe()
            process = context.Process(target=look, args=(theirs,))
            process.start()
            theirs.close()
            print(*mine.recv())
            process.join()
        """
    done = Script(text, module="packhorse").run()
    assert done.returncode == 0, done.stdout + done.stderr
    module, package, folder = done.stdout.split()
    assert module.startswith(f"packhorse.{original}.") and package == f"packhorse.{original}"
    assert folder == os.getcwd()


def test_with_the_time_before_names_results_are_loaded_from_where_they_were_written() -> None:
    # The time goes on before the file is read and before the run.
    clock = "import itertools, time\nticks = itertools.count()\n"
    clock += "time.strftime = lambda form: f'1118-{next(ticks):06}'\n"
    asked = "    print(len(cw.config.exp_configs))\n"
    ran = "    cw.run()\n    folders = [c['_rep_log_path'] for c in cw.config.exp_configs]\n"
    ran += "    print([os.path.exists(folder + '/ended') for folder in folders])\n"
    for before in ("", asked):
        text = clock + SCRIPT.replace("    cw.run()\n", before + ran)
        done = program("-t", "-e", "plain", "--slots", "2", script=text).run()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[True, True]" in done.stdout, done.stdout
    done = program("-t", "-e", "plain", "--slots", "2").run()
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_logged_is_there_once_if_packhorse_exp_keeps_the_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DO_03", "1 / 0")
    script = program("-e", "plain", "--slots", "2").command
    said = packhorse("exp", "config.yml", "-e", "plain", "--slots", "2", "--", *script[:2])
    assert "1 succeeded, 1 failed" in said, said
    first, second = (Path(f"out/plain/log/rep_0{rep}") for rep in (0, 1))
    out = (first / "out.log").read_text()
    assert out.count("[cw2] [INFO] begins with 0.3\n") == 1, out
    assert (first / "err.log").read_text() == ""
    out, error = ((second / name).read_text() for name in ("out.log", "err.log"))
    assert out.count("ZeroDivisionError") == error.count("ZeroDivisionError") == 1, out


def test_without_a_script_there_is_a_way_out() -> None:
    Path("config.yml").write_text(FILE)
    text = "\n".join(line for line in SCRIPT.replace("from cw2", "from packhorse.cw2").split("\n"))
    done = subprocess.run(
        [sys.executable, "-c", text, "config.yml"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1 and "run(sch=scheduler.LocalScheduler())" in done.stderr


# -- how a run ends --------------------------------------------------------------------------



def start_and_wait(monkeypatch: pytest.MonkeyPatch) -> tuple[subprocess.Popen[str], int]:
    """A program of whose repetitions one is running."""
    tell = "open('told', 'w').write(str(os.getpid()))"
    # Signals that come just before a long wait are seen after it, so these are short.
    wait = "import signal\nfor _ in range(60): signal.sigtimedwait([], 1)"
    monkeypatch.setenv("DO_03", f"{tell}\n{wait}")
    os.mkfifo("told")
    process = program("--slots", "1", "-e", "plain", "--grace", "60s").start()
    try:
        return process, int(hear("told"))
    except AssertionError:
        process.kill()
        pytest.fail("\n".join(process.communicate(timeout=PATIENCE)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_is_ended_ends_its_repetitions(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, repetition = start_and_wait(monkeypatch)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, said
    assert not is_alive(repetition)
    # It could clean up.
    assert ended()["plain/log/rep_01"] == "0.3 True\n"


def test_ctrl_c_lets_repetitions_finish_and_a_second_one_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, repetition = start_and_wait(monkeypatch)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stderr is not None
    # The program says that it has heard it.
    heard = ""
    while "1 running task may finish" not in heard:
        line = process.stdout.readline()
        assert line, f"it has ended: {heard}{process.stderr.read()}"
        heard += line
    assert is_alive(repetition)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in said
    assert not out.endswith("after\n") and not is_alive(repetition)
    monkeypatch.delenv("DO_03")
    assert "1.2 succeeded" in packhorse("resume", "1")
    assert ended()["plain/log/rep_01"] == "0.3 True\n0.0375 False\n"


def test_a_program_that_is_killed_takes_its_repetitions_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, repetition = start_and_wait(monkeypatch)
    process.kill()
    wait_for_end(repetition)
    process.communicate(timeout=PATIENCE)
