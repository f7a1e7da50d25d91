"""The run behind an executor: what is sent to it, and what becomes of that.

    submit ──▶ queue ──▶ payload file, task line ──▶ packhorse ──▶ _start.py, a process
    Future ◀── result file ◀──────── event ◀───────────┘               per attempt

One thread reads the events. Arguments and results are files in a private folder: they may
be large, and each is removed as soon as it was read. Only as many tasks as can start soon
are sent, so a million waiting ones take no files, and cancelling those costs nothing.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _payload, _worker
from ._chunks import call_each
from ._driver import Driver, Event
from ._errors import BrokenRun, PackhorseError
from ._future import Call, Future, fail, settle
from ._results import exception, no_result, read_result

_log = logging.getLogger("packhorse")

#: So many tasks may be sent and not started, and as many as are running. More would be files
#: for nothing, and starts for nothing if they are cancelled; with fewer, a free place could
#: wait for us.
_WINDOW = 32
#: Arguments larger than this go to a file at once, instead of waiting in memory.
_LARGE = 1 << 20


class Pool:
    """The run behind an executor. The executor itself may be forgotten before it ends."""

    def __init__(
        self,
        words: list[str],
        keys: dict[str, Any],
        *,
        by_signature: bool,
        pythonpath: tuple[str | None, str],
    ) -> None:
        self._words = words
        self._keys = keys
        self._by_signature = by_signature
        self._pythonpath = pythonpath
        self._lock = threading.RLock()
        self._driver: Driver | None = None
        self._thread: threading.Thread | None = None
        self._folder = ""
        self._numbers = itertools.count(1)
        #: What a task must know first, as long as modules are looked for in these folders.
        self._about = b""
        self._path: list[str] = []
        self._queue: deque[Call] = deque()
        self._sent: dict[str, Call] = {}
        self._tasks: dict[str, Call] = {}
        #: How many were sent and have not started.
        self._waiting = 0
        self._closing = False
        self._input_ended = False
        self._broken: Exception | None = None
        self._over = threading.Event()
        self._program = _worker.program()

    # -- what executors ask for --------------------------------------------------------

    def submit(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Future[Any]:
        self._check_open()
        future: Future[Any] = Future()
        try:
            data = _payload.dumps((function, args, kwargs))
        except Exception as error:
            # As a process pool tells it.
            future.set_running_or_notify_cancel()
            future.set_exception(error)
            return future
        with self._lock:
            self._check_open()
            if not self._folder:
                self._start()
            path = os.path.join(self._folder, str(next(self._numbers)))
            call = Call(future, path, _name(function, args))
            future._pool, future._call = self, call
            if sys.path != self._path:
                self._path = list(sys.path)
                self._about = _payload.about(pythonpath=self._pythonpath)
            call.data = data
            failed = self._write(call) if len(data) > _LARGE else []
            if not failed:
                self._queue.append(call)
                failed = self._fill()
        fail(failed)
        return future

    def give_up(self, call: Call) -> bool:
        """Makes sure that a call never happens, if that can be done; whether this did it."""
        with self._lock:
            if call.cancelled or call.over or call.started:
                return False
            if call.sent or call.data is None:
                try:
                    os.unlink(call.path + ".task")
                except FileNotFoundError:
                    # A process has taken it, and its start is not told yet.
                    return False
            call.cancelled = True
            call.data = None
            return True

    def hurry(self, call: Call) -> None:
        """Somebody waits for it. It is sent as soon as it can start, in any case."""

    def close(self, cancel: bool) -> None:
        """Takes no more; ends when all is done."""
        with self._lock:
            self._closing = True
            calls = [*self._queue, *self._sent.values()] if cancel else []
        for call in calls:
            call.future.cancel()
        with self._lock:
            failed = self._fill()
        fail(failed)

    def join(self) -> None:
        """Waits until all is done. Ctrl-C ends what is running, a second one kills it."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        try:
            self._over.wait()
        except KeyboardInterrupt:
            self.interrupt()
            raise
        thread.join()

    def interrupt(self) -> None:
        """Ends everything as soon as possible, and waits for that."""
        self.close(cancel=True)
        for how in (signal.SIGTERM, signal.SIGQUIT):
            if self._driver is not None and not self._over.is_set():
                self._driver.stop(how)
                try:
                    self._over.wait()
                    return
                except KeyboardInterrupt:
                    continue
        if self._thread is not None:
            self._over.wait()

    def forget(self) -> None:
        """In a forked copy of this process: it is the original's run."""
        # A thread that is not here may have held what was locked.
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._broken = BrokenRun("the run belongs to the process that this one was forked from")
        # Nothing is sent, cancelled or waited for here.
        for call in (*self._queue, *self._sent.values()):
            call.over = True
        self._queue.clear()
        self._sent.clear()
        self._input_ended = True
        self._thread = None
        self._over.set()
        if self._driver is not None:
            self._driver.let_go()

    # -- the run --------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def _start(self) -> None:
        _worker.check_not_loading()
        self._folder = tempfile.mkdtemp(prefix="packhorse-")
        try:
            driver = Driver(["--calls", *self._words])
            driver.started()
            self._thread = threading.Thread(
                target=self._follow, args=(driver,), name="packhorse", daemon=True
            )
            self._driver = driver
            self._thread.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
            raise
        pools.add(self)

    def _fill(self) -> list[tuple[Call, Exception]]:
        """Sends what can start soon; what could not be sent. The lock is held."""
        lines = []
        failed: list[tuple[Call, Exception]] = []
        queue = self._queue
        while queue and (queue[0].cancelled or self._waiting < self._window()):
            call = queue.popleft()
            if call.cancelled:
                continue
            if call.data is not None:
                problem = self._write(call)
                if problem:
                    failed += problem
                    continue
            call.sent = True
            self._waiting += 1
            self._sent[call.path] = call
            lines.append(self._line(call))
        if self._driver is None or self._input_ended:
            return failed
        try:
            if lines:
                self._driver.send("".join(lines))
            if self._closing and not queue:
                self._input_ended = True
                self._driver.end_input()
        except BrokenPipeError:
            # It has ended, which its reader is told too.
            pass
        return failed

    def _write(self, call: Call) -> list[tuple[Call, Exception]]:
        """Writes what is sent to a task; the call if that failed. The lock is held."""
        try:
            call.write(self._about)
        except OSError as error:
            call.over = True
            return [(call, error)]
        return []

    def _window(self) -> int:
        running = len(self._sent) - self._waiting
        return _WINDOW + running

    def _line(self, call: Call) -> str:
        task = {"command": [*self._program, call.path, call.label], **self._keys}
        if self._by_signature:
            task["signature"] = call.label
        return json.dumps(task) + "\n"

    def _follow(self, driver: Driver) -> None:
        """Follows the run to its end. This is the thread."""
        try:
            try:
                for event in driver.events():
                    self._happened(event)
            except BaseException as error:
                # Also what is no Exception: a callback may raise SystemExit.
                _log.exception("the events of packhorse cannot be followed")
                self._broken = BrokenRun(
                    f"the events of packhorse cannot be followed: {error!r}"
                )
                driver.stop()
                for _ in driver.events():
                    pass
            driver.wait()
            driver.end_leftovers()
        except BaseException:
            _log.exception("packhorse cannot be waited for")
        finally:
            # Whatever has happened: nobody may wait for ever.
            try:
                self._end(driver)
            finally:
                self._over.set()

    def _end(self, driver: Driver) -> None:
        """The run has ended: so have all futures."""
        with self._lock:
            left = [call for call in (*self._queue, *self._sent.values()) if not call.cancelled]
            for call in left:
                call.over = True
            self._queue.clear()
            self._sent.clear()
            self._tasks.clear()
            if self._broken is None and (left or not self._closing):
                self._broken = BrokenRun(why_ended(driver))
            broken = self._broken
        for call in left:
            try:
                fail([(call, broken or BrokenRun("the run has ended"))])
            except BaseException:
                # A callback: the other futures are none of its business.
                _log.exception("a callback of a future failed")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _happened(self, event: Event) -> None:
        kind = event["event"]
        if kind == "started":
            self._task_started(event)
        elif kind == "finished":
            self._task_finished(event)
        elif kind == "measured":
            call = self._tasks.get(event["task"])
            if call is not None and event["attempt"] > 0:
                call.future.peak_vram = event["peak"]
        elif kind == "warning":
            message = event["message"]
            if event["task"] is None and message.startswith("a line was not run"):
                # All lines are alike: none will be.
                self._broken = PackhorseError(message.partition("\n")[2].removeprefix("error: "))
                assert self._driver is not None
                self._driver.stop()
            else:
                _log.warning("%s", message)

    def _task_started(self, event: Event) -> None:
        path = event["command"][-2]
        with self._lock:
            call = self._sent.get(path)
            if call is None:
                return
            self._tasks[event["task"]] = call
            future = call.future
            future.task, future.gpus = event["task"], list(event["gpus"])
            first = not call.started
            if first:
                call.started = True
                self._waiting -= 1
            runs = first and not call.cancelled
            failed = self._fill()
        if runs:
            future.set_running_or_notify_cancel()
        fail(failed)

    def _task_finished(self, event: Event) -> None:
        path = event["command"][-2]
        with self._lock:
            call = self._sent.pop(path, None)
            if call is None:
                return
            self._tasks.pop(event["task"], None)
            if not call.started:
                self._waiting -= 1
            cancelled, call.over = call.cancelled, True
            failed = self._fill()
        fail(failed)
        attempts = event["attempts"]
        future = call.future
        future.task, future.attempts = event["task"], attempts
        future.log = event["log"] if isinstance(event["log"], str) else None
        call.remove_files(attempts)
        if not cancelled:
            result = read_result(f"{path}.{attempts}.result")
            if isinstance(result, BaseException):
                settle(future, error=result)
            elif event["outcome"] == "succeeded" and result and result[0]:
                settle(future, result[1])
            elif event["outcome"] == "failed" and result and not result[0]:
                settle(future, error=exception(result, event))
            else:
                settle(future, error=no_result(event))
        # Not before it is done: `cancel` asks them. Whoever keeps the future need not keep
        # the rest.
        future._call = future._pool = None


