"""The original's interfaces: names, configurations, what runs and what is skipped."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import Script
from packhorse.gpu_task_scheduler.config_manager import ConfigManager

SCRIPT = """
    import sys
    from packhorse.gpu_task_scheduler.gpu_task import GPUTask
    from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
    import os

    class Test(GPUTask):
        def required_env(self):
            return self._config.get("env", {})

        def main(self):
            print("on", os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("MPLBACKEND"))
            print(os.environ.get("EXTRA"), os.getcwd() in sys.path)
            with open(os.path.join(self._work_dir, "ran"), "a") as file:
                file.write("x")
            if pipe := self._config.get("meets"):
                # Opens once the other test has opened it, too.
                open(pipe, "rw"[self._config["n"] - 1]).close()
            if self._config.get("fails"):
                raise ValueError("oh")

"""


def scheduler(config: dict[str, Any], after: str = "scheduler.start()") -> Script:
    text = SCRIPT + f"    scheduler = GPUTaskScheduler(config={config!r}, gpu_task_class=Test)\n"
    return Script(text + f"    {after}\n")


def grid(tests: Any = None, **settings: Any) -> dict[str, Any]:
    return {"scheduler_config": {"gpu": ["0"], **settings}, "test_config": tests or [{}]}


def names(manager: ConfigManager) -> list[str]:
    found = []
    while (test := manager.get_next_config())["config"] is not None:
        found.append(test["test_config_string_filtered"])
    return found


def test_names_are_those_of_python() -> None:
    values = [True, None, 0.001, 1e-05, [1, 2], {"a": 1}, ["x"], "é ü", 1e22, -0.0]
    manager = ConfigManager(grid([{"b": values, "a": [1]}]))
    assert names(manager) == [
        f"a-1,b-{value},".replace(" ", "").replace("[", "").replace("]", "") for value in values
    ]
    manager = ConfigManager(
        grid(
            [{"k": ["v" * 40], "gone": [1]}],
            test_config_string_indicator="=",
            test_config_string_separator=";",
            ignored_keys_for_folder_name=["gone"],
            ignored_characters_for_folder_name=["k"],
        )
    )
    assert names(manager) == ["=" + "v" * 30 + ";"]


def test_the_config_manager_has_all_that_the_original_has() -> None:
    config = {
        "scheduler_config": {"gpu": ["0", ["1", "2"]], "result_root_folder": "out"},
        "global_config": {"epochs": 5, "lr": 9},
        "test_config": [{"lr": [0.1, 0.2], "bs": [1]}, {"lr": [3]}],
    }
    manager = ConfigManager(config)
    assert manager.get_all_global_config() == {"epochs": 5, "lr": 9}
    assert manager.get_all_test_config() == config["test_config"]
    assert manager.get_all_scheduler_config()["log_file"] == "worker.log"
    assert manager.get_all_test_config_in_string() == "bs-[1],lr-[0.1, 0.2],+lr-[3],+"
    assert manager.get_gpu_envs() == [
        {"name": "gpu0", "env": {"CUDA_VISIBLE_DEVICES": "0"}},
        {"name": "gpu1", "env": {"CUDA_VISIBLE_DEVICES": "1,2"}},
    ]
    assert manager.get_num_gpu() == 2 and manager.get_num_left_config() == 3
    assert manager.get_next_config() == {
        "config": {"epochs": 5, "lr": 0.1, "bs": 1},
        "test_config_string": "bs-1,lr-0.1,",
        "test_config_string_filtered": "bs-1,lr-0.1,",
        "work_dir": "out/bs-1,lr-0.1,",
    }
    assert manager.get_num_left_config() == 2
    assert names(manager) == ["bs-1,lr-0.2,", "lr-3,"]
    assert manager.get_next_config() == {"config": None}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"scheduler_config": {}},
        {"scheduler_config": {"gpu": []}},
        {"scheduler_config": {"gpu": "0"}},
        {"scheduler_config": {"gpu": [0]}},
        {"scheduler_config": {"gpu": [["0", 1]]}},
        {"scheduler_config": {"gpu": ["0"]}, "test_config": [{"lr": 0.1}]},
        {"scheduler_config": {"gpu": ["0"]}, "test_config": [{"lr": "0.1"}]},
        {"scheduler_config": {"gpu": ["0"]}, "request": ["vram"]},
        {"scheduler_config": {"gpu": ["0"]}, "env": {"A": ["b"]}},
        {"scheduler_config": {"gpu": ["0"]}, "preload": [1]},
        # What nobody can tell of GPUs that are handed out as they stand.
        {"scheduler_config": {"gpu": ["0", "0"]}, "request": {"vram": "1G"}},
        {"scheduler_config": {"gpu": ["fast"]}, "request": {"gpu_model": "A100"}},
    ],
)
def test_wrong_configurations_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ConfigManager(config)


def test_unknown_keys_are_told_and_ignored() -> None:
    with pytest.warns(UserWarning, match="did you mean 'force_rerun'"):
        ConfigManager(grid(force_reruns=True))


def test_what_grid_files_have_is_read_as_there() -> None:
    manager = ConfigManager(
        {
            **grid(),
            "request": {"retries": 1, "time_limit": "2h"},
            "env": {"SEED": 7},
            "preload": "numpy",
            "priority": 5,
        }
    )
    assert manager.get_task_keys() == {
        "retries": 1,
        "timeout": "2h",
        "env": {"SEED": "7"},
        "preload": ["numpy"],
        "priority": 5,
    }
    with pytest.raises(ValueError, match="did you mean 'retries'"):
        ConfigManager({**grid(), "request": {"retry": 1}})


def test_request_takes_what_grid_files_take() -> None:
    from conftest import packhorse
    from packhorse.gpu_task_scheduler import config_manager

    config = {**grid(), "command": "true", "request": {"nonsense": 1}}
    Path("tests.json").write_text(json.dumps(config))
    said = re.search(r"the keys are (.*)", packhorse("grid", "tests.json", "--list"))
    assert said is not None and said[1].split(", ") == config_manager._REQUEST


def test_equal_names_are_told_apart_before_anything_starts() -> None:
    long = "x" * 30
    with pytest.warns(UserWarning, match="short hash"):
        manager = ConfigManager(grid([{"p": [long + "1", long + "2", "y"], "q": [1]}]))
    found = names(manager)
    assert len(set(found)) == 3 and found[2] == "p-y,q-1,"
    assert all(re.fullmatch(f"p-{long},q-1,#[0-9a-f]{{16}}", name) for name in found[:2])
    # The same test twice is one test.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager = ConfigManager(grid([{"p": [1, 2]}, {"p": [1]}]))
    assert manager.get_num_left_config() == 2 and names(manager) == ["p-1,", "p-2,"]


def test_names_that_no_folder_can_have_are_changed() -> None:
    tests = [{"data": ["a/b"], "long": ["é" * 300]}]
    with pytest.warns(UserWarning, match="no folder can be called"):
        [name] = names(ConfigManager(grid(tests, config_string_value_maxlen=300)))
    assert "/" not in name and len(name.encode()) <= 255
    os.mkdir(name)


def test_tests_run_on_their_gpus_and_failures_are_told() -> None:
    config = grid([{"n": [1, 2], "fails": [False]}, {"fails": [True]}], gpu=["7", ["8", "9"]])
    done = scheduler(config).run()
    assert done.returncode == 1, done.stderr
    lines = [line.split(" ", 2)[2] for line in done.stdout.splitlines()]
    assert "gpu0 receives task fails-False,n-1," in lines
    assert re.search(r"gpu\d finishes task fails-True,: exit status 1", done.stdout)
    assert lines[-2:] == ["gpu0 finished", "gpu1 finished"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d gpu", done.stdout)
    assert "1 of 3 tests failed" in done.stderr and "results/fails-True," in done.stderr
    assert done.stdout in Path("scheduler.log").read_text()
    logs = "".join(path.read_text() for path in Path("results").glob("*/worker.log"))
    assert set(re.findall(r"on (\S+) (\S+)", logs)) <= {("7", "Agg"), ("8,9", "Agg")}
    assert "None True" in logs and "ValueError: oh" in logs


def test_failures_that_somebody_looks_at_are_theirs() -> None:
    config = grid([{"fails": [True]}])
    done = scheduler(config, "print(len(scheduler.start().failed))").run()
    assert done.returncode == 0 and done.stdout.endswith("\n1\n"), done.stderr
    # What others do at the end of the program is done.
    after = "import atexit; atexit.register(print, 'last'); scheduler.start()"
    done = scheduler({**config, "scheduler_config": {"gpu": ["0"], "force_rerun": True}}, after).run()
    assert done.returncode == 1 and done.stdout.endswith("last\n"), done.stderr


def test_open_files_are_written_out_though_the_exit_status_is_ours() -> None:
    after = "report = open('report', 'w'); report.write('all of it'); scheduler.start()"
    done = scheduler(grid([{"fails": [True]}]), after).run()
    assert done.returncode == 1, done.stderr
    assert Path("report").read_text() == "all of it"


ENDS = """
    import sys
    from packhorse.gpu_task_scheduler.gpu_task import GPUTask
    from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

    class Test(GPUTask):
        def main(self):
            if self._config["how"] == "raise":
                raise ValueError("oh")
            if self._config["how"] == "exit":
                exit()
            sys.exit(self._config["how"])

    tests = [{"how": [0, None, "exit", 3, "that is why", "raise"]}]
    config = {"scheduler_config": {"gpu": ["0"]}, "test_config": tests, %s}
    report = GPUTaskScheduler(config, Test).start()
    for test in report.failed:
        print(test.config["how"], test.reason)
