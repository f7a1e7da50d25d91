"""Python functions as tasks: a ``concurrent.futures.Executor`` on the machine's GPUs.

    submit ──▶ queue ──▶ payload file, task line ──▶ packhorse ──▶ _start.py, a process
    Future ◀── result file ◀──────── event ◀───────────┘               per attempt

One thread reads the events. Arguments and results are files in a private folder: they may
be large, and each is removed as soon as it was read. Only as many tasks as can start soon
are sent, so a million waiting ones take no files, and cancelling those costs nothing.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import json
import logging
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from . import _payload, _worker
from ._chunks import call_each
from ._driver import Driver, Event
from ._errors import BrokenRun, PackhorseError, RemoteTraceback, TaskError
from ._options import RunOptions, arguments

if TYPE_CHECKING:
    from typing import ParamSpec

    from typing_extensions import Unpack

    _P = ParamSpec("_P")

_T = TypeVar("_T")
_log = logging.getLogger("packhorse")

#: So many tasks may be sent and not started, and as many as are running. More would be files
#: for nothing, and starts for nothing if they are cancelled; with fewer, a free place could
#: wait for us.
_WINDOW = 32
#: Arguments larger than this go to a file at once, instead of waiting in memory.
_LARGE = 1 << 20


class Future(concurrent.futures.Future[_T], Generic[_T]):
    """The result of a task that may not be there yet, and what is known about the task."""

    #: The task's id, such as ``"3.7"``, for ``packhorse logs`` and the like. None before it
    #: has started.
    task: str | None = None
    #: The GPUs it runs or ran on; empty before it has started, and without GPUs.
    gpus: list[str]
    #: The most GPU memory that was seen, in bytes. None if it was not measured.
    peak_vram: int | None = None
    #: The file with what it printed, once it has ended.
    log: str | None = None
    #: How many attempts it has had, once it has ended.
    attempts: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.gpus = []
        self._pool: _Pool | None = None
        self._call: _Call | None = None

    @property
    def gpu(self) -> str | None:
        """The GPU it runs or ran on; several are joined by commas."""
        return ",".join(self.gpus) if self.gpus else None

    def cancel(self) -> bool:
        """Cancels it, unless it has begun. True: its function is never called."""
        # They are taken away when it is done, which may be now.
        pool, call = self._pool, self._call
        if pool is None or call is None:
            return super().cancel()
        did = pool.give_up(call)
        if not did and not call.cancelled:
            return False
        # From here on nobody but those who cancel it changes it. Of two threads that do, the
        # second must not return before it is cancelled, so both see to it. No lock is held:
        # this calls what was added by `add_done_callback`.
        super().cancel()
        if did:
            # Whoever waits for it hears of it now: nobody will start it any more.
            self.set_running_or_notify_cancel()
        return True


class _Call:
    """One call of a function: from ``submit`` to the end of its future."""

    __slots__ = ("cancelled", "data", "future", "label", "over", "path", "sent", "started")

    def __init__(self, future: Future[Any], path: str, label: str) -> None:
        self.future = future
        self.path = path
        self.label = label
        #: What to send; None once it is in its file.
        self.data: bytes | None = None
        self.sent = self.started = self.over = self.cancelled = False

    def write(self, about: bytes) -> None:
        """Writes what is sent to the task, after what it must know first."""
        path = self.path + ".task"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                for part in (about, self.data or b""):
                    view = memoryview(part)
                    while view:
                        view = view[file.write(view) :]
        except OSError:
            # The disk is full, and half of it is of no use.
            _remove(path)
            raise
        self.data = None

    def remove_files(self, attempts: int) -> None:
        """Removes what is there."""
        _remove(self.path + ".run")
        # A process that was killed before it could take it has left it.
        _remove(self.path + ".task")
        for attempt in range(attempts + 1):
            # One that was killed while it wrote.
            _remove(f"{self.path}.{attempt}.result.partial")
        for attempt in range(attempts):
            # The last one's is removed by who reads it.
            _remove(f"{self.path}.{attempt}.result")


class _Pool:
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
        self._queue: deque[_Call] = deque()
        self._sent: dict[str, _Call] = {}
        self._tasks: dict[str, _Call] = {}
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
            if self._driver is None:
                self._start()
            path = os.path.join(self._folder, str(next(self._numbers)))
            call = _Call(future, path, _name(function, args))
            future._pool, future._call = self, call
            if sys.path != self._path:
                self._path = list(sys.path)
                self._about = _payload.about(pythonpath=self._pythonpath)
            call.data = data
            failed = self._write(call) if len(data) > _LARGE else []
            if not failed:
                self._queue.append(call)
                failed = self._fill()
        _fail(failed)
        return future

    def give_up(self, call: _Call) -> bool:
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

    def close(self, cancel: bool) -> None:
        """Takes no more; ends when all is done."""
        with self._lock:
            self._closing = True
            calls = [*self._queue, *self._sent.values()] if cancel else []
        for call in calls:
            call.future.cancel()
        with self._lock:
            failed = self._fill()
        _fail(failed)

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
            driver = Driver(self._words)
            driver.started()
            self._thread = threading.Thread(
                target=self._follow, args=(driver,), name="packhorse", daemon=True
            )
            self._driver = driver
            self._thread.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        _pools.add(self)

    def _fill(self) -> list[tuple[_Call, Exception]]:
        """Sends what can start soon; what could not be sent. The lock is held."""
        lines = []
        failed: list[tuple[_Call, Exception]] = []
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

    def _write(self, call: _Call) -> list[tuple[_Call, Exception]]:
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

    def _line(self, call: _Call) -> str:
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
                self._broken = BrokenRun(_why_ended(driver))
            broken = self._broken
        for call in left:
            try:
                _fail([(call, broken or BrokenRun("the run has ended"))])
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
        _fail(failed)

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
        _fail(failed)
        attempts = event["attempts"]
        future = call.future
        future.task, future.attempts = event["task"], attempts
        future.log = event["log"] if isinstance(event["log"], str) else None
        call.remove_files(attempts)
        if not cancelled:
            result = _read_result(f"{path}.{attempts}.result")
            if isinstance(result, BaseException):
                _settle(future, error=result)
            elif event["outcome"] == "succeeded" and result and result[0]:
                _settle(future, result[1])
            elif event["outcome"] == "failed" and result and not result[0]:
                _settle(future, error=_exception(result, event))
            else:
                _settle(future, error=_no_result(event))
        # Not before it is done: `cancel` asks them. Whoever keeps the future need not keep
        # the rest.
        future._call = future._pool = None


class Executor(concurrent.futures.Executor):
    """Runs functions as tasks, each in a process of its own on a free GPU.

    A ``concurrent.futures.Executor``: ``submit``, ``map``, ``shutdown`` and the futures do
    what they do there. Options say what each task needs and where tasks run; those of
    ``packhorse run`` are all there::

        with packhorse.Executor(gpus=0.5, vram="9G", retries=1, devices=[0, 1]) as pool:
            print(list(pool.map(train, [0.1, 0.01, 0.001])))

    Functions travel by ``cloudpickle`` where it is installed (then lambdas and the functions
    of a notebook work too), else by ``pickle``.
    """

    def __init__(
        self,
        *,
        priority: int | None = None,
        preload: Iterable[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        """Nothing is started before the first ``submit``.

        ``preload``: modules that are imported once, in a Python that is forked for each
        task. They are looked for where this program looks for modules now, its own folder
        included. ``folder``: where tasks run, if not in the current folder. The other
        options are those of :class:`RunOptions`.
        """
        _worker.check_not_loading()
        keys: dict[str, Any] = {}
        pythonpath: tuple[str | None, str] = (None, "")
        if priority is not None:
            if not isinstance(priority, int):
                raise TypeError(f"priority={priority!r} is no whole number")
            keys["priority"] = priority
        if preload is not None:
            modules = [preload] if isinstance(preload, str) else list(preload)
            by_value = ["cloudpickle"] if _payload.cloudpickle is not None else []
            keys["preload"] = ["packhorse._worker", *by_value, *modules]
            pythonpath = _payload.python_path(options.get("env"))
            if pythonpath[0] is not None:
                keys["env"] = {"PYTHONPATH": pythonpath[0]}
        if folder is not None:
            keys["folder"] = os.path.abspath(folder)
        vram = options.get("vram")
        # All tasks run the same program: what their memory is remembered by is the function.
        by_signature = vram is not None and options.get("signature") is None
        words = arguments(cast("dict[str, Any]", options))
        self._pool = _Pool(words, keys, by_signature=by_signature, pythonpath=pythonpath)
        self._finalizer = weakref.finalize(self, self._pool.close, False)
        self._finalizer.atexit = False

    def submit(
        self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Future[_T]:
        """Runs ``fn(*args, **kwargs)`` as a task.

        The arguments are pickled now: what becomes of them later does not change the task.
        """
        return self._pool.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """The results of ``fn`` for each of the arguments, in their order.

        ``chunksize`` calls share a task. With ``buffersize``, at most so many tasks are
        submitted whose results were not taken, so the arguments may be endless; without it
        all are submitted now, whether or not somebody takes the results.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        end = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables)
        if chunksize == 1:
            return self._results((self.submit(fn, *args) for args in calls), end, buffersize)
        chunks = iter(lambda: list(itertools.islice(calls, chunksize)), [])
        each = cast("Callable[..., list[_T]]", call_each)
        futures = (self.submit(each, fn, chunk) for chunk in chunks)
        results: Iterator[list[_T]] = self._results(futures, end, buffersize)
        return itertools.chain.from_iterable(results)

    def _results(
        self, submitted: Iterator[Future[_T]], end: float | None, most: int | None
    ) -> Iterator[_T]:
        """Submits before it returns, and not when the first result is asked for."""
        futures = deque(itertools.islice(submitted, most))

        def results() -> Iterator[_T]:
            try:
                while futures:
                    left = None if end is None else end - time.monotonic()
                    # Not kept while the caller looks at its result.
                    value = futures[0].result(left)
                    futures.popleft()
                    futures.extend(itertools.islice(submitted, 1))
                    yield value
                    del value
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more tasks; ``wait`` for those there are, or cancel those not begun."""
        self._pool.close(cancel_futures)
        if wait:
            self._pool.join()

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            # Ctrl-C: whoever pressed it does not want to wait for hours of training.
            self._pool.interrupt()
        else:
            self.shutdown()


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


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _fail(calls: list[tuple[_Call, Exception]]) -> None:
    for call, error in calls:
        if not call.cancelled:
            _settle(call.future, error=error)
            call.future._call = call.future._pool = None


def _settle(future: Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Ends a future, unless somebody else has."""
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except concurrent.futures.InvalidStateError:
        pass


