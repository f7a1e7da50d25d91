"""Python functions as tasks: a ``concurrent.futures.Executor`` on the machine's GPUs."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _payload, _worker
from ._chunks import call_each
from ._future import Future
from ._options import SLURM_FOLDER, RunOptions, arguments, is_on_slurm
from ._pool import Pool

if TYPE_CHECKING:
    from typing import ParamSpec

    from typing_extensions import Unpack

    _P = ParamSpec("_P")

_T = TypeVar("_T")


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
        more: dict[str, Any] = {"by_signature": by_signature, "pythonpath": pythonpath}
        self._pool: Pool
        if is_on_slurm(options):
            from ._slurm_pool import SlurmPool

            shared = os.fspath(options.get("slurm_folder") or SLURM_FOLDER)
            self._pool = SlurmPool(words, keys, shared=shared, **more)
        else:
            self._pool = Pool(words, keys, **more)
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
