"""Ends that nobody planned: Ctrl-C, kill -9, interpreters that end, scripts without a guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, Script, hear, is_alive, needs, packhorse, wait_for_end

#: A task that says who it is and waits for its end.
WAITS = """
    import os, sys
    from pathlib import Path
    import packhorse

    def wait():
        with open("said", "w") as file:
            file.write(f"{os.getpid()} {os.getppid()}")
        Path("never").read_text()

    def quick():
        return 1
"""


@pytest.fixture(autouse=True)
def pipes() -> None:
    os.mkfifo("said")
    os.mkfifo("never")


def heard(script: subprocess.Popen[str]) -> tuple[int, int]:
    try:
        task, program = map(int, hear("said").split())
    except AssertionError:
        script.send_signal(signal.SIGINT)
        pytest.fail("\n".join(script.communicate(timeout=PATIENCE)))
    return task, program


def test_kill_9_leaves_nothing_running_and_what_had_finished_on_record() -> None:
    script = Script(
        WAITS
        + """
    if __name__ == "__main__":
        pool = packhorse.Executor(slots=1)
        print(pool.submit(quick).result(), flush=True)
        pool.submit(wait).result()
    """
    ).start()
    task, program = heard(script)
    script.kill()
    script.communicate(timeout=PATIENCE)
    wait_for_end(program)
    assert not is_alive(task)
    shown = packhorse("show", "1")
    assert "succeeded" in shown and "interrupted" in shown, shown


@pytest.mark.parametrize("how", ["with", "without", "atexit", "map"])
def test_ctrl_c_ends_the_run_and_leaves_nothing(how: str) -> None:
    use = {
        "with": "with packhorse.Executor(slots=1) as pool: pool.submit(wait).result()",
        "without": "pool = packhorse.Executor(slots=1); pool.submit(wait).result()",
        "atexit": "pool = packhorse.Executor(slots=1); pool.submit(wait)",
        "map": "with packhorse.Executor(slots=1) as pool: list(pool.map(call, [wait] * 3))",
    }[how]
    script = Script(
        WAITS
        + f"""
    def call(function):
        return function()

    if __name__ == "__main__":
        {use}
    """
    ).start(start_new_session=True)
    task, program = heard(script)
    # As a terminal does: to the whole group.
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in errors, errors
    # At its very end the interpreter tells nobody, as with the standard library's executors.
    assert script.returncode != 0 or how == "atexit"
    assert not is_alive(task) and not is_alive(program)


def test_ctrl_c_ends_a_run_of_commands_and_a_grid() -> None:
    for text in (
        """
        import packhorse
        packhorse.run(["echo $$ $PPID > said; exec cat never"], slots=1).wait()
        """,
        """
        import os
        from packhorse.gpu_task_scheduler.gpu_task import GPUTask
        from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

        class Waits(GPUTask):
            def main(self):
                with open("said", "w") as file:
                    file.write(f"{os.getpid()} {os.getppid()}")
                open("never").read()

        GPUTaskScheduler({"scheduler_config": {"gpu": ["0"]}}, Waits).start()
        """,
    ):
        script = Script(text).start(start_new_session=True)
        task, program = heard(script)
        os.killpg(script.pid, signal.SIGINT)
        _, errors = script.communicate(timeout=PATIENCE)
        assert "KeyboardInterrupt" in errors, errors
        assert not is_alive(task) and not is_alive(program)


def test_an_interpreter_that_ends_waits_for_its_futures() -> None:
    done = Script(
        """
        import packhorse
        from pathlib import Path

        def work(name):
            Path(name).touch()

        if __name__ == "__main__":
            pool = packhorse.Executor(slots=1)
            for number in range(50):
                pool.submit(work, f"done{number}")
        """
    ).run()
    assert done.returncode == 0, done.stderr
    assert len(list(Path(".").glob("done*"))) == 50


def test_an_executor_that_is_forgotten_does_its_work() -> None:
    done = Script(
        """
        import packhorse, time

        if __name__ == "__main__":
            future = packhorse.Executor(slots=1).submit(time.time)
            print(future.result() > 0)
        """
    ).run()
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.mark.parametrize("cloudpickle", [True, False])
@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"])
def test_functions_and_classes_of_a_script_work(cloudpickle: bool, guard: str) -> None:
    if cloudpickle:
        needs("python")
    without = "" if cloudpickle else "import sys; sys.modules['cloudpickle'] = None"
    done = Script(
        f"""
        {without}
        import packhorse

        class Point:
            def __init__(self, x):
                self.x = x

        class Mistake(Exception):
            pass

        def move(point, by):
            return Point(point.x + by)

        def fail():
            raise Mistake("oh")

        {guard}
            with packhorse.Executor(slots=2) as pool:
                moved = pool.submit(move, Point(1), by=2).result()
                print(type(moved) is Point, moved.x)
                try:
                    pool.submit(fail).result()
                except Mistake as error:
                    print("mistake", error)
        """
    ).run()
    assert done.stdout == "True 3\nmistake oh\n", done.stderr


def test_a_script_run_as_a_module_works() -> None:
    Path("tool.py").write_text(
        "import sys; sys.modules['cloudpickle'] = None\n"
        "import packhorse\n"
        "def name(): return __name__\n"
        "if __name__ == '__main__':\n"
        "    with packhorse.Executor(slots=1) as pool: print(pool.submit(name).result())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tool"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "__mp_main__\n", done.stderr


@pytest.mark.parametrize("cloudpickle", [True, False])
def test_a_session_at_a_prompt_needs_cloudpickle_and_says_so(cloudpickle: bool) -> None:
    if cloudpickle:
        needs("python")
    without = "" if cloudpickle else "import sys; sys.modules['cloudpickle'] = None\n"
    typed = without + (
        "import packhorse\n"
        "def double(x): return 2 * x\n\n"
        "with packhorse.Executor(slots=1) as pool: print('got', pool.submit(double, 4).exception() or pool.submit(double, 4).result())\n\n"
    )
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=typed, capture_output=True, text=True, timeout=PATIENCE
    )
    wanted = "got 8" if cloudpickle else "pip install cloudpickle"
    assert wanted in done.stdout, done.stdout + done.stderr
