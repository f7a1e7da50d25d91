"""The runs behind an executor on a Slurm cluster.

    submit ──▶ collected ──▶ payload files, task lines ──▶ packhorse run --slurm --wait
    Future ◀── result file ◀───────────── event ◀──────────────┘

Slurm is given arrays, whose tasks must all be known. So calls are collected, and submitted
together: when nothing has come for a moment, when somebody waits for one of them, or when
there will be no more. Each such batch is a run of its own, which a thread follows. Arguments
and results are files in a folder that every node sees.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from typing import Any

from . import _worker
from ._driver import ClusterDriver
from ._errors import BrokenRun, PackhorseError
from ._future import Call, fail
from ._pool import Pool, pools, why_ended

_log = logging.getLogger("packhorse")

#: So many seconds nothing may come before what was collected is submitted. An array takes
#: longer to start, and two of them longer than one.
_QUIET = 1.0


class _Batch:
    """Calls that were submitted together."""

    def __init__(self, driver: ClusterDriver, calls: list[Call]) -> None:
        self.driver = driver
        self.calls = calls
        self.thread: threading.Thread | None = None


class SlurmPool(Pool):
    """The runs behind an executor. The executor itself may be forgotten before they end."""

    def __init__(self, *words: Any, shared: str, **more: Any) -> None:
        """``shared`` is a folder that every node sees."""
        super().__init__(*words, **more)
        self._shared = os.path.abspath(shared)
        self._changed = threading.Condition(self._lock)
        #: Calls that somebody waits for, and that are not submitted yet.
        self._awaited: set[Call] = set()
        self._batches: list[_Batch] = []

    # -- what executors ask for --------------------------------------------------------

    def hurry(self, call: Call) -> None:
        with self._changed:
            if not call.sent:
                self._awaited.add(call)
                self._changed.notify_all()

    def close(self, cancel: bool) -> None:
        super().close(cancel)
        if cancel:
            for batch in list(self._batches):
                self._stop_if_unwanted(batch)

    def _stop_if_unwanted(self, batch: _Batch) -> None:
        """Takes a batch out of Slurm's queue of which nothing is left to do.

        One of which a call is running comes to its end: the rest of its tasks find that
        there is nothing to do.
        """
        if all(call.cancelled or call.over for call in batch.calls):
            batch.driver.stop()

    def interrupt(self) -> None:
        self.close(cancel=True)
        for how in (signal.SIGTERM, signal.SIGQUIT):
            for batch in list(self._batches):
                batch.driver.stop(how)
            try:
                if self._thread is not None:
                    self._over.wait()
                return
            except KeyboardInterrupt:
                continue
        if self._thread is not None:
            self._over.wait()

    def forget(self) -> None:
        super().forget()
        self._changed = threading.Condition(self._lock)
        for batch in self._batches:
            batch.driver.let_go()

    # -- collecting ----------------------------------------------------------------------

    def _start(self) -> None:
        _worker.check_not_loading()
        os.makedirs(self._shared, exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="python-", dir=self._shared)
        self._thread = threading.Thread(target=self._collect, name="packhorse", daemon=True)
        self._thread.start()
        pools.add(self)

    def _fill(self) -> list[tuple[Call, Exception]]:
        """Something has happened. The lock is held."""
        self._changed.notify_all()
        return []

    def _collect(self) -> None:
        """Submits what was collected, to the end. This is the thread."""
        try:
            while (calls := self._next_calls()) is not None:
                self._submit(calls)
                # Whoever waits for one of these has waited while they were written.
                with self._lock:
                    self._awaited.difference_update(calls)
            for batch in list(self._batches):
                if batch.thread is not None:
                    batch.thread.join()
        except BaseException:
            _log.exception("calls cannot be submitted to Slurm")
        finally:
            # Whatever has happened: nobody may wait for ever.
            try:
                self._lose([*self._queue, *self._sent.values()], BrokenRun("the run has ended"))
                shutil.rmtree(self._folder, ignore_errors=True)
            finally:
                self._over.set()

    def _next_calls(self) -> list[Call] | None:
        """Waits until there are calls to submit; None if there will be no more."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._queue or self._closing)
                while self._comes_more():
                    pass
                self._awaited.clear()
                calls = [call for call in self._queue if not call.cancelled]
                self._queue.clear()
                if calls:
                    return calls
                if self._closing:
                    return None

    def _comes_more(self) -> bool:
        """Whether another call is collected soon. The lock is held."""
        if self._closing or self._awaited:
            return False
        before = len(self._queue)
        more = self._changed.wait_for(
            lambda: self._closing or self._awaited or len(self._queue) > before, _QUIET
        )
        return bool(more)

    # -- a batch -------------------------------------------------------------------------

    def _submit(self, calls: list[Call]) -> None:
        lines: list[str] = []
        sent: list[Call] = []
        for call in calls:
            failed: list[tuple[Call, Exception]] = []
            with self._lock:
                if call.cancelled:
                    continue
                if call.data is not None:
                    failed = self._write(call)
                if not failed:
                    call.sent = True
                    self._sent[call.path] = call
                    lines.append(self._line(call))
                    sent.append(call)
            fail(failed)
        if not sent:
            return
        path = sent[0].path + ".jsonl"
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(lines)
            driver = ClusterDriver(["--calls", *self._words], tasks=path)
            driver.started()
        except (OSError, PackhorseError) as error:
            # What is wrong with one batch is wrong with all of them.
            self._broken = error
            self._lose(sent, error)
            return
        batch = _Batch(driver, sent)
        batch.thread = threading.Thread(
            target=self._follow_batch, args=(batch,), name="packhorse", daemon=True
        )
        with self._lock:
            self._batches.append(batch)
        batch.thread.start()
        if self._closing:
            # Somebody may have cancelled everything in this moment.
            self._stop_if_unwanted(batch)

    def _follow_batch(self, batch: _Batch) -> None:
        """Follows a run to its end. This is its thread."""
        driver = batch.driver
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
            self._lose(batch.calls, self._broken or BrokenRun(why_ended(driver)))
            with self._lock:
                self._batches.remove(batch)

    def _lose(self, calls: list[Call], error: Exception) -> None:
        """Those of these calls that have not ended never will."""
        with self._lock:
            left = [call for call in calls if not call.over]
            for call in left:
                call.over = True
                self._sent.pop(call.path, None)
        for call in left:
            try:
                fail([(call, error)])
            except BaseException:
                # A callback: the other futures are none of its business.
                _log.exception("a callback of a future failed")
