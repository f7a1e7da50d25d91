"""The loggers of experiments: files, the console, pandas, and a stand-in for wandb."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
from packhorse.cw2.cw_data import cw_logging
from packhorse.cw2.cw_data.cw_logging import LoggerArray, Printer, PythonLogger, getLogger


class Memory(cw_logging.AbstractLogger):
    """Remembers what it is told, and loads what it is given."""

    def __init__(self, loaded: Any = None, **keys: Any) -> None:
        super().__init__(**keys)
        self.told: list[Any] = []
        self.loaded = loaded

    def initialize(self, config: dict[str, Any], rep: int, rep_log_path: str) -> None:
        self.told.append(("initialize", config, rep, rep_log_path))

    def preprocess(self, *args: Any) -> None:
        self.told.append(("preprocess", *args))

    def process(self, data: dict[str, Any]) -> None:
        self.told.append(("process", self.filter(data)))

    def finalize(self) -> None:
        self.told.append("finalize")

    def load(self) -> Any:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


class Second(Memory):
    """Under another name."""


@pytest.fixture(autouse=True)
def fresh_logger() -> Iterator[None]:
    """Each test has a logger that nobody has set up."""
    yield
    logger = logging.getLogger("cw2")
    logger.setLevel(logging.NOTSET)
    logger.handlers.clear()


def test_an_array_tells_all_of_its_loggers() -> None:
    array, first, second = LoggerArray(), Memory(), Memory(ignore_keys=["a"])
    assert array.is_empty()
    array.add(first)
    array.add(second)
    array.initialize({"k": 1}, 3, "folder")
    array.preprocess("x", 2)
    array.process({"a": 1, "b": 2})
    array.finalize()
    begin = [("initialize", {"k": 1}, 3, "folder"), ("preprocess", "x", 2)]
    assert first.told == [*begin, ("process", {"a": 1, "b": 2}), "finalize"]
    assert second.told == [*begin, ("process", {"b": 2}), "finalize"]
    assert list(array) == [first, second] and not array.is_empty()


def test_keys_are_allowed_or_ignored_and_not_both() -> None:
    data = {"a": 1, "b": 2}
    # Looked at more than once.
    allowing = Memory(allow_keys=iter(["a"]))
    assert [allowing.filter(data), allowing.filter(data)] == [{"a": 1}] * 2
    assert Memory().filter(data) == data
    with pytest.raises(ValueError, match="not both"):
        Memory(allow_keys=["a"], ignore_keys=["b"])


def test_a_logger_that_does_not_call_our_constructor_works() -> None:
    class Own(Memory):
        def __init__(self) -> None:
            self.told = []

    own = Own()
    own.process({"a": 1})
    assert own.told == [("process", {"a": 1})]


def test_what_is_loaded_becomes_columns_and_what_fails_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    array = LoggerArray()
    for logger in (Memory({"x": 1}), Second(5), Memory(None), Memory(OSError("broken"))):
        array.add(logger)
    assert array.load() == {"x": 1, "Second": 5, "Memory": "Memory cannot load"}
    said = capsys.readouterr().out
    assert "Traceback" in said and "OSError: broken" in said


def test_the_printer_prints_what_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(allow_keys=["a"]).process({"a": 1, "b": 2})
    assert capsys.readouterr().out == "{'a': 1}\n"


def test_what_is_said_goes_to_the_console_and_into_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = PythonLogger()
    for rep in (0, 1):
        Path(str(rep)).mkdir()
        logger.initialize({}, rep, str(rep))
        assert Path(str(rep), "err.log").read_text() == ""
        assert not Path(str(rep), "out.log").exists()
        getLogger().debug("quiet")
        getLogger().info("rep %d", rep)
        getLogger().error("oh %d", rep)
        logger.finalize()
    getLogger().info("after")
    for rep in (0, 1):
        info, error = Path(str(rep), "out.log").read_text().splitlines()
        assert info == f"[cw2] [INFO] rep {rep}"
        assert error.startswith("[2") and error.endswith(f"]:[cw2] [ERROR] oh {rep}")
        assert Path(str(rep), "err.log").read_text() == error + "\n"
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[2], lines[4]] == [
        "[cw2] [INFO] rep 0", "[cw2] [INFO] rep 1", "[cw2] [INFO] after"
    ]  # fmt: skip


# -- pandas ----------------------------------------------------------------------------------


def test_the_pandas_logger_writes_after_each_result_and_loads_it_again(
    recwarn: pytest.WarningsRecorder,
) -> None:
    needs("python")
    import numpy as np
    import pandas as pd

    from packhorse.cw2.cw_data.cw_pd_logger import PandasLogger

    logger = PandasLogger(ignore_keys=["secret"])
    logger.initialize({}, 2, "")
    results: list[dict[str, Any]] = [
        {"iter": 0, "loss": 0.5, "name": "a", "secret": 1, "weights": np.array([1, 2])},
        {"iter": 1, "loss": None, "name": "b", "weights": np.array([3]), "late": [1]},
        {"iter": 2, "name": "c", "weights": np.zeros(0), "late": {"a": 1}},
    ]
    for count, result in enumerate(results, 1):
        logger.process(result)
        assert len(pd.read_csv("rep_2.csv", index_col="index")) == count
        assert len(pd.read_pickle("rep_2.pkl")) == count
    table = logger.load()["PandasLogger"]
    assert list(table.columns) == ["iter", "loss", "name", "weights", "late"]
    assert table["iter"].tolist() == [0, 1, 2] and table["iter"].dtype.kind == "i"
    assert table["loss"].isna().tolist() == [False, True, True]
    assert table["name"].tolist() == ["a", "b", "c"]
    assert [weights.tolist() for weights in table["weights"]] == [[1, 2], [3], []]
    assert table["late"].tolist()[1:] == [[1], {"a": 1}]
    assert [path.name for path in sorted(Path().iterdir())] == ["rep_2.csv", "rep_2.pkl"]
    # A new repetition begins empty.
    logger.initialize({}, 3, "")
    logger.process({"iter": 0})
    assert len(logger.load()["PandasLogger"]) == 1
    assert not recwarn.list, [str(warning.message) for warning in recwarn]


def test_a_pandas_logger_that_cannot_write_or_load_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    needs("python")
    from packhorse.cw2.cw_data.cw_pd_logger import PandasLogger

    logger = PandasLogger()
    logger.initialize({}, 0, "missing")
    logger.process({"a": 1})
    assert logger.load() == "missing/rep_0.pkl does not exist"
    said = capsys.readouterr().out
    assert said.count("could not be written") == 2 and said.count("does not exist") == 1


# -- wandb -----------------------------------------------------------------------------------


class StandIn(types.ModuleType):
    """As much of wandb as is used."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.calls: list[Any] = []
        self.failures = 0
        self.plot = types.SimpleNamespace(line=lambda *words, **more: ("line", words, more))

    def init(self, **about: Any) -> StandIn:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no network")
        self.calls.append(("init", about))
        return self

    def log(self, data: dict[str, Any], step: int | None = None) -> None:
        self.calls.append(("log", data, step))

    def finish(self) -> None:
        self.calls.append("finish")

    def log_artifact(self, artifact: Any, aliases: list[str]) -> None:
        self.calls.append(("artifact", artifact.files, aliases))

    def Settings(self, **settings: Any) -> Any:
        return settings

    def Histogram(self, np_histogram: Any) -> Any:
        return ("histogram", np_histogram)

    def Table(self, **content: Any) -> Any:
        return ("table", content)

    class Artifact:
        def __init__(self, name: str, type: str) -> None:
            self.files: list[str] = [name, type]

        def add_file(self, path: str) -> None:
            self.files.append(path)


