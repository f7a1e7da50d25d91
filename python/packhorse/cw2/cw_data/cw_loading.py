"""Results of all repetitions as a table of pandas, and its accessor ``df.cw2``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .. import job, scheduler, util
from . import cw_logging, cw_pd_logger

if TYPE_CHECKING:
    from pandas import DataFrame, Series  # type: ignore[import-untyped,import-not-found,unused-ignore]

pd: Any = importlib.import_module("pandas")

#: What repetitions are known by: the name of the experiment, and their number.
_INDEX = ["name", "r"]
_LOGGER = cw_pd_logger.PandasLogger.__name__


class Loader(scheduler.AbstractScheduler):
    """Loads the results of jobs instead of running them."""

    def run(self, overwrite: bool = False) -> DataFrame:
        """A row for each repetition, with the index ``name`` and ``r``."""
        result = CWResult()
        for one in self.joblist or []:
            result._load_job(one)
        result._compile()
        return result.data().set_index(_INDEX)


class CWResult:
    """The results of repetitions."""

    def __init__(self, df: DataFrame | None = None) -> None:
        self.data_list: list[dict[str, Any]] = []
        self.df = df

    def _load_job(self, one: job.Job) -> None:
        for config in one.tasks:
            params = config.get("params", {})
            self.data_list.append(
                {
                    **one.load_task(config),
                    "name": config["name"],
                    "r": config["_rep_idx"],
                    "rep_path": config["_rep_log_path"],
                    "params": params,
                    **util.flatten_dict(params),
                }
            )

    def _compile(self) -> None:
        self.df = pd.DataFrame(self.data_list, columns=None if self.data_list else _INDEX)
        self.data_list = []

    def data(self) -> DataFrame:
        """The table."""
        return self.df


@pd.api.extensions.register_dataframe_accessor("cw2")  # type: ignore[untyped-decorator,unused-ignore]
class Cw2Accessor:
    """``df.cw2`` of a table that ``ClusterWork.load`` has returned, or of a part of it."""

    def __init__(self, pandas_obj: DataFrame) -> None:
        self._obj = pandas_obj

    def filter(self, param_dict: dict[str, Any]) -> DataFrame:
        """The repetitions with these parameters, written as in the file of experiments."""
        table = self._obj
        for key, value in util.flatten_dict(param_dict).items():
            table = table[table[key] == value]
        return table.copy()

    def repetition(self, r: int) -> DataFrame:
        """The repetitions with this number."""
        return self._obj[self._values("r") == r]

    def name(self, name: str) -> DataFrame:
        """The repetitions of the experiment with this name."""
        return self._obj[self._values("name") == name]

    def logger(
        self,
        l_name: str = "",
        l_obj: cw_logging.AbstractLogger | None = None,
        l_cls: type[cw_logging.AbstractLogger] | None = None,
    ) -> Series:
        """What a logger has loaded: by the name of its class, an object, or the class."""
        if l_obj is not None:
            l_cls = type(l_obj)
        return self._obj[l_name if l_cls is None else l_cls.__name__]

    def flatten_pd_log(self) -> DataFrame:
        """One table of the tables of ``PandasLogger``: a row for each iteration, with the
        index ``name``, ``r`` and ``iter``."""
        table = self._obj
        if _LOGGER not in table.columns:
            return table
        names, numbers = self._values("name"), self._values("r")
        others = [column for column in table.columns if column not in (_LOGGER, *_INDEX)]
        flat = []
        for place in range(len(table)):
            row = table.iloc[place]
            inner = row[_LOGGER]
            if not isinstance(inner, pd.DataFrame):
                # It says that there is none.
                cw_logging.getLogger().warning("%s", inner)
                continue
            # Copies: what was loaded stays as it is.
            about = {column: [row[column]] * len(inner) for column in others}
            about |= {"name": [names[place]] * len(inner), "r": [numbers[place]] * len(inner)}
            columns = pd.DataFrame(about, index=inner.index)
            kept = inner.drop(columns=[column for column in about if column in inner.columns])
            flat.append(pd.concat([kept, columns], axis=1))
        if not flat:
            return pd.DataFrame(columns=[*_INDEX, "iter"]).set_index([*_INDEX, "iter"])
        return pd.concat(flat, ignore_index=True).set_index([*_INDEX, "iter"])

    def _values(self, key: str) -> Any:
        """Of every row: from the index of a loaded table, or from a column."""
        table = self._obj
        if key in table.index.names:
            return table.index.get_level_values(key).to_numpy()
        return table[key].to_numpy()
