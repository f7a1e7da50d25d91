"""One ``start()``: sends the tests to packhorse, and follows them to their ends."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from typing import IO, Any

from .. import _payload, _worker
from .._driver import Driver, Event
from .._errors import BrokenRun, PackhorseError
from ._failures import FailedTest, GridReport
from ._marker import is_done
from ._test_process import call_main
from .config_manager import ConfigManager
from .gpu_task import GPUTask


class _Test:
    """A test that was sent and has not ended."""

    def __init__(self, path: str, name: str, work_dir: str, config: dict[str, Any]) -> None:
        self.path = path
        self.name = name
        self.work_dir = work_dir
        self.config = config
        #: Whether an attempt has started.
        self.started = False
        #: The GPU, by its place, that it runs or last ran on.
        self.gpu: int | None = None


class GridRun:
    """One ``start()``."""

    def __init__(self, manager: ConfigManager, gpu_task_class: type[GPUTask]) -> None:
        self._manager = manager
        self._class = gpu_task_class
        self._settings = manager.get_all_scheduler_config()
        envs = [gpu["env"]["CUDA_VISIBLE_DEVICES"] for gpu in manager.get_gpu_envs()]
        self._gpus = [_label(visible) for visible in envs]
        self._sent: dict[str, _Test] = {}
        #: How many were sent and have not started; a few more than can start at once.
        self._waiting = 0
        self._window = 2 * len(self._gpus) + 8
        self._number = 0
        self._all_sent = False
        self._driver: Driver | None = None
        self._temporary = ""
        #: The folder above, if it was not there before.
        self._made = ""
        self._about = b""
        self._succeeded = self._skipped = 0
        self._failed: list[FailedTest] = []
        self._log_file: IO[str] | None = None
        self._program = _worker.program()
        #: What all tests have in common.
        self._keys: dict[str, Any] = {
            # What is done about a failure is up to whoever starts the grid again.
            "retries": 0,
            **manager.get_task_keys(),
        }
        self._env = {**_backend(), **self._keys.pop("env", {})}
        self._pythonpath: tuple[str | None, str] = (None, "")
        if "preload" in self._keys:
            ours = ["packhorse._worker", call_main.__module__]
            self._keys["preload"] = [*ours, *self._keys["preload"]]
            self._pythonpath = _payload.python_path(self._env, with_folder=True)
            if self._pythonpath[0] is not None:
                self._env["PYTHONPATH"] = self._pythonpath[0]

    def run(self) -> GridReport:
        path = self._settings["scheduler_log_file_path"]
        if path is not None:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            self._log_file = open(path, "a", encoding="utf-8")
        try:
            self._fill_first()
            if self._driver is not None:
                self._follow(self._driver)
            for gpu in self._free():
                self._log(f"gpu{gpu} finished")
            self._tell_failures()
        finally:
            if self._log_file is not None:
                self._log_file.close()
        run = None if self._driver is None else self._driver.run
        return GridReport(run, self._succeeded, self._skipped, self._failed)

    # -- sending tests ---------------------------------------------------------------------

    def _fill_first(self) -> None:
        """Sends the first tests."""
        try:
            self._fill()
        except BaseException:
            self._all_sent = True
            if self._driver is not None and self._driver.run is not None:
                self._stop(self._driver)
            raise

    def _fill(self) -> None:
        """Sends as many tests as can start soon."""
        while not self._all_sent and self._waiting < self._window:
            test = self._manager.get_next_config()
            if test["config"] is None:
                self._all_sent = True
                if self._driver is not None:
                    self._driver.end_input()
                return
            if not self._settings["force_rerun"] and is_done(test["work_dir"]):
                self._skipped += 1
                gpu = next(iter(self._free()), 0)
                self._log(f"gpu{gpu} skips task {test['test_config_string']}")
                continue
            self._send(test)

    def _send(self, test: dict[str, Any]) -> None:
        name, work_dir, config = test["test_config_string"], test["work_dir"], test["config"]
        try:
            task = self._class(config, work_dir)
            required = (task.required_env() or {}).items()
            variables = {str(key): str(value) for key, value in required}
            data = _dumps(task)
        except Exception as error:
            # One test that cannot be prepared must not keep the others from running.
            self._log(f"task {name} cannot be prepared: {error}")
            traceback.print_exc()
            self._failed.append(FailedTest(work_dir, config, f"not prepared: {error}", None, None))
            return
        if self._driver is None:
            self._start()
        assert self._driver is not None
        self._number += 1
        path = os.path.join(self._temporary, str(self._number))
        with open(path + ".task", "xb") as file:
            file.write(self._about + data)
        folder = os.path.abspath(work_dir)
        line = {
            "command": [*self._program, path, f"{self._class.__name__} {name}"],
            "results": folder,
            "params": _params(config),
            "env": {**self._env, **variables},
            "log": _log_path(folder, self._settings["log_file"]),
            **self._keys,
        }
        self._sent[path] = _Test(path, name, work_dir, config)
        self._waiting += 1
        try:
            self._driver.send(json.dumps(line) + "\n")
        except BrokenPipeError:
            # It has ended, which its reader is told too.
            self._all_sent = True

    def _start(self) -> None:
        parent = os.path.abspath(self._settings["temp_folder"] or tempfile.gettempdir())
        self._made = "" if os.path.isdir(parent) else parent
        os.makedirs(parent, exist_ok=True)
        self._temporary = tempfile.mkdtemp(prefix="packhorse-", dir=parent)
        module = sys.modules.get(self._class.__module__)
        file = getattr(module, "__file__", None)
        named = None
        if self._class.__module__ != "__main__" and file is not None:
            named = (self._class.__module__, os.path.abspath(file))
        # The original's tests find modules in the folder that it was started in, too.
        self._about = _payload.about(
            keep=False, module=named, with_folder=True, pythonpath=self._pythonpath
        )
        as_written = ["--as-written"] if self._manager.is_handed_out_as_written() else []
        try:
            words = [*as_written, "--gpus", *self._manager.get_gpu_words()]
            # The original sets the variable for each test, and never reads it.
            self._driver = Driver(words, without="CUDA_VISIBLE_DEVICES")
            self._driver.started()
        except BaseException:
            self._remove_temporary()
            raise

    # -- what becomes of them --------------------------------------------------------------------

    def _follow(self, driver: Driver) -> None:
        try:
            for event in driver.events():
                self._happened(event)
        except BaseException:
            # Ctrl-C, or something that nothing works without: nothing is left running.
            self._all_sent = True
            self._stop(driver)
            raise
        driver.wait()
        driver.end_leftovers()
        self._remove_temporary()
        if driver.exit is None:
            said = driver.said()
            raise BrokenRun(f"packhorse ended unexpectedly ({driver.status()})\n{said}".strip())
        if self._sent:
            raise BrokenRun(f"the run was stopped: {len(self._sent)} tests are left")

    def _stop(self, driver: Driver) -> None:
        driver.stop()
        for event in driver.events():
            if event["event"] == "finished":
                self._happened(event)
        driver.wait()
        self._remove_temporary()

    def _happened(self, event: Event) -> None:
        kind = event["event"]
        if kind == "started":
            test = self._sent.get(event["command"][-2])
            if test is None:
                return
            # Each attempt starts, on a GPU of its own; what was sent waits for the first.
            if not test.started:
                test.started = True
                self._waiting -= 1
            test.gpu = None
            test.gpu = self._take(event["gpus"])
            self._log(f"gpu{test.gpu} receives task {test.name}")
            self._fill()
        elif kind == "finished":
            self._finished(self._sent.pop(event["command"][-2]), event)
            self._fill()
        elif kind == "warning":
            message = event["message"]
            if event["task"] is None and message.startswith("a line was not run"):
                raise PackhorseError(message)
            self._log(f"warning: {message}")

    def _free(self) -> list[int]:
        """The GPUs that nothing runs on. Ids may be there twice, so by their place."""
        taken = {test.gpu for test in self._sent.values()}
        return [gpu for gpu in range(len(self._gpus)) if gpu not in taken]

    def _take(self, gpus: list[str]) -> int:
        """Which of the GPUs it is: one that is free, if it is there twice."""
        # A test that asked for several has several; the first one stands for them.
        label = _label(gpus[0]) if gpus else ""
        for gpu in self._free():
            if self._gpus[gpu] == label:
                return gpu
        return self._gpus.index(label) if label in self._gpus else 0

    def _finished(self, test: _Test, event: Event) -> None:
        if not test.started:
            self._waiting -= 1
        outcome = event["outcome"]
        if outcome == "succeeded":
            self._succeeded += 1
            ending = ""
            _remove(test.path + ".run")
        else:
            # What it was sent stays: `packhorse retry` sends it again.
            reason = _reason(event)
            ending = f": {reason}"
            log = event["log"] if isinstance(event["log"], str) else None
            self._failed.append(
                FailedTest(test.work_dir, test.config, reason, event["task"], log)
            )
        where = "" if test.gpu is None else f"gpu{test.gpu} "
        self._log(f"{where}finishes task {test.name}{ending}")

    def _tell_failures(self) -> None:
        if not self._failed:
            return
        count = self._succeeded + len(self._failed)
        lines = [f"{len(self._failed)} of {count} tests failed:"]
        for failed in self._failed[:20]:
            lines.append(f"  {failed.work_dir}: {failed.reason}")
        if len(self._failed) > 20:
            lines.append(f"  and {len(self._failed) - 20} more")
        run = None if self._driver is None else self._driver.run
        again = "start again" if run is None else f"start again, or `packhorse retry {run}`,"
        lines.append(f"hint: {again} to run them again")
        self._log("\n".join(lines), sys.stderr)

    def _log(self, text: str, console: Any = None) -> None:
        """Says it on the console, and writes it into the scheduler's log."""
        line = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {text}"
        print(line, file=console or sys.stdout, flush=True)
        if self._log_file is not None:
            self._log_file.write(line + "\n")
            self._log_file.flush()

    def _remove_temporary(self) -> None:
        """Removes what was sent, unless it would be needed to try again."""
        if not self._failed:
            shutil.rmtree(self._temporary, ignore_errors=True)
            try:
                if self._made:
                    os.rmdir(self._made)
            except OSError:
                # Somebody else uses it by now.
                pass


