"""Results as a table of pandas, in a file for each repetition."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .cw_logging import AbstractLogger, getLogger

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped,import-not-found,unused-ignore]

# Not by `import`: whoever checks types need not have what pandas needs for that.
pd: Any = importlib.import_module("pandas")
numpy: Any = importlib.import_module("numpy")


class PandasLogger(AbstractLogger):
    """Writes all results so far into ``rep_N.csv`` and ``rep_N.pkl``, after each one."""

    def __init__(
        self,
        ignore_keys: Iterable[str] | None = None,
        allow_keys: Iterable[str] | None = None,
    ) -> None:
        super().__init__(ignore_keys, allow_keys)
        self.log_path = ""
        self.csv_name = "rep.csv"
        self.pkl_name = "rep.pkl"
        self.df: DataFrame = pd.DataFrame()
        #: The columns of the table: lists, which grow faster than tables do.
        self._columns: dict[str, list[Any]] = {}
        self._length = 0

    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        self.log_path = rep_log_path
        self.csv_name = os.path.join(rep_log_path, f"rep_{rep}.csv")
        self.pkl_name = os.path.join(rep_log_path, f"rep_{rep}.pkl")
        self.df = pd.DataFrame()
        self._columns = {}
        self._length = 0

    def process(self, log_data: dict[str, Any]) -> None:
        row = self.filter(log_data)
        for key in row:
            if key not in self._columns:
                # What was not told before is not known: not a number, as pandas has it.
                self._columns[key] = [float("nan")] * self._length
        for key, column in self._columns.items():
            column.append(row.get(key, float("nan")))
        self._length += 1
        self.df = pd.DataFrame({key: _series(values) for key, values in self._columns.items()})
        _save(self.csv_name, lambda path: self.df.to_csv(path, index_label="index"))
        _save(self.pkl_name, self.df.to_pickle)

    def finalize(self) -> None:
        pass

    def load(self) -> Any:
        """The table; a text that says so if there is none."""
        try:
            table = pd.read_pickle(self.pkl_name)
        except FileNotFoundError:
            missing = f"{self.pkl_name} does not exist"
            getLogger().warning(missing)
            return missing
        return {type(self).__name__: table}


def _series(values: list[Any]) -> Any:
    """A column, also of things that pandas would take for columns themselves."""
    if any(hasattr(value, "__len__") and not isinstance(value, str) for value in values):
        column = numpy.empty(len(values), dtype=object)
        for place, value in enumerate(values):
            column[place] = value
        return pd.Series(column)
    return pd.Series(values)


def _save(path: str, write: Callable[[str], Any]) -> None:
    """Writes a file, whole or not at all; a full disk must not end the experiment."""
    partial = path + ".partial"
    try:
        write(partial)
        os.replace(partial, path)
    except Exception as error:
        getLogger().warning("%s could not be written: %s", path, error)