def _read_result(path: str) -> Any:
    """What the task has written: None if nothing, an exception if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return None
    except BaseException as error:
        # What is unpickled is somebody else's code.
        return error
    finally:
        _remove(path)


def _exception(result: Any, event: Event) -> BaseException:
    """The exception that the function raised, with its trace there as its cause."""
    _, error, trace = result
    if error is None:
        last = trace.strip().rpartition("\n")[2]
        error = _task_error(f"{last} (an exception that cannot be pickled)", event)
    error.__cause__ = RemoteTraceback(f'\n"""\n{trace}"""')
    return cast("BaseException", error)


def _no_result(event: Event) -> Exception:
    """What to say of a task that has sent nothing back."""
    outcome, detail = event["outcome"], event["detail"]
    if outcome == "interrupted":
        return BrokenRun("the run was stopped while the task was running")
    message = {
        "succeeded": "the process ended before the function returned",
        "failed": f"the process ended with exit status {detail}",
        "killed": f"the process was killed by signal {detail}",
        "timed-out": "it ran longer than its time limit",
        "not-started": f"it could not be started: {event['message']}",
    }.get(outcome, outcome)
    return _task_error(f"task {event['task']}: {message}{_last_lines(event['log'])}", event)


def _task_error(message: str, event: Event) -> TaskError:
    log = event["log"] if isinstance(event["log"], str) else None
    return TaskError(
        message, task=event["task"], outcome=event["outcome"], detail=event["detail"], log=log
    )


def _last_lines(log: Any) -> str:
    if not isinstance(log, str):
        return ""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()[-5:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines)


def _why_ended(driver: Driver) -> str:
    try:
        said = driver.said()
    except (OSError, ValueError):
        said = ""
    if driver.exit is not None:
        return "the run was stopped before the task was run" + (f"\n{said}" if said else "")
    return f"packhorse ended unexpectedly ({driver.status()})" + (f"\n{said}" if said else "")


# -- the end of the interpreter ------------------------------------------------------------

_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()
_exiting = False


def _wait_at_exit() -> None:
    """An interpreter that ends waits for its futures, as those of the standard library do."""
    global _exiting
    _exiting = True
    pools = list(_pools)
    # A program that Ctrl-C has ended does not wait: nobody is there to use the results.
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    for pool in pools:
        pool.close(cancel=interrupted)
    for pool in pools:
        if interrupted:
            pool.interrupt()
        else:
            pool.join()


def _forget_in_fork() -> None:
    for pool in list(_pools):
        pool.forget()
    _pools.clear()


# Before threads are waited for; `atexit` comes after that.
threading._register_atexit(_wait_at_exit)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_forget_in_fork)