def _name(function: Callable[..., Any], args: tuple[Any, ...] = ()) -> str:
    """What people and the memory of peaks know a function by."""
    if function is call_each:
        # Chunks of different functions need different memory.
        return f"chunk of {_name(args[0])}"
    # Nothing else that has a `func`: only here is it what is called.
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}.{name}"


def why_ended(driver: Driver) -> str:
    try:
        said = driver.said()
    except (OSError, ValueError):
        said = ""
    if driver.exit is not None:
        return "the run was stopped before the task was run" + (f"\n{said}" if said else "")
    return f"packhorse ended unexpectedly ({driver.status()})" + (f"\n{said}" if said else "")


# -- the end of the interpreter ------------------------------------------------------------

pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_exiting = False


def _wait_at_exit() -> None:
    """An interpreter that ends waits for its futures, as those of the standard library do."""
    global _exiting
    _exiting = True
    there = list(pools)
    # A program that Ctrl-C has ended does not wait: nobody is there to use the results.
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    for pool in there:
        pool.close(cancel=interrupted)
    for pool in there:
        if interrupted:
            pool.interrupt()
        else:
            pool.join()


def _forget_in_fork() -> None:
    for pool in list(pools):
        pool.forget()
    pools.clear()


# Before threads are waited for; `atexit` comes after that.
threading._register_atexit(_wait_at_exit)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_forget_in_fork)
