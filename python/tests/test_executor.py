"""The contract of concurrent.futures, and what comes on top."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import itertools
import os
import pickle
import shutil
import threading
from pathlib import Path

import functions as f
import packhorse
import pytest
from conftest import Script, hear, is_alive, needs
from conftest import packhorse as program


@pytest.fixture
def gate() -> str:
    os.mkfifo("gate")
    return os.path.abspath("gate")


def open_gate(gate: str, text: str = "") -> None:
    Path(gate).write_text(text)


def test_results_come_back_with_what_is_known_of_their_tasks() -> None:
    with packhorse.Executor(devices=[0, 1], gpus=0.5) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        futures = [pool.submit(f.add, number, y=1) for number in range(5)]
        assert [future.result() for future in futures] == [1, 2, 3, 4, 5]
    first = futures[0]
    assert first.task == "1.1"
    assert first.gpu in ("0", "1") and first.gpus == [first.gpu]
    assert first.attempts == 1 and first.peak_vram is None


def test_a_task_sees_its_gpu_and_the_options() -> None:
    with packhorse.Executor(devices=[["2", "3"]], env={"A": "b c"}) as pool:
        assert pool.submit(f.environment, "CUDA_VISIBLE_DEVICES").result() == "2,3"
        assert pool.submit(f.environment, "A").result() == "b c"


def test_what_a_function_prints_is_in_its_log() -> None:
    with packhorse.Executor(slots=1) as pool:
        future = pool.submit(f.speak, "hello")
        future.result()
    assert future.log is not None
    assert sorted(Path(future.log).read_text().splitlines()) == ["hello", "to stderr"]


def test_exceptions_are_raised_with_their_remote_trace_as_cause() -> None:
    with packhorse.Executor(slots=1) as pool:
        future = pool.submit(f.fail, "no good")
        with pytest.raises(ValueError, match="no good") as caught:
            future.result()
        cause = caught.value.__cause__
        assert isinstance(cause, packhorse.RemoteTraceback)
        assert "in fail" in str(cause) and "functions.py" in str(cause)
        assert "_worker.py" not in str(cause)
        assert future.log is not None
        assert "ValueError: no good" in Path(future.log).read_text()


def test_exceptions_and_results_that_cannot_travel_are_errors_of_their_own() -> None:
    with packhorse.Executor(slots=1) as pool:
        with pytest.raises(packhorse.TaskError, match="one.*cannot be pickled") as caught:
            pool.submit(f.fail_unpicklable).result()
        assert "in fail_unpicklable" in str(caught.value.__cause__)
        with pytest.raises(Exception, match="pickle"):
            pool.submit(f.unpicklable).result()
        assert pool.submit(f.double, 1).result() == 2


def test_processes_that_die_are_errors_of_their_tasks_alone() -> None:
    with packhorse.Executor(slots=2) as pool:
        status = pool.submit(f.leave, 3)
        silent = pool.submit(f.leave, 0)
        killed = pool.submit(os.kill, 0, 9)
        with pytest.raises(packhorse.TaskError, match="exit status 3") as caught:
            status.result()
        assert (caught.value.outcome, caught.value.detail) == ("failed", 3)
        with pytest.raises(packhorse.TaskError, match="before the function returned"):
            silent.result()
        with pytest.raises(packhorse.TaskError, match="signal 9"):
            killed.result()
        assert pool.submit(f.double, 4).result() == 8


def test_failures_are_tried_again_and_the_last_attempt_counts() -> None:
    with packhorse.Executor(slots=1, retries=1) as pool:
        future = pool.submit(f.fail_once, os.path.abspath("tries"))
        assert future.result() == "2"
        assert future.attempts == 2
        died = pool.submit(f.fail_then_die, "")
        # Not what the first attempt raised.
        with pytest.raises(packhorse.TaskError, match="signal 9(.|\n)*dying"):
            died.result()
    assert Path("tries").read_text() == "1\n2\n"


def test_a_time_limit_ends_a_task(gate: str) -> None:
    with packhorse.Executor(slots=1, timeout=0.2, grace=0.1) as pool:
        with pytest.raises(packhorse.TaskError, match="time limit") as caught:
            pool.submit(f.wait_at, gate).result()
        assert caught.value.outcome == "timed-out"


def test_what_was_cancelled_never_runs(gate: str, caplog: pytest.LogCaptureFixture) -> None:
    with packhorse.Executor(slots=1) as pool:
        running = pool.submit(f.wait_at, gate)
        # More than are sent ahead: some wait here, some there.
        waiting = [pool.submit(f.touch, os.path.abspath(f"ran{n}")) for n in range(300)]
        callbacks: list[bool] = []
        waiting[1].add_done_callback(lambda future: callbacks.append(future.cancelled()))
        for future in waiting[1:]:
            assert future.cancel()
            assert future.cancelled() and future.done()
            assert future.cancel()
        assert callbacks == [True]
        done, _ = packhorse.wait(waiting[1:3], timeout=20)
        assert len(done) == 2
        with pytest.raises(concurrent.futures.CancelledError):
            waiting[1].result()
        open_gate(gate)
        waiting[0].result()
        assert not running.cancel() and not waiting[0].cancel()
    assert [path.name for path in Path(".").glob("ran*")] == ["ran0"]
    assert not caplog.messages, "nothing is wrong with it"


def test_a_running_task_says_so_and_cannot_be_cancelled(gate: str) -> None:
    with packhorse.Executor(slots=1) as pool:
        first = pool.submit(f.wait_at, gate)
        second = pool.submit(f.nothing)
        open_gate(gate, "through")
        assert first.result() == "through"
        second.result()
        third = pool.submit(f.wait_at, gate)
        # It has the gate open: it is running.
        with open(gate, "w"):
            # Its start may be told a moment later, but it is too late to cancel already.
            assert not third.cancel()
            assert not third.done()
        third.result()


def test_threads_that_cancel_the_same_future_agree(gate: str) -> None:
    answers: list[bool] = []
    with packhorse.Executor(slots=1) as pool:
        pool.submit(f.wait_at, gate)
        # It is running, and nothing else can.
        with open(gate, "w"):
            waiting = pool.submit(f.nothing)
            assert waiting._pool is not None and waiting._call is not None
            # As if another thread stood between its two steps.
            assert waiting._pool.give_up(waiting._call)
            assert waiting.cancel() and waiting.cancelled()
            several = [pool.submit(f.nothing) for _ in range(100)]

            def cancel() -> None:
                answers.extend([future.cancel() for future in several])

            threads = [threading.Thread(target=cancel) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert answers == [True] * 400


def test_a_future_that_was_cancelled_behind_our_back_does_not_end_the_run() -> None:
    with packhorse.Executor(slots=1) as pool:
        future = pool.submit(f.nothing)
        # The class's own method knows nothing of tasks.
        concurrent.futures.Future.cancel(future)
        assert pool.submit(f.double, 1).result() == 2
        # One that never started, too.
        missing = packhorse.Executor(slots=1, folder="not there")
        lost = missing.submit(f.nothing)
        concurrent.futures.Future.cancel(lost)
        missing.shutdown()
        assert pool.submit(f.double, 2).result() == 4


def test_a_future_that_is_done_can_no_longer_be_cancelled(gate: str) -> None:
    """Also not in the moment in which its end is being told."""
    pool = packhorse.Executor(slots=1, folder="not there")
    future = pool.submit(f.nothing)
    cancelled: list[bool] = []
    original = future.set_exception

    def set_exception(error: BaseException | None) -> None:
        cancelled.append(future.cancel())
        original(error)

    future.set_exception = set_exception  # type: ignore[method-assign]
    with pytest.raises(packhorse.TaskError, match="could not be started"):
        future.result()
    pool.shutdown()
    assert cancelled == [False] and future._pool is None


def test_whatever_happens_in_the_thread_every_future_ends(
    caplog: pytest.LogCaptureFixture, world: Path
) -> None:
    os.mkfifo("said")
    os.mkfifo("said.never")
    pool = packhorse.Executor(slots=2)
    first = pool.submit(f.nothing)
    first.result()
    running = pool.submit(f.announce, os.path.abspath("said"))
    task, program = map(int, hear("said").split())

    def leave(_: object) -> None:
        raise SystemExit("from a callback")

    running.add_done_callback(leave)
    waiting = [pool.submit(f.announce, os.path.abspath("said")) for _ in range(3)]
    waiting[0].add_done_callback(leave)
    # The run is broken by the end of a task whose callback leaves.
    last = pool.submit(f.nothing)
    os.kill(task, 9)
    for future in [running, *waiting, last]:
        with pytest.raises((packhorse.TaskError, packhorse.BrokenRun)):
            future.result(timeout=30)
    pool.shutdown()
    with pytest.raises(packhorse.BrokenRun, match="from a callback"):
        raise pool._pool._broken or AssertionError
    assert "cannot be followed" in caplog.text
    assert not is_alive(program)
    assert not list(world.parent.glob("packhorse-*"))


def test_a_binary_that_is_gone_at_the_end_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, world: Path
) -> None:
    copy = world / "packhorse"
    shutil.copy(packhorse.binary(), copy)
    monkeypatch.setenv("PACKHORSE_BINARY", str(copy))
    os.mkfifo("said")
    os.mkfifo("said.never")
    pool = packhorse.Executor(slots=1)
    running = pool.submit(f.announce, os.path.abspath("said"))
    task, program = map(int, hear("said").split())
    copy.unlink()
    monkeypatch.setenv("PACKHORSE_BINARY", "/nowhere")
    os.kill(program, 9)
    with pytest.raises(packhorse.BrokenRun, match="signal 9"):
        running.result(timeout=30)
    pool.shutdown()
    if is_alive(task):
        os.kill(task, 9)


def test_shutdown_can_cancel_and_need_not_wait(gate: str, world: Path) -> None:
    pool = packhorse.Executor(slots=1)
    running = pool.submit(f.wait_at, gate)
    rest = [pool.submit(f.touch, os.path.abspath("ran")) for _ in range(400)]
    with open(gate, "w"):
        pool.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(f.nothing)
        assert all(future.cancelled() for future in rest)
        assert not running.done()
    assert running.result() == ""
    pool.shutdown()
    assert not Path("ran").exists()
    # Nothing is left of what was sent.
    assert not list(world.parent.glob("packhorse-*"))


def test_map_keeps_the_order_and_takes_chunks() -> None:
    with packhorse.Executor(slots=4) as pool:
        assert list(pool.map(f.double, range(10))) == list(range(0, 20, 2))
        assert list(pool.map(f.add, range(7), range(7), chunksize=3)) == list(range(0, 14, 2))
        with pytest.raises(ValueError, match="bad"):
            list(pool.map(f.fail, ["bad"]))
        with pytest.raises(ValueError):
            pool.map(f.double, [1], chunksize=0)


def test_tasks_are_named_after_their_functions() -> None:
    class Odd:
        """It has a `func` which is not what is called."""

        func = 5

        def __call__(self) -> None: ...

    import functools

    from packhorse._chunks import call_each
    from packhorse._pool import _name

    assert _name(f.double) == "functions.double"
    assert _name(functools.partial(functools.partial(f.add, 1), 2)) == "functions.add"
    assert _name(Odd()).endswith("Odd")
    assert _name(call_each, (functools.partial(f.add, 1), [])) == "chunk of functions.add"
    with packhorse.Executor(slots=1) as pool:
        list(pool.map(f.double, range(4), chunksize=2))
    assert "chunk of functions.double" in program("show", "1")


def test_map_with_a_buffer_takes_endless_arguments() -> None:
    taken: list[int] = []

    def numbers() -> itertools.count[int]:
        for number in itertools.count():
            taken.append(number)
            yield number  # type: ignore[misc]

    with packhorse.Executor(slots=2) as pool:
        results = pool.map(f.double, numbers(), buffersize=3)
        assert taken == [0, 1, 2]
        assert list(itertools.islice(results, 4)) == [0, 2, 4, 6]
        assert len(taken) <= 7


def test_map_runs_everything_even_if_nobody_looks() -> None:
    with packhorse.Executor(slots=2) as pool:
        pool.map(f.touch, [os.path.abspath(f"file{n}") for n in range(5)])
    assert len(list(Path(".").glob("file*"))) == 5


def test_map_gives_up_in_time(gate: str) -> None:
    with packhorse.Executor(slots=1) as pool:
        pool.submit(f.wait_at, gate)
        # It is running, and nothing else can.
        with open(gate, "w"):
            results = pool.map(f.touch, [os.path.abspath("ran")], timeout=0.05)
            with pytest.raises(concurrent.futures.TimeoutError):
                next(results)
    assert not Path("ran").exists()


def test_a_hundred_megabytes_travel_both_ways(world: Path) -> None:
    size = 100 << 20
    data = b"x" * size
    with packhorse.Executor(slots=1) as pool:
        result = pool.submit(f.large, size, data).result()
        assert result == data
    assert not list(world.parent.glob("packhorse-*"))


def test_files_are_removed_as_results_are_read(world: Path) -> None:
    with packhorse.Executor(slots=2) as pool:
        futures = [pool.submit(f.nothing) for _ in range(20)]
        packhorse.wait(futures)
        pool.submit(f.nothing).result()
        [folder] = world.parent.glob("packhorse-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert not [path for path in folder.iterdir() if path.name.split(".")[0] != "21"]


def test_results_that_were_taken_do_not_pile_up(world: Path) -> None:
    def kept() -> tuple[int, int]:
        gc.collect()
        # Sent tasks have files, too.
        [folder] = world.parent.glob("packhorse-*")
        return len(gc.get_objects()), len(list(folder.iterdir()))

    with packhorse.Executor(slots=2, preload=[]) as pool:
        results = pool.map(f.double, itertools.count(), buffersize=16)
        assert list(itertools.islice(results, 100)) == list(range(0, 200, 2))
        objects, files = kept()
        for _ in itertools.islice(results, 400):
            pass
        more_objects, more_files = kept()
        results.close()  # type: ignore[attr-defined]
    # One thing for each result would be four hundred.
    assert more_objects - objects < 200, (objects, more_objects)
    assert more_files <= 64 and files <= 64


def test_nothing_is_left_of_a_process_that_was_killed_early_or_late(world: Path) -> None:
    with packhorse.Executor(slots=1) as pool:
        pool.submit(f.leave_half_a_result).exception()
        # It has put back what it was sent, as if it had been killed before it took it.
        pool.submit(f.leave_untaken).exception()
        pool.submit(f.nothing).result()
        [folder] = world.parent.glob("packhorse-*")
        assert [path.name for path in folder.iterdir() if path.name[0] in "12"] == []


@pytest.mark.parametrize("size", [10, 2 << 20])
def test_what_cannot_be_written_is_an_error_of_its_future(size: int, world: Path) -> None:
    with packhorse.Executor(slots=1) as pool:
        pool.submit(f.nothing).result()
        [folder] = world.parent.glob("packhorse-*")
        # What comes next finds its place taken.
        (folder / "2.task").write_text("")
        future = pool.submit(f.large, 1, b"x" * size)
        with pytest.raises(FileExistsError):
            future.result()
        assert not future.cancel()
        assert pool.submit(f.double, 4).result() == 8


def test_futures_do_not_wait_in_files(world: Path, gate: str) -> None:
    with packhorse.Executor(slots=1) as pool:
        pool.submit(f.wait_at, gate)
        waiting = [pool.submit(f.nothing) for _ in range(1000)]
        [folder] = world.parent.glob("packhorse-*")
        assert len(list(folder.iterdir())) < 300
        for future in waiting:
            future.cancel()
        open_gate(gate)


def test_threads_may_share_an_executor() -> None:
    results: list[int] = []
    with packhorse.Executor(slots=4) as pool:

        def use(start: int) -> None:
            results.extend(pool.submit(f.double, start + n).result() for n in range(5))

        threads = [threading.Thread(target=use, args=(10 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == sorted(2 * (10 * n + k) for n in range(4) for k in range(5))


def test_asyncio_can_use_it() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        with packhorse.Executor(slots=2) as pool:
            calls = [loop.run_in_executor(pool, f.double, n) for n in range(4)]
            return list(await asyncio.gather(*calls))

    assert asyncio.run(main()) == [0, 2, 4, 6]


def test_callbacks_may_submit_more() -> None:
    more: list[packhorse.Future[int]] = []
    added = threading.Event()
    with packhorse.Executor(slots=1) as pool:

        def go_on(future: concurrent.futures.Future[int]) -> None:
            more.append(pool.submit(f.double, future.result()))
            added.set()

        pool.submit(f.double, 1).add_done_callback(go_on)
        assert added.wait(20)
    assert more[0].result() == 4


def test_wrong_options_are_refused_before_anything_starts(world: Path) -> None:
    with pytest.raises(TypeError, match="did you mean 'retries'"):
        packhorse.Executor(retry=1)  # type: ignore[call-arg]
    pool = packhorse.Executor(slots=1, vram="9X")
    with pytest.raises(packhorse.PackhorseError, match="9X"):
        pool.submit(f.nothing)
    assert not list(world.parent.glob("packhorse-*"))
    with pytest.raises(ValueError, match="devices is empty"):
        packhorse.Executor(devices=[])


def test_a_binary_that_is_killed_breaks_the_executor(world: Path) -> None:
    os.mkfifo("said")
    os.mkfifo("said.never")
    pool = packhorse.Executor(slots=1)
    running = pool.submit(f.announce, os.path.abspath("said"))
    waiting = pool.submit(f.nothing)
    task, program = map(int, hear("said").split())
    os.kill(program, 9)
    for future in (running, waiting):
        with pytest.raises(concurrent.futures.BrokenExecutor, match="signal 9"):
            future.result()
    with pytest.raises(packhorse.BrokenRun):
        pool.submit(f.nothing)
    pool.shutdown()
    # What it had started is not left behind.
    assert not is_alive(task)
    assert not list(world.parent.glob("packhorse-*"))


def test_a_run_that_is_stopped_from_elsewhere_breaks_the_executor() -> None:
    os.mkfifo("said")
    os.mkfifo("said.never")
    with packhorse.Executor(slots=1) as pool:
        running = pool.submit(f.announce, os.path.abspath("said"))
        waiting = pool.submit(f.nothing)
        hear("said")
        program("stop", "1")
        with pytest.raises(packhorse.BrokenRun, match="stopped"):
            running.result()
        with pytest.raises(packhorse.BrokenRun, match="stopped"):
            waiting.result()


def test_lambdas_work_with_cloudpickle_and_are_explained_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs("python")
    with packhorse.Executor(slots=1) as pool:
        factor = 3
        assert pool.submit(lambda x: x * factor, 2).result() == 6
        monkeypatch.setattr("packhorse._payload.cloudpickle", None)
        with pytest.raises(pickle.PicklingError, match="pip install cloudpickle"):
            pool.submit(lambda: 1).result()


def test_modules_are_found_where_the_program_finds_them_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    os.mkdir("late")
    Path("late/latecomer.py").write_text("def seven(): return 7\n")
    with packhorse.Executor(slots=1) as pool:
        pool.submit(f.nothing).result()
        monkeypatch.syspath_prepend(os.path.abspath("late"))
        import latecomer  # type: ignore[import-not-found]

        assert pool.submit(latecomer.seven).result() == 7


def test_a_fork_of_the_program_cannot_disturb_the_run() -> None:
    with packhorse.Executor(slots=1) as pool:
        assert pool.submit(f.double, 1).result() == 2
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                pool.submit(f.nothing)
            except packhorse.BrokenRun:
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert pool.submit(f.double, 2).result() == 4


def test_a_fork_that_leaves_normally_ends_and_leaves_the_run_alone() -> None:
    """Forked in the middle of things, and ended as any program: nothing is closed twice."""
    os.mkfifo("gate")
    done = Script(
        """
        import os, sys
        import functions as f
        import packhorse

        with packhorse.Executor(slots=1) as pool:
            running = pool.submit(f.wait_at, os.path.abspath("gate"))
            waiting = [pool.submit(f.double, n) for n in range(100)]
            pid = os.fork()
            if pid == 0:
                # As many files as there may be: none of their numbers is closed under them.
                files = [open(os.devnull) for _ in range(20)]
                assert not waiting[0].cancel() and not waiting[99].cancel()
            else:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with open("gate", "w"):
                    pass
                assert [future.result() for future in waiting] == [2 * n for n in range(100)]
        if pid == 0:
            del pool, running, waiting
            import gc
            gc.collect()
            for file in files:
                file.read(1)
                file.close()
            sys.exit(0)
        print("child", status)
        """
    ).run(env={**os.environ, "PYTHONPATH": _path_with_functions()})
    assert done.stdout == "child 0\n" and done.returncode == 0, done
    assert "Bad file descriptor" not in done.stderr, done.stderr


def _path_with_functions() -> str:
    given = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).parent)
    return f"{here}:{given}" if given else here


def test_its_run_is_neither_retried_nor_resumed() -> None:
    """Its calls are gone with this program: what is known of them stays as it is."""
    with packhorse.Executor(slots=1) as pool:
        failed = pool.submit(os._exit, 7)
        assert "exit status 7" in str(failed.exception())
    before = program("show", "1")
    assert "exit status 7" in before and "retry" not in before
    for verb in ("retry", "resume"):
        assert "start the program again" in program(verb, "1")
    assert program("show", "1") == before
