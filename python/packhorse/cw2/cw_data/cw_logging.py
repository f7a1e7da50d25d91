"""Loggers: what is done with the results of an experiment, and with what it says."""

from __future__ import annotations

import abc
import logging
import os
import pprint
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _told

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[Any]
else:
    # It has no brackets before Python 3.11.
    _StreamHandler = logging.StreamHandler


class AbstractLogger(abc.ABC):
    """A logger. Give its constructor ``ignore_keys`` or ``allow_keys``, but not both."""

    ignore_keys: list[str] | None = None
    allow_keys: list[str] | None = None
    #: Whether ``load`` has something to load. One that has not is left alone when results
    #: are loaded: it makes no files and no connections then.
    loads = True

    def __init__(
        self,
        ignore_keys: Iterable[str] | None = None,
        allow_keys: Iterable[str] | None = None,
    ) -> None:
        if ignore_keys is not None and allow_keys is not None:
            raise ValueError("a logger has keys to ignore or keys to allow, but not both")
        # Looked at again and again: an iterator would be used up.
        self.ignore_keys = None if ignore_keys is None else list(ignore_keys)
        self.allow_keys = None if allow_keys is None else list(allow_keys)

    def filter(self, data: dict[str, Any]) -> dict[str, Any]:
        """The part of the data that it logs."""
        if self.ignore_keys is not None:
            return {key: value for key, value in data.items() if key not in self.ignore_keys}
        if self.allow_keys is not None:
            return {key: value for key, value in data.items() if key in self.allow_keys}
        return data

    def preprocess(self, *args: Any) -> None:
        """For experiments that have something to tell their loggers in ``initialize``."""

    @abc.abstractmethod
    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        """Called before each repetition, with its configuration, number and folder."""

    @abc.abstractmethod
    def process(self, data: dict[str, Any]) -> None:
        """Logs a result."""

    @abc.abstractmethod
    def finalize(self) -> None:
        """Called after each repetition."""

    @abc.abstractmethod
    def load(self) -> Any:
        """What was logged in the repetition that it was last initialized for.

        A dictionary becomes several columns of the table that ``ClusterWork.load`` returns,
        None becomes none, and anything else one with the name of the logger's class.
        """


class LoggerArray(AbstractLogger):
    """Several loggers that act as one."""

    def __init__(self) -> None:
        super().__init__()
        self._logger_array: list[AbstractLogger] = []

    def add(self, logger: AbstractLogger) -> None:
        """Adds a logger."""
        self._logger_array.append(logger)

    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        for logger in self._logger_array:
            logger.initialize(config, rep, rep_log_path)

    def preprocess(self, *args: Any) -> None:
        for logger in self._logger_array:
            logger.preprocess(*args)

    def process(self, data: dict[str, Any]) -> None:
        for logger in self._logger_array:
            logger.process(data)

    def finalize(self) -> None:
        for logger in self._logger_array:
            logger.finalize()

    def load(self) -> dict[str, Any]:
        """What the loggers have logged; what cannot be loaded says so in its place."""
        return self._load(lambda logger: logger.load())

    def load_from(self, config: dict[str, Any], rep: int, rep_log_path: str) -> dict[str, Any]:
        """What the loggers have logged in this repetition."""

        def load(logger: AbstractLogger) -> Any:
            if not logger.loads:
                return None
            logger.initialize(config, rep, rep_log_path)
            return logger.load()

        return self._load(load)

    def _load(self, load: Callable[[AbstractLogger], Any]) -> dict[str, Any]:
        loaded: dict[str, Any] = {}
        for logger in self._logger_array:
            name = type(logger).__name__
            try:
                data = load(logger)
            except Exception:
                getLogger().exception("%s cannot load", name)
                data = f"{name} cannot load"
            if isinstance(data, dict):
                loaded.update(data)
            elif data is not None:
                loaded[name] = data
        return loaded

    def __iter__(self) -> Iterator[AbstractLogger]:
        return iter(self._logger_array)

    def is_empty(self) -> bool:
        """Whether there are no loggers."""
        return not self._logger_array


class Printer(AbstractLogger):
    """Prints each result."""

    loads = False

    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        pass

    def process(self, data: dict[str, Any]) -> None:
        pprint.pprint(self.filter(data))

    def finalize(self) -> None:
        pass

    def load(self) -> None:
        pass


class PythonLogger(AbstractLogger):
    """Writes what ``getLogger()`` is told into ``out.log``, and errors into ``err.log`` too.

    In a repetition of ``packhorse exp config.yml -- python my_main.py``, that command keeps
    the console in ``out.log``, where all of it is then already.
    """

    loads = False

    #: The files, what goes there, and whether they wait for the first line: a folder with
    #: an empty ``err.log`` shows that the repetition has been run.
    _FILES = (("out.log", logging.INFO, True), ("err.log", logging.ERROR, False))

    def __init__(self) -> None:
        super().__init__()
        self.logger = getLogger()
        self._handlers: list[logging.Handler] = []
        self._is_console_kept = _told.is_repetition() and not _told.is_called_by_us()

    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        # One that is initialized twice writes to the second folder, and not to both.
        self.finalize()
        for name, level, delay in self._FILES[int(self._is_console_kept) :]:
            handler = logging.FileHandler(os.path.join(rep_log_path, name), delay=delay)
            handler.setLevel(level)
            handler.setFormatter(_Formatter())
            self.logger.addHandler(handler)
            self._handlers.append(handler)

    def process(self, data: dict[str, Any]) -> None:
        pass

    def finalize(self) -> None:
        for handler in self._handlers:
            self.logger.removeHandler(handler)
            handler.close()
        self._handlers.clear()

    def load(self) -> None:
        pass


class _Formatter(logging.Formatter):
    """Errors are told with their time."""

    _PLAIN = logging.Formatter("[%(name)s] [%(levelname)s] %(message)s")
    _TIMED = logging.Formatter("[%(asctime)s]:[%(name)s] [%(levelname)s] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        chosen = self._TIMED if record.levelno >= logging.ERROR else self._PLAIN
        return chosen.format(record)


class _Console(_StreamHandler):
    """Writes to what standard output is now, not to what it was at first."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.setLevel(logging.INFO)
        self.setFormatter(_Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stdout
        super().emit(record)


def getLogger() -> logging.Logger:
    """The logger ``cw2`` of the module ``logging``, which also writes to the console."""
    logger = logging.getLogger("cw2")
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
        logger.addHandler(_Console())
    return logger
