"""Functions and commands on a real Slurm cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import packhorse
import pytest
from conftest import PATIENCE, Cluster, Script, hear, needs
from packhorse._future import Call, Future
from packhorse._slurm_pool import SlurmPool

HEAD = """
    import concurrent.futures, fcntl, os, signal, socket, subprocess, sys
    import packhorse

    HEARD = socket.socketpair()
    HEARD[1].setblocking(False)

    def runs():
        return sorted(int(n) for n in os.listdir("packhorse-slurm") if n.isdigit())

    def listen(folder):
        # Whatever is made in the folder from now on ends `wait_for_change`.
        signal.set_wakeup_fd(HEARD[1].fileno())
        signal.signal(signal.SIGIO, lambda *_: None)
        made = fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
        fcntl.fcntl(os.open(folder, os.O_RDONLY), fcntl.F_NOTIFY, made)

    def wait_for_change():
        HEARD[0].recv(1)

    def queue():
        return subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout

    def where(n):
        print("call", n)
        return n, os.environ["SLURMD_NODENAME"], os.environ["CUDA_VISIBLE_DEVICES"]

    def fail(text):
        print("said before", flush=True)
        raise ValueError(text)

    def fail_once(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            return os.environ["PACKHORSE_ATTEMPT"]
        os._exit(3)

    def touch(path):
        open(path, "w").close()

    def tell_and_wait(pipe):
        open(pipe, "w").write(os.environ["SLURM_JOB_ID"])
        open("never").read()

    def wait_once(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            return os.environ["SLURM_RESTART_COUNT"], os.environ["PACKHORSE_ATTEMPT"]
        element = os.environ["SLURM_ARRAY_JOB_ID"] + "_" + os.environ["SLURM_ARRAY_TASK_ID"]
        open("told", "w").write(element)
        open("never").read()

    def mebibytes(data, count):
        return len(data), bytes(count << 20)

"""


def program(text: str) -> Script:
    """What stands behind the guard of a program with those functions."""
    lines = "".join(f"        {line}\n" for line in text.strip("\n").split("\n"))
    return Script(HEAD + '    if __name__ == "__main__":\n' + lines)


@pytest.mark.parametrize("version", [[], ["--24.11"]], ids=["host", "24.11"])
def test_calls_are_collected_into_one_array_and_come_back(
    cluster: Cluster, version: list[str]
) -> None:
    if version:
        needs("slurm-24")
    done = cluster.inside(
        program(
            """
import packhorse._slurm_pool
# Whoever waits for a call does not wait until no more come.
packhorse._slurm_pool._QUIET = 3600
with packhorse.Executor(engine="slurm", gres="gpu:2", time=10, gpus=0.5) as pool:
    futures = [pool.submit(where, n) for n in range(12)]
    print(sorted(future.result()[0] for future in packhorse.as_completed(futures)))
    found = {future.result()[1:] for future in futures}
    print({node for node, _ in found} <= {"n1", "n2"}, {gpu for _, gpu in found} <= set("0123"))
    print(runs(), futures[3].task, futures[3].gpu in "0123", futures[3].attempts)
    print(open(futures[3].log).read().strip(), os.path.isdir("packhorse-slurm/1"))
    # What comes later is another run.
    print(list(pool.map(where, [1, 2, 3], chunksize=2))[2][0], runs())
    # Nor does the end of the block.
    last = pool.submit(where, 4)
print(last.done(), runs())
print([name for name in os.listdir("packhorse-slurm") if not name.isdigit()])
"""
        ),
        *version,
    ).run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (
        f"{list(range(12))}\nTrue True\n[1] 1.4 True 1\ncall 3 True\n3 [1, 2]\n"
        "True [1, 2, 3]\n[]\n"
    ), done.stderr


def test_exceptions_deaths_and_retries_are_told(cluster: Cluster) -> None:
    done = cluster.inside(
        program(
            """
with packhorse.Executor(engine="slurm", slots=4, time=10, retries=1) as pool:
    failed, again = pool.submit(fail, "oh"), pool.submit(fail_once, "once")
    died = pool.submit(os._exit, 7)
    # They are submitted when no more come, whoever waits and how.
    print(len(concurrent.futures.wait([failed, again, died]).done), runs())
    print(repr(failed.exception()), "raise ValueError(text)" in str(failed.exception().__cause__))
    print(failed.attempts, again.result(), again.attempts)
    error = died.exception()
    print(type(error).__name__, error.detail, "said before" in open(failed.log).read())
    size, data = pool.submit(mebibytes, bytes(5 << 20), 6).result()
    print(size >> 20, len(data) >> 20)
"""
        )
    ).run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (
        "3 [1]\nValueError('oh') True\n2 2 2\nTaskError 7 True\n5 6\n"
    ), done.stderr


def test_a_call_whose_job_is_put_back_happens_again(cluster: Cluster) -> None:
    done = cluster.inside(
        program(
            """
os.mkfifo("told"); os.mkfifo("never")
with packhorse.Executor(engine="slurm", slots=2, time=10) as pool:
    done, again = pool.submit(abs, -3), pool.submit(wait_once, "once")
    print(done.result())
    subprocess.run(["scontrol", "requeue", open("told").read()], check=True)
    print(*again.result(), again.attempts, runs())
"""
        )
    ).run()
    assert done.stdout == "3\n1 2 2 [1]\n", done.stdout + done.stderr


def test_whoever_waits_for_a_call_hurries_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool = SlurmPool([], {}, shared=str(tmp_path), by_signature=True, pythonpath=(None, ""))
    call = Call(Future(), str(tmp_path / "1"), "call")
    pool._folder = str(tmp_path / "folder")
    awaited = []

    def next_calls() -> list[Call] | None:
        awaited.append(set(pool._awaited))
        return [call] if len(awaited) == 1 else None

    monkeypatch.setattr(pool, "_next_calls", next_calls)
    # Somebody begins to wait while it is being written.
    monkeypatch.setattr(pool, "_submit", lambda calls: pool.hurry(call))
    pool._collect()
    assert awaited == [set(), set()]


def test_what_slurm_refuses_is_told_by_the_future_and_later_calls(cluster: Cluster) -> None:
    done = cluster.inside(
        program(
            """
pool = packhorse.Executor(engine="slurm", partition="nowhere", time=10)
future = pool.submit(where, 1)
print(type(future.exception()).__name__, "partition" in str(future.exception()))
try:
    pool.submit(where, 2)
except packhorse.PackhorseError as error:
    print("again", "partition" in str(error))
pool.shutdown()
print(os.listdir("packhorse-slurm"))
"""
        )
    ).run()
    assert done.stdout == "PackhorseError True\nagain True\n[]\n", done.stdout + done.stderr


def test_what_is_cancelled_never_runs(cluster: Cluster) -> None:
    done = cluster.inside(
        program(
            """
os.mkfifo("told"); os.mkfifo("never")
pool = packhorse.Executor(engine="slurm", slots=1, time=10, cpus_per_task=8, jobs=1)
# Not even submitted.
print(pool.submit(touch, "one").cancel())
running = pool.submit(tell_and_wait, "told")
print(open("told").read() != "", running.cancel())
# The node is full: these wait in Slurm's queue.
waiting = [pool.submit(touch, f"two{n}") for n in range(3)]
packhorse.wait(waiting, timeout=0)
listen("packhorse-slurm")
while len(runs()) < 2:
    wait_for_change()
open("never", "w").close()
print([future.cancel() for future in waiting], running.exception())
pool.shutdown(cancel_futures=True)
print([name for name in os.listdir(".") if name.startswith(("one", "two"))], queue())
"""
        ),
        "--nodes", "1",
    ).run()  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "True\nTrue False\n[True, True, True] None\n[] \n", done.stderr


WAITING = """
import signal
os.mkfifo("never")
pool = packhorse.Executor(engine="slurm", slots=2, time=10)
with pool:
    futures = [pool.submit(tell_and_wait, "told") for _ in range(2)]
    futures[0].result()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_jobs_end_with_the_program(cluster: Cluster, number: signal.Signals) -> None:
    os.mkfifo("told")
    program(WAITING)
    # The cluster outlives the program, and says what is left in its queue.
    watch = """
        import subprocess, sys
        subprocess.run([sys.executable, 'script.py'])
        after = ["--dependency", "afterany:" + open("job").read()]
        subprocess.run(["sbatch", "-Q", "-W", *after, "-o", "/dev/null", "--wrap", "true"])
        print("left", subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout)
    """
    process = cluster.inside(Script(watch, name="watch.py")).start()
    try:
        Path("job").write_text(hear("told"))
        [found] = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if path.read_bytes().endswith(b"script.py\0") and _is_here(path.parent)
        ]
        os.kill(found, number)
        out, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert out == "left \n", said
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)


def _is_here(process: Path) -> bool:
    try:
        return (process / "cwd").readlink() == Path.cwd()
    except OSError:
        return False


def test_commands_run_on_the_cluster(cluster: Cluster) -> None:
    done = cluster.inside(
        program(
            """
run = packhorse.run(["echo $SLURMD_NODENAME", "exit 3"], engine="slurm", slots=2, time="10m")
print([event["event"] for event in run][0], run.exit)
print([(result.outcome, result.detail) for result in run.results])
print(open(run.results[0].log).read().strip() in ("n1", "n2"))
"""
        )
    ).run()
    assert done.stdout == (
        "run-started 1\n[('succeeded', None), ('failed', 3)]\nTrue\n"
    ), done.stdout + done.stderr


def test_options_of_slurm_need_slurm() -> None:
    with pytest.raises(TypeError, match='partition is for engine="slurm"'):
        packhorse.Executor(partition="gpu")
    with pytest.raises(ValueError, match='"local" and "slurm"'):
        packhorse.Executor(engine="cloud")  # type: ignore[arg-type]
    with packhorse.Executor(engine="local", slots=1) as pool:
        assert pool.submit(abs, -3).result() == 3