def forget(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported anew."""
    monkeypatch.delitem(sys.modules, module, raising=False)
    parent, _, name = module.rpartition(".")
    monkeypatch.delattr(sys.modules[parent], name, raising=False)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    module = StandIn()
    ours = "packhorse.cw2.cw_data.cw_wandb_logger"
    monkeypatch.setitem(sys.modules, "wandb", module)
    forget(ours, monkeypatch)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield module
    sys.modules.pop(ours, None)


def experiment(**wandb: Any) -> dict[str, Any]:
    return {
        "_experiment_name": "exp__a.b1_a.c2",
        "params": {"lr": 0.1},
        "wandb": {"project": "p", **wandb},
    }


def test_results_are_sent_to_wandb(wandb: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    from packhorse.cw2.cw_data.cw_wandb_logger import WandBLogger

    monkeypatch.setenv("WANDB_RUN_ID", "of another run")
    monkeypatch.setenv("WANDB_API_KEY", "mine")
    logger = WandBLogger(ignore_keys=["rep"])
    logger.initialize(experiment(entity="e", group="g", histogram=["h"], log_interval=2), 4, "f")
    for n in range(3):
        logger.process({"loss": n, "rep": 4, "iter": n, "h": [n]})
    logger.finalize()
    logger.finalize()
    assert wandb.calls == [
        (
            "init",
            {
                "project": "p", "entity": "e", "group": "g", "job_type": "exp_a.b1_a.c2",
                "name": "exp_a.b1_a.c2_rep_04", "config": {"lr": 0.1}, "dir": "f",
                "mode": "online",
            },
        ),
        ("log", {"loss": 0, "iter": 0, "h": ("histogram", [0])}, 0),
        ("log", {"loss": 2, "iter": 2, "h": ("histogram", [2])}, 2),
        "finish",
    ]  # fmt: skip
    import os

    assert "WANDB_RUN_ID" not in os.environ and os.environ["WANDB_API_KEY"] == "mine"


def test_an_experiment_says_how_it_is_sent_to_wandb(
    wandb: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from packhorse.cw2.cw_data.cw_wandb_logger import WandBLogger, group_parameters

    logger = WandBLogger()
    logger.initialize(
        experiment(job_type="j", enabled=False, disable_stats=True, use_group_parameters=True),
        0,
        "",
    )
    about = wandb.calls[0][1]
    assert (about["job_type"], about["mode"]) == ("j", "disabled")
    assert about["settings"] == {"x_disable_stats": True}
    assert about["name"] == "a_[b1,c2],exp_rep_00"
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger.initialize(experiment(), 0, "")
    assert wandb.calls[1][1]["mode"] == "offline"
    names = ["local", "mod.enc.tidentity", "mod.hea.nhl5", "mod.hea.ioFalse", "mod.enc.hd64"]
    assert group_parameters(names) == ("local,mod_[enc_[hd64,tidentity],hea_[ioFalse,nhl5]]", 2)


def test_an_experiment_without_wandb_sends_nothing(wandb: StandIn) -> None:
    from packhorse.cw2.cw_data.cw_wandb_logger import WandBLogger

    logger = WandBLogger()
    with pytest.warns(UserWarning, match="says nothing about `wandb`"):
        logger.initialize({"_experiment_name": "e"}, 0, "")
    logger.process({"iter": 0})
    logger.finalize()
    assert wandb.calls == []


def test_a_connection_to_wandb_is_tried_again(
    wandb: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from packhorse.cw2.cw_data import cw_wandb_logger

    pauses: list[float] = []
    monkeypatch.setattr(cw_wandb_logger.time, "sleep", pauses.append)
    wandb.failures = 3
    with pytest.warns(UserWarning, match="no network"):
        cw_wandb_logger.WandBLogger().initialize(experiment(), 0, "")
    assert len(pauses) == 3 and wandb.calls[0][0] == "init"
    wandb.failures = 100
    with pytest.warns(UserWarning), pytest.raises(ConnectionError):
        cw_wandb_logger.WandBLogger().initialize(experiment(), 0, "")
    assert len(pauses) == 3 + 9


def test_models_plots_and_tables_are_sent(wandb: StandIn) -> None:
    from packhorse.cw2.cw_data.cw_wandb_logger import WandBLogger

    config = experiment(log_model=True, model_name="net")
    logger = WandBLogger()
    logger.initialize(config, 1, "rep")
    assert config["save_model_dir"] == "rep/model"
    Path("rep/model").mkdir(parents=True)
    Path("rep/model/weights").write_text("")
    logger.log_plot([1, 2], [3, 4], ("n", "loss"), "id", "Title")
    logger.log_table("a table")
    logger.finalize()
    table = ("table", {"data": [[1, 3], [2, 4]], "columns": ["n", "loss"]})
    assert wandb.calls[1:] == [
        ("log", {"id": ("line", (table, "n", "loss"), {"title": "Title"})}, None),
        ("log", {"table": ("table", {"dataframe": "a table"})}, None),
        ("artifact", ["net", "model", "rep/model/weights"], ["latest", "finished-rep-1"]),
        "finish",
    ]


def test_without_wandb_the_import_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    forget("packhorse.cw2.cw_data.cw_wandb_logger", monkeypatch)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match="pip install wandb"):
        import packhorse.cw2.cw_data.cw_wandb_logger  # noqa: F401