def _label(gpu: str) -> str:
    """A GPU or a group, written one way: events tell groups as they were given, `0+1` or
    `0,1`."""
    return gpu.replace("+", ",")


def _dumps(task: GPUTask) -> bytes:
    """The task object: its class by name, which is then loaded from its file."""
    call: Any = (call_main, (task,), {})
    try:
        return pickle.dumps(call, 5)
    except Exception:
        return _payload.dumps(call)


def _params(config: dict[str, Any]) -> dict[str, Any]:
    """The parameters as JSON has them; what it does not know, as Python prints it."""
    params: dict[str, Any] = {}
    for key, value in config.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            value = str(value)
        params[str(key)] = value
    return params


def _backend() -> dict[str, str]:
    """Figures are not shown but saved, unless somebody has said otherwise."""
    chosen = os.environ.get("MPLBACKEND", "")
    # That of a notebook is for its own process.
    return {"MPLBACKEND": "Agg"} if not chosen or chosen.startswith("module://") else {}


def _log_path(folder: str, log_file: str | None) -> str:
    return os.devnull if log_file is None else os.path.join(folder, log_file)


def _reason(event: Event) -> str:
    outcome, detail = event["outcome"], event["detail"]
    return {
        "failed": f"exit status {detail}",
        "killed": f"killed by signal {detail}",
        "timed-out": "it ran longer than its time limit",
        "not-started": f"it could not be started: {event['message']}",
    }.get(outcome, str(outcome))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
