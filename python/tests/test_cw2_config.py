"""What a file of experiments means is asked of the program."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
from packhorse.cw2 import cw_error, util
from packhorse.cw2.cw_config import cw_conf_keys as KEYS
from packhorse.cw2.cw_config.conf_unfolder import expand_experiments, unfold_exps, unroll_exp_reps
from packhorse.cw2.cw_config.cw_config import Config
from packhorse.cw2.cw_data.cw_logging import LoggerArray
from packhorse.cw2.job import JobFactory

FILE = """\
---
name: SLURM
partition: gpu
time: 20
---
name: DEFAULT
path: out
repetitions: 2
iterations: 3
params: {net: {depth: 2}, lr: 0.1}
---
name: plain
reps_per_job: 2
---
name: tried
reps_in_parallel: 4
grid:
  lr: [0.1, 1.0e-05]
  net: {hidden_size: [8]}
"""


@pytest.fixture
def file() -> str:
    Path("config.yml").write_text(FILE)
    return "config.yml"


def test_runs_are_expanded_as_the_original_does() -> None:
    experiment: dict[str, Any] = {
        "name": "e",
        "path": "out",
        "repetitions": 3,
        "iterations": 5,
        "params": {"a": 1},
        "grid": {"lr": [0.1, None], "net": {"hidden_size": [(1, 2)]}},
        "list": {"b": [True], "c": [datetime.date(2026, 1, 2)]},
    }
    before = repr(experiment)
    runs = expand_experiments([experiment], False, False)
    assert repr(experiment) == before
    first = {
        "name": "e", "path": "out/e/e__l0.1_net.hs_1_2_bTrue_c2026-01-02",
        "log_path": "out/e/e__l0.1_net.hs_1_2_bTrue_c2026-01-02/log",
        "repetitions": 3, "iterations": 5,
        "params": {"a": 1, "lr": 0.1, "net": {"hidden_size": (1, 2)}, "b": True,
                   "c": "2026-01-02"},
        "_basic_path": "out", "_experiment_name": "e__l0.1_net.hs_1_2_bTrue_c2026-01-02",
        "_nested_dir": "e", "_debug": False,
    }  # fmt: skip
    assert runs[0] == first
    assert [run["params"]["lr"] for run in runs] == [0.1, None]
    assert [run["_experiment_name"] for run in expand_experiments([experiment], True, False)] == [
        first["_experiment_name"]
    ]
    [one, two] = expand_experiments([experiment], False, True)
    assert (one["repetitions"], two["iterations"], two["_debug"]) == (1, 1, True)
    assert expand_experiments([]) == []


def test_repetitions_are_unfolded() -> None:
    experiment = {"name": "e", "path": "out", "repetitions": 2, "grid": {"lr": [1, 2]}}
    unfolded = unfold_exps([experiment], False, False)
    assert [(found["_rep_idx"], found["_rep_log_path"]) for found in unfolded] == [
        (0, "out/e/e__l1/log/rep_00"),
        (1, "out/e/e__l1/log/rep_01"),
        (0, "out/e/e__l2/log/rep_00"),
        (1, "out/e/e__l2/log/rep_01"),
    ]
    assert unroll_exp_reps(expand_experiments([experiment])) == unfolded
    # What was unfolded stays as it is.
    assert unroll_exp_reps(unfolded) == unfolded


def test_values_that_json_does_not_have_are_kept() -> None:
    values = [float("inf"), (1, "a"), {2: "b", 1: "a"}, {"!dict": 1}, 10**30, None]
    experiment = {"name": "e", "path": "out", "params": {"z": values, "a": 1}}
    [expanded] = expand_experiments([experiment])
    assert list(expanded["params"].items()) == [("z", values), ("a", 1)]
    assert list(expanded["params"]["z"][2]) == [2, 1]


def test_what_no_file_can_hold_is_refused() -> None:
    for value in (object(), 1j):
        with pytest.raises(cw_error.ConfigKeyError, match="cannot be a parameter"):
            expand_experiments([{"name": "e", "path": "out", "grid": {"a": [value]}}])


def test_a_file_is_loaded(file: str) -> None:
    config = Config(file)
    assert (config.f_name, config.config_path, config.exp_selections) == (file, file, None)
    assert [found["_experiment_name"] for found in config.exp_configs] == [
        "plain", "plain", "tried__l0.1_net.hs8", "tried__l0.1_net.hs8",
        "tried__l1e-05_net.hs8", "tried__l1e-05_net.hs8",
    ]  # fmt: skip
    assert config.exp_configs[2][KEYS.PARAMS] == {"net": {"depth": 2, "hidden_size": 8}, "lr": 0.1}
    assert config.exp_configs[3][KEYS.i_REP_LOG_PATH].endswith("/log/rep_01")
    selected = Config(file, ["tried"], debug=True)
    [only] = selected.exp_configs
    assert (only["name"], only["repetitions"], only["_debug"]) == ("tried", 1, True)
    stamped = Config(file, ["plain"], prefix_with_timestamp=True).exp_configs[0]["name"]
    assert re.fullmatch(r"\d{4}-\d{6}_plain", stamped)
    assert Config().exp_configs == []


def test_the_slurm_document_of_this_machine_is_there(file: str) -> None:
    config = Config(file)
    assert config.slurm_config == {"name": "slurm", "partition": "gpu", "time": 20}
    Path("none.yml").write_text("name: e\npath: out\nrepetitions: 1\n")
    assert Config("none.yml").slurm_config is None
    assert Config().slurm_config is None


def test_changes_are_seen(file: str) -> None:
    config = Config(file)
    assert config.is_as_loaded()
    assert config.slurm_config is not None and config.is_as_loaded()
    config.slurm_config["time"] = 30
    assert not config.is_as_loaded()
    config = Config(file)
    config.slurm_config = None
    assert not config.is_as_loaded() and config.slurm_config is None
    config = Config(file)
    config.exp_configs[1]["params"]["lr"] = 0.5
    assert not config.is_as_loaded()


def test_everything_is_written_back_and_can_be_loaded_again(file: str) -> None:
    config = Config(file)
    config.exp_configs[0]["params"]["lr"] = 0.7
    config.to_yaml()
    written = {str(path) for path in Path("out").glob("**/*.yml")}
    assert written == {
        "out/relative_config.yml",
        "out/plain/relative_config_plain.yml",
        "out/tried/relative_config_tried.yml",
    }
    again = Config("out/relative_config.yml")
    assert [found["_rep_log_path"] for found in again.exp_configs] == [
        found["_rep_log_path"].replace("out/", "./") for found in config.exp_configs
    ]
    assert again.exp_configs[0]["params"]["lr"] == 0.7
    assert again.slurm_config == config.slurm_config
    config.to_yaml("elsewhere", relpath=False)
    as_it_is = Config("elsewhere/relative_config.yml")
    assert as_it_is.exp_configs == config.exp_configs


def test_mistakes_are_told_as_the_program_tells_them(file: str) -> None:
    with pytest.raises(cw_error.MissingConfigError, match="there is no file none.yml"):
        Config("none.yml")
    with pytest.raises(cw_error.ExperimentNotFoundError, match="`other`"):
        Config(file, ["other"])
    Path("wrong.yml").write_text('name: SLURM\nsbatch_args:\n  gres: "gpu:1\n')
    with pytest.raises(cw_error.ConfigKeyError, match="wrong.yml:3"):
        Config("wrong.yml")


def test_repetitions_are_cut_into_jobs(file: str) -> None:
    config = Config(file)
    jobs = JobFactory(None, LoggerArray(), read_only=True).create_jobs(config.exp_configs)
    assert [len(job.tasks) for job in jobs] == [2, 1, 1, 1, 1]
    assert [job.n_parallel for job in jobs] == [1, 4, 4, 4, 4]
    # The very configurations: what is changed in one is changed in the other.
    assert jobs[0].tasks[0] is config.exp_configs[0]
    assert not Path("out").exists()
    JobFactory(None, LoggerArray()).create_jobs(config.exp_configs[:1])
    assert Path("out/plain/log/rep_00").is_dir()


def test_small_things() -> None:
    assert util.convert_param_names(["net.hidden_size", "lr"], [8, [1, "a b"]]) == "net.hs8_l_1_ab"
    assert util.shorten_param("network.layers.hidden_size") == "net.lay.hs"
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    util.deep_update(base, {"a": {"b": 5, "e": {"f": 6}}, "d": {"g": 7}})
    assert base == {"a": {"b": 5, "c": 2, "e": {"f": 6}}, "d": {"g": 7}}
    assert util.flatten_dict({"a": {"b": 1, "c": [2, 3]}, "d": (4,)}) == {
        "a_b": 1, "a_c_0": 2, "a_c_1": 3, "d": (4,)
    }  # fmt: skip
    assert util.flatten_dict_to_tuple_keys({"a": {"b": [1]}, "c": [2], "d": 3}) == {
        ("a", "b"): [1], ("c",): [2]
    }  # fmt: skip
    deep: dict[str, Any] = {}
    util.insert_deep_dictionary(deep, ("a", "b"), 1)
    util.append_deep_dictionary(deep, ("a", "c"), 2)
    util.append_deep_dictionary(deep, ("a", "c"), 3)
    util.insert_deep_dictionary(deep, "d", 4)
    assert deep == {"a": {"b": 1, "c": [2, 3]}, "d": 4}
    assert util.format_time(3665) == "1:01:05"
    Path("folder").mkdir()
    Path("folder/file").write_bytes(b"x" * 1_500_000)
    assert util.get_size(".") == 1.5
    assert util.check_subdir(".", "folder/inner") and not util.check_subdir("folder", "folders")
    assert util.get_file_names_in_directory("folder") == ["file"]
    assert util.get_file_names_in_directory(".") is None
    assert util.get_file_names_in_directory("none") is None