"""


@pytest.mark.parametrize("preload", ["", "'preload': []"])
def test_a_test_ends_with_the_exit_status_that_it_wants(preload: str) -> None:
    done = Script(ENDS % preload).run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "3 exit status 3",
        "that is why exit status 1",
        "raise exit status 1",
    ], done.stdout
    logs = {path.parent.name: path.read_text() for path in Path("results").glob("*/worker.log")}
    assert not any(logs.get(f"how-{how},") for how in (0, None, "exit", 3)), logs
    assert logs["how-thatiswhy,"] == "that is why\n"
    assert logs["how-raise,"].endswith("ValueError: oh\n")
    assert "_worker.py" not in logs["how-raise,"]
    # Nobody reads results.
    assert not list(Path("temp").rglob("*.result"))


def test_a_test_that_is_tried_again_counts_once() -> None:
    config = {
        **grid([{"fails": [True], "n": list(range(40))}], gpu=["0", "1"]),
        "request": {"retries": 2},
    }
    done = scheduler(config).run()
    assert "40 of 40 tests failed" in done.stderr, done.stderr
    lines = done.stdout.splitlines()
    # Every GPU is given back.
    assert [line.split(" ", 2)[2] for line in lines[-2:]] == ["gpu0 finished", "gpu1 finished"]
    assert {line.split(" ")[2] for line in lines if "finishes task" in line} == {"gpu0", "gpu1"}
    assert len([line for line in lines if "receives task" in line]) == 120


def test_tests_that_are_tried_again_do_not_let_more_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from packhorse.gpu_task_scheduler import _grid_run
    from packhorse.gpu_task_scheduler.gpu_task import GPUTask

    run = _grid_run.GridRun(ConfigManager(grid(gpu=["0", "0"])), GPUTask)
    test = _grid_run._Test("/p/1", "name", "work", {})
    run._sent = {"/p/1": test, "/p/2": _grid_run._Test("/p/2", "other", "work", {})}
    run._waiting, run._all_sent = 2, True
    event = {"event": "started", "task": "1.1", "command": ["/p/1", "label"], "gpus": ["0"]}
    for attempt in (1, 2):
        run._happened({**event, "attempt": attempt})
        # The GPU of the attempt before is free again.
        assert (run._waiting, test.gpu, run._free()) == (1, 0, [1])
    run._happened({**event, "command": ["/p/2", "label"], "attempt": 1})
    assert (run._waiting, run._sent["/p/2"].gpu, run._free()) == (0, 1, [])


def test_retry_runs_failed_tests_again() -> None:
    from conftest import packhorse

    done = scheduler(grid([{"fails": [True]}])).run()
    assert "packhorse retry 1" in done.stderr
    assert "1 failed" in packhorse("retry", "1")
    assert Path("results/fails-True,/ran").read_text() == "xx"


def test_required_env_wins_over_the_gpu() -> None:
    env = {"EXTRA": "more", "CUDA_VISIBLE_DEVICES": "5", "MPLBACKEND": "svg"}
    done = scheduler(grid([{"env": [env]}], ignored_keys_for_folder_name=["env"])).run()
    assert done.returncode == 0, done.stderr
    [log] = Path("results").rglob("worker.log")
    assert log.read_text() == "on 5 svg\nmore True\n"


def test_what_is_done_is_skipped_and_the_rest_runs() -> None:
    config = grid([{"n": [1, 2, 3, 4]}])
    for number, outcome in ((1, "succeeded"), (2, "failed"), (3, "running")):
        folder = Path(f"results/n-{number},")
        folder.mkdir(parents=True)
        (folder / ".packhorse.json").write_text(json.dumps({"outcome": outcome}))
    # As the original leaves it.
    Path("results/n-4,").mkdir()
    done = scheduler(config).run()
    assert done.returncode == 0, done.stderr
    ran = sorted(path.parent.name for path in Path("results").rglob("ran"))
    assert ran == ["n-2,", "n-3,"]
    assert "gpu0 skips task n-1," in done.stdout and "gpu0 skips task n-4," in done.stdout
    config["scheduler_config"]["force_rerun"] = True
    done = scheduler(config).run()
    assert len(list(Path("results").rglob("ran"))) == 4


def test_failed_tests_run_again_by_the_markers_of_the_binary() -> None:
    config = grid([{"fails": [True, False]}])
    assert scheduler(config).run().returncode == 1
    assert scheduler(config).run().returncode == 1
    assert Path("results/fails-True,/ran").read_text() == "xx"
    assert Path("results/fails-False,/ran").read_text() == "x"


def test_the_same_grid_has_the_same_folders_through_both_doors() -> None:
    from conftest import packhorse

    values = [1, 0.1, 1e-05, True, None, "a b", [1, "x"], {"a": 1}, "x" * 31, "x" * 32, "a/b"]
    config = grid([{"v": values, "w": [2]}])
    Path("tests.py").write_text(f"config = {config!r}\n")
    listed = packhorse("grid", "tests.py", "--list")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names(ConfigManager(config)):
            assert name in listed


def test_no_log_file_and_no_scheduler_log() -> None:
    done = scheduler(grid(log_file=None, scheduler_log_file_path=None)).run()
    assert done.returncode == 0 and "finishes task" in done.stdout, done.stderr
    assert not Path("scheduler.log").exists()
    assert [path.name for path in Path("results").rglob("*") if path.suffix == ".log"] == []


def test_nothing_temporary_is_left_if_all_goes_well() -> None:
    done = scheduler(grid([{"n": [1, 2]}], temp_folder="my/temp")).run()
    assert done.returncode == 0, done.stderr
    assert not Path("my/temp").exists()
    # What was there before is not ours to remove.
    Path("my/temp").mkdir()
    done = scheduler(grid([{"n": [3]}], temp_folder="my/temp")).run()
    assert done.returncode == 0, done.stderr
    assert Path("my/temp").is_dir() and not list(Path("my/temp").iterdir())


def test_an_id_that_is_there_twice_takes_two_tests() -> None:
    os.mkfifo("pipe")
    meets = [os.path.abspath("pipe")]
    done = scheduler(grid([{"n": [1, 2], "meets": meets}], gpu=["0", "0"])).run()
    assert "gpu1 receives task" in done.stdout, done.stdout + done.stderr


def test_the_scheduler_sees_no_gpu_and_what_comes_after_does() -> None:
    Path("heavy.py").write_text(
        "import os\n"
        "from packhorse.gpu_task_scheduler.gpu_task import GPUTask\n"
        "seen = os.environ.get('CUDA_VISIBLE_DEVICES')\n"
        "class Heavy(GPUTask):\n"
        "    def main(self): print('seen', seen)\n"
    )
    text = """
        import os
        from heavy import Heavy, seen
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        print(repr(seen))
        GPUTaskScheduler({"scheduler_config": {"gpu": ["3"]}}, Heavy).start()
        print(os.environ.get("CUDA_VISIBLE_DEVICES"))
    """
    done = Script(text).run()
    assert done.stdout.splitlines()[0] == "''" and done.stdout.endswith("\nNone\n"), done.stderr
    [log] = Path("results").rglob("worker.log")
    assert log.read_text() == "seen 3\n"
    done = Script(text).run(env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
    assert done.stdout.endswith("\n1\n")


def test_a_second_start_sees_no_gpu_either() -> None:
    done = Script(
        """
        import os
        from packhorse.gpu_task_scheduler.gpu_task import GPUTask
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

        class Test(GPUTask):
            def required_env(self):
                print("sees", repr(os.environ["CUDA_VISIBLE_DEVICES"]))
                return {}

            def main(self):
                pass

        for folder in ("one", "two"):
            config = {"scheduler_config": {"gpu": ["3"], "result_root_folder": folder}}
            GPUTaskScheduler(config, Test).start()
            print("after", os.environ["CUDA_VISIBLE_DEVICES"])
        """
    ).run(env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
    assert done.stdout.count("sees ''\n") == 2, done.stdout + done.stderr
    assert done.stdout.count("after 1\n") == 2


def test_gpus_are_named_to_the_program_so_that_it_can_ask_the_driver() -> None:
    for gpus, written, words in (
        (["0", ["1", "2"], "3,4"], False, ["0,1+2,3+4"]),
        (["GPU-0a-1", "MIG-GPU-0/1/2"], False, ["GPU-0a-1,MIG-GPU-0/1/2"]),
        (["0", "0"], True, ["0", "0"]),
        (["0", ["0", "1"]], True, ["0", "0,1"]),
        (["01", "fast lane"], True, ["01", "fast lane"]),
        (["0-3", "all", ""], True, ["0-3", "all", ""]),
    ):
        manager = ConfigManager(grid(gpu=gpus))
        assert manager.is_handed_out_as_written() is written, gpus
        assert manager.get_gpu_words() == words


def test_a_test_can_be_tried_without_a_scheduler() -> None:
    text = SCRIPT + '    Test({}, ".").main()\n'
    done = Script(text).run(env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
    assert done.stdout.startswith("on 1 "), done.stderr


def test_a_class_from_a_file_that_is_on_no_path_is_found() -> None:
    os.mkdir("elsewhere")
    Path("elsewhere/far.py").write_text(
        "from packhorse.gpu_task_scheduler.gpu_task import GPUTask\n"
        "class Far(GPUTask):\n"
        "    def main(self): print('far', __name__)\n"
    )
    done = Script(
        """
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("far", "elsewhere/far.py")
        module = sys.modules["far"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        GPUTaskScheduler({"scheduler_config": {"gpu": ["0"]}}, module.Far).start()
        """
    ).run()
    assert done.returncode == 0, done.stderr
    [log] = Path("results").rglob("worker.log")
    assert log.read_text() == "far far\n"


def test_a_test_that_cannot_be_prepared_does_not_stop_the_others() -> None:
    done = scheduler(grid([{"env": [5, {}]}])).run()
    assert done.returncode == 1 and "cannot be prepared" in done.stdout, done.stderr
    assert len(list(Path("results").rglob("ran"))) == 1


def test_thousands_of_random_names_are_python_s() -> None:
    random.seed(1)

    def value(depth: int = 0) -> Any:
        kinds = [
            lambda: random.random() * 10 ** random.randint(-30, 30),
            lambda: random.choice([True, False, None, float("inf"), -0.0]),
            lambda: random.randint(-(10**20), 10**20),
            lambda: "".join(random.choice("aä'\" \\[]é,") for _ in range(random.randint(0, 9))),
            lambda: [value(depth + 1) for _ in range(random.randint(0, 3))],
            lambda: {str(n): value(depth + 1) for n in range(random.randint(0, 2))},
        ]
        return random.choice(kinds[: 4 if depth > 2 else 6])()

    for _ in range(2000):
        test = {key: value() for key in "cab"[: random.randint(1, 3)]}
        config = grid([{key: [one] for key, one in test.items()}])
        wanted = "".join(f"{key}-{str(test[key])[:30]}," for key in sorted(test))
        for ignored in " []":
            wanted = wanted.replace(ignored, "")
        assert names(ConfigManager(config)) == [wanted]


def test_the_worker_imports_little() -> None:
    code = "import sys; before = set(sys.modules); import packhorse._worker; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    imported = set(done.stdout.split()) - {"__future__"}
    assert imported == {"packhorse", "packhorse._worker"}, done.stdout + done.stderr
