"""The options of ``packhorse run`` as keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, Union

Device = Union[str, int, Iterable[Union[str, int]]]


class RunOptions(TypedDict, total=False):
    """Where tasks run, and what holds for every task that says nothing itself."""

    #: How many GPUs a task gets, or what part of one: ``2``, ``0.5``, ``"1/3"``.
    gpus: float | str | None
    #: Memory of each of its GPUs: ``"9G"``, a number of bytes, ``"auto"``.
    vram: int | str | None
    #: Only use GPUs whose name contains this.
    gpu_model: str | None
    #: What GPU memory is remembered by, instead of the shape of the command.
    signature: str | None
    #: How to measure a command first: a template with ``{}`` where it goes.
    probe: str | None
    #: How many cores a task gets for itself, or ``"auto"`` for an equal part.
    cores: int | Literal["auto"] | None
    #: How many cores a task keeps busy; counted, not pinned.
    cpu: float | None
    #: Main memory a task needs; counted, not enforced.
    ram: int | str | None
    #: How many more times to try a task that fails.
    retries: int | None
    #: How long one attempt may take: seconds, ``"2h"``, ``"never"``.
    timeout: float | str | None
    #: How long an attempt has between SIGTERM and SIGKILL.
    grace: float | str | None
    #: Environment variables of every task.
    env: Mapping[str, str] | None
    #: The GPUs to use: ``[0, 1]``, ``"0,1"``, ``[["0", "1"], ["2", "3"]]`` for pairs. The
    #: default is all of them, or those in ``CUDA_VISIBLE_DEVICES``.
    devices: str | int | Iterable[Device] | None
    #: Use no GPUs, and run at most so many tasks at a time.
    slots: int | None
    #: At most so many tasks on one GPU.
    max_per_gpu: int | None
    #: Processes whose GPU memory does not count.
    ignore_process: str | Iterable[str] | None
    #: Whether to coordinate with other runs on this machine.
    leases: bool | None
    #: Whether tasks that run at the same time are told how many threads to start.
    thread_caps: bool | None
    #: Whether to share GPUs through NVIDIA's Multi-Process Service.
    mps: bool | None
    #: The part of a GPU's threads that a task may use under MPS, in percent.
    thread_percentage: float | None
    #: How long a task waits to count as one priority more urgent, or ``"off"``.
    ageing: float | str | None
    #: How long the memory of a task of an unknown kind must rest.
    rest: float | str | None
    #: Which GPU a task gets when several would do.
    place: Literal["pack", "spread"] | None
    #: Where tasks run: on this machine, or in jobs of a Slurm cluster. What follows is about
    #: those.
    engine: Literal["local", "slurm"] | None
    #: The partition.
    partition: str | None
    #: The account.
    account: str | None
    #: The GPUs of each job: ``"gpu:4"``, ``"gpu:a100:2"``.
    gres: str | None
    #: How long one job may take: minutes, ``"2h30m"``, ``"1-12:00:00"``.
    time: int | str | None
    #: The cores of each job.
    cpus_per_task: int | None
    #: Main memory of each job: ``"64G"``.
    mem: str | None
    #: More arguments of sbatch: ``["--constraint=a100"]``.
    sbatch: str | Iterable[str] | None
    #: At most so many jobs at a time.
    jobs: int | None
    #: How long a task takes, if you know: seconds, ``"10m"``.
    task_time: float | str | None
    #: How many more times to run a task whose job was cut off.
    requeues: int | None
    #: A folder that every node sees; ``packhorse-slurm`` in the current one if left out.
    slurm_folder: str | os.PathLike[str] | None


#: Options that take one value, under their name on the command line.
_PLAIN = {
    "gpus": "--gpus-per-task",
    "vram": "--vram",
    "gpu_model": "--gpu-model",
    "signature": "--signature",
    "probe": "--probe",
    "cores": "--cores",
    "cpu": "--cpu",
    "ram": "--ram",
    "retries": "--retries",
    "timeout": "--timeout",
    "grace": "--grace",
    "slots": "--slots",
    "max_per_gpu": "--max-per-gpu",
    "thread_percentage": "--thread-percentage",
    "ageing": "--ageing",
    "rest": "--rest",
    "place": "--place",
}
#: The same for those about Slurm.
_SLURM = {
    "partition": "--partition",
    "account": "--account",
    "gres": "--gres",
    "time": "--time",
    "cpus_per_task": "--cpus-per-task",
    "mem": "--mem",
    "jobs": "--jobs",
    "task_time": "--task-time",
    "requeues": "--requeues",
    "slurm_folder": "--slurm-folder",
}
#: What a bare number means there: seconds.
_TIMES = ("timeout", "grace", "ageing", "rest", "task_time")
#: The folder for what a run and its jobs tell each other, if nobody says.
SLURM_FOLDER = "packhorse-slurm"


def arguments(options: Mapping[str, Any]) -> list[str]:
    """The words for ``packhorse run``. An option that there is not is a ``TypeError``."""
    words: list[str] = ["--slurm", "--wait"] if is_on_slurm(options) else []
    for name, value in options.items():
        if value is None or name == "engine":
            continue
        if name in _PLAIN:
            words.append(f"{_PLAIN[name]}={_plain(name, value)}")
        elif name in _SLURM or name == "sbatch":
            if not is_on_slurm(options):
                raise TypeError(f'{name} is for engine="slurm"')
            if name == "sbatch":
                several = [value] if isinstance(value, str) else value
                words += [f"--sbatch={argument}" for argument in several]
            else:
                words.append(f"{_SLURM[name]}={_plain(name, value)}")
        elif name == "env":
            for variable, content in value.items():
                words.append(f"--env={variable}={content}")
        elif name == "devices":
            words += ["--gpus", *_devices(value)]
        elif name == "ignore_process":
            several = [value] if isinstance(value, (str, int)) else value
            words += [f"--ignore-process={who}" for who in several]
        elif name == "leases":
            words += [] if value else ["--no-leases"]
        elif name == "thread_caps":
            words += [] if value else ["--no-thread-caps"]
        elif name == "mps":
            words.append(f"--mps={'true' if value else 'false'}")
        else:
            raise TypeError(f"there is no option {name!r}{_nearest(name)}")
    return words


def is_on_slurm(options: Mapping[str, Any]) -> bool:
    """Whether tasks run on a Slurm cluster."""
    engine = options.get("engine")
    if engine not in (None, "local", "slurm"):
        raise ValueError(f'engine={engine!r}: there are "local" and "slurm"')
    return bool(engine == "slurm")


def _plain(name: str, value: Any) -> str:
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r} makes no sense: it is no yes-or-no question")
    if name in _TIMES and isinstance(value, (int, float)):
        return f"{value}s"
    return str(value)


def _devices(value: Any) -> list[str]:
    if isinstance(value, (str, int)):
        return [str(value)]
    named = [
        str(device) if isinstance(device, (str, int)) else "+".join(map(str, device))
        for device in value
    ]
    if not named:
        raise ValueError("devices is empty: leave it out to use all GPUs, or use slots=N for none")
    return named


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, RunOptions.__annotations__, 1)
    return f": did you mean {near[0]!r}?" if near else ""
