"""Warm starts: tasks that are forked from a Python that has imported their modules."""

from __future__ import annotations

import os
from pathlib import Path

import functions
import packhorse
import pytest
from conftest import Script

#: Says who imports it.
HEAVY = """
import os
with open({record!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
"""


@pytest.fixture
def imports(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each time that the module ``heavy`` was imported."""
    record = world / "imports"
    (world / "heavy.py").write_text(HEAVY.format(record=str(record)))
    # As the folder of a script is there.
    monkeypatch.syspath_prepend(world)
    return record


def test_modules_are_imported_once_for_all_tasks(imports: Path) -> None:
    with packhorse.Executor(slots=2, preload=["heavy"]) as pool:
        pids = list(pool.map(functions.pid_with_heavy, range(20)))
    assert len(set(pids)) == 20 and os.getpid() not in pids
    assert len(imports.read_text().splitlines()) == 1


def test_without_preload_each_task_imports_them(imports: Path) -> None:
    with packhorse.Executor(slots=2) as pool:
        list(pool.map(functions.pid_with_heavy, range(3)))
    assert len(imports.read_text().splitlines()) == 3


def test_errors_and_deaths_are_those_of_the_task_alone(imports: Path) -> None:
    with packhorse.Executor(slots=1, preload="heavy") as pool:
        futures = [
            pool.submit(functions.fail, "oh"),
            pool.submit(os._exit, 3),
            pool.submit(functions.add, 1, 2),
        ]
        with pytest.raises(ValueError, match="oh"):
            futures[0].result()
        with pytest.raises(packhorse.TaskError, match="3"):
            futures[1].result()
        assert futures[2].result() == 3
    assert len(imports.read_text().splitlines()) == 1


def test_functions_of_a_script_work(imports: Path) -> None:
    done = Script(
        """
        import packhorse, sys

        class Thing:
            def __init__(self, value): self.value = value

        def double(thing): return Thing(2 * thing.value), "heavy" in sys.modules

        if __name__ == "__main__":
            with packhorse.Executor(slots=1, preload=["heavy"]) as pool:
                thing, there = pool.submit(double, Thing(4)).result()
            print(type(thing) is Thing, thing.value, there)
        """
    ).run()
    assert done.returncode == 0 and done.stdout == "True 8 True\n", done


def test_modules_beside_the_script_can_be_preloaded(imports: Path) -> None:
    """Wherever it is started from; and what that takes is no task's PYTHONPATH."""
    os.mkdir("elsewhere")
    done = Script(
        """
        import os, subprocess, sys
        import packhorse

        def look(_):
            there = "heavy" in sys.modules
            code = "import importlib.util as u; print(u.find_spec('heavy'))"
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            return there, found.stdout.strip(), os.environ.get("PYTHONPATH")

        if __name__ == "__main__":
            with packhorse.Executor(slots=1, preload=["heavy"]) as pool:
                seen = list(pool.map(look, range(2)))
            print(seen == [(True, "None", os.environ.get("PYTHONPATH"))] * 2, seen)
        """
    )
    done.command[-1] = os.path.abspath(done.command[-1])
    for given in (os.environ.get("PYTHONPATH"), "/nowhere"):
        paths = [path for path in (given, os.environ.get("PYTHONPATH")) if path]
        env = {**os.environ, "PYTHONPATH": ":".join(paths)} if paths else None
        ran = done.run(cwd="elsewhere", env=env)
        assert ran.returncode == 0 and ran.stdout.startswith("True "), ran
    assert len(imports.read_text().splitlines()) == 2


def test_a_module_that_is_not_there_is_named() -> None:
    with packhorse.Executor(slots=1, preload=["torhc"]) as pool:
        with pytest.raises(packhorse.TaskError, match="torhc"):
            pool.submit(functions.add, 1, 2).result()


def test_a_grid_preloads_and_takes_what_grid_files_take(imports: Path) -> None:
    config = {
        "scheduler_config": {"gpu": ["0"]},
        "test_config": [{"n": [1, 2, 3]}],
        "preload": ["heavy"],
        "env": {"EXTRA": "for all"},
        "request": {"retries": 1},
    }
    done = Script(
        f"""
        import os, sys
        from packhorse.gpu_task_scheduler.gpu_task import GPUTask
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

        class Test(GPUTask):
            def main(self):
                import heavy
                first = not os.path.exists(os.path.join(self._work_dir, "tried"))
                open(os.path.join(self._work_dir, "tried"), "w").close()
                assert not first, "the first attempt fails"
                print(os.environ["EXTRA"], os.environ["CUDA_VISIBLE_DEVICES"])

        if __name__ == "__main__":
            report = GPUTaskScheduler(config={config!r}, gpu_task_class=Test).start()
            print(report.succeeded, report.failed)
        """
    ).run()
    assert done.returncode == 0 and done.stdout.endswith("3 []\n"), done
    logs = sorted(Path("results").rglob("*.2.log"))
    assert [log.read_text() for log in logs] == ["for all 0\n"] * 3
    assert len(imports.read_text().splitlines()) == 1


def test_a_grid_preloads_what_is_in_the_folder_it_is_started_in(imports: Path) -> None:
    os.mkdir("example")
    done = Script(
        """
        import sys
        from packhorse.gpu_task_scheduler.gpu_task import GPUTask
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

        class Test(GPUTask):
            def main(self):
                assert "heavy" in sys.modules

        if __name__ == "__main__":
            tests = [{"n": [1, 2]}]
            config = {
                "scheduler_config": {"gpu": ["0"]}, "test_config": tests, "preload": "heavy"
            }
            GPUTaskScheduler(config, Test).start()
        """,
        name="example/main.py",
    ).run()
    assert done.returncode == 0, done
    assert len(imports.read_text().splitlines()) == 1
