"""Schedulers of the program's own, which are given the jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Script, needs

FILE = """\
name: DEFAULT
path: out
repetitions: 2
iterations: 2
---
name: tried
grid:
  lr: [0.1, 0.2]
  net: {depth: [3]}
---
name: other
params: {lr: 0.3}
"""
SCRIPT = """
    import os, sys
    from packhorse.cw2 import cluster_work, experiment, scheduler
    from packhorse.cw2.cw_data import cw_logging, cw_pd_logger

    class Half(experiment.AbstractIterativeExperiment):
        def initialize(self, cw_config, rep, logger):
            self.loss = cw_config["params"]["lr"]

        def iterate(self, cw_config, rep, n):
            if self.loss == 0.2 and rep == 1:
                raise ValueError("oh")
            self.loss /= 2
            return {"loss": self.loss}

        def save_state(self, cw_config, rep, n):
            with open(os.path.join(cw_config["_rep_log_path"], "state"), "a") as file:
                file.write(f"{n} {os.getpid()}\\n")

        def finalize(self, surrender=None, crash=False):
            pass

    class Mine(scheduler.AbstractScheduler):
        def run(self, overwrite=False):
            for job in self.joblist:
                print("job", job.n_parallel, [task["_rep_idx"] for task in job.tasks])
                for config in job.tasks:
                    job.run_task(config, overwrite)

    class Local(scheduler.LocalScheduler):
        def execute_task(self, j, c, overwrite=False):
            print("executes", c["_rep_idx"])
            super().execute_task(j, c, overwrite)

    if __name__ == "__main__":
        cw = cluster_work.ClusterWork(Half)
        cw.add_logger(cw_pd_logger.PandasLogger())
"""


@pytest.fixture(autouse=True)
def needs_pandas() -> None:
    needs("python")


def program(*lines: str, words: tuple[str, ...] = (), file: str = FILE) -> Script:
    Path("config.yml").write_text(file)
    return Script(SCRIPT + "".join(f"        {line}\n" for line in lines), "config.yml", *words)


def states() -> dict[str, int]:
    """How many iterations were saved in the folder of each repetition."""
    found = Path("out").glob("**/state")
    return {str(path.parent)[4:]: len(path.read_text().splitlines()) for path in found}


DONE = {
    "tried/tried__l0.1_net.d3/log/rep_00": 2,
    "tried/tried__l0.1_net.d3/log/rep_01": 2,
    "tried/tried__l0.2_net.d3/log/rep_00": 2,
    "other/log/rep_00": 2,
    "other/log/rep_01": 2,
}


def test_a_scheduler_is_given_the_jobs_and_failures_are_told() -> None:
    script = program("cw.run(sch=Mine())", "print('after')")
    done = script.run()
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("job 1 [0]") == done.stdout.count("job 1 [1]") == 3
    assert "ValueError: oh" in done.stdout and done.stdout.endswith("after\n")
    crashed = "out/tried/tried__l0.2_net.d3/log/rep_01"
    assert done.stderr == f"1 repetitions failed:\n  {crashed}\n"
    assert "ValueError: oh" in Path(crashed, "err.log").read_text()
    assert states() == DONE
    # What was run is not run again.
    again = script.run()
    assert again.returncode == 0 and again.stdout.count("is skipped") == 6, again.stderr
    script.command.append("-o")
    over = script.run()
    assert over.returncode == 1 and states() == {key: 4 for key in DONE}, over.stderr


def test_what_packhorse_has_only_tried_is_run() -> None:
    tried = program("cw.run()", words=("-e", "other", "--debug")).run()
    assert tried.returncode == 0 and states() == {"other/log/rep_00": 1}, tried.stderr
    again = program("cw.run(sch=Mine())", words=("-e", "other", "--debug")).run()
    assert again.stdout.count("is skipped") == 1, again.stdout
    done = program("cw.run(sch=Mine())", words=("-e", "other")).run()
    assert done.returncode == 0 and "is skipped" not in done.stdout, done.stdout + done.stderr


def test_failures_that_somebody_looks_at_are_theirs() -> None:
    done = program("print('status', cw.run(sch=Mine()).exit_status)").run()
    assert done.returncode == 0 and "status 1" in done.stdout, done.stderr


def test_one_job_or_one_experiment_can_be_chosen() -> None:
    file = FILE.replace("iterations: 2", "iterations: 2\nreps_per_job: 3")
    done = program("cw.run(sch=Mine())", words=("-j", "0"), file=file).run()
    assert done.stdout.count("job") == 1 and "job 1 [0, 1]" in done.stdout, done.stderr
    done = program("cw.run(sch=Mine())", words=("-e", "tried"), file=file).run()
    assert "job 1 [0, 1, 0]" in done.stdout and "job 1 [1]" in done.stdout, done.stderr
    wrong = program("cw.run(sch=Mine())", words=("-j", "7")).run()
    assert wrong.returncode == 2 and "there is no job 7" in wrong.stderr
    wrong = program("cw.run(sch=Mine())", words=("--gpus", "0")).run()
    assert wrong.returncode == 2 and "unrecognized arguments: --gpus 0" in wrong.stderr


@pytest.mark.parametrize("parallel", [1, 2])
def test_the_local_scheduler_runs_some_repetitions_at_a_time(parallel: int) -> None:
    file = FILE.replace(
        "iterations: 2", f"iterations: 2\nreps_per_job: 4\nreps_in_parallel: {parallel}"
    )
    done = program("cw.run(sch=Local())", file=file).run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("executes 0") == 3 and done.stdout.count("executes 1") == 3
    assert "ValueError: oh" in done.stdout and "1 repetitions failed" in done.stderr
    assert states() == DONE
    processes = {path.read_text().split()[1] for path in Path("out").glob("**/state")}
    assert len(processes) == (1 if parallel == 1 else 5)


def test_folders_are_below_the_root() -> None:
    done = program("cw.run(root_dir='root', sch=Mine())").run()
    assert done.returncode == 1, done.stderr
    assert len(list(Path("root/out").glob("**/state"))) == 5
    assert not Path("out").exists()
    loaded = program("print(len(cw.load('root').cw2.flatten_pd_log()))").run()
    assert loaded.stdout.splitlines()[-1] == "10", loaded.stderr


LOAD = (
    "df = cw.load({root})",
    "print(df.index.names, len(df), sorted(df.columns))",
    "row = df.reset_index().query('name == \"other\" and r == 1').iloc[0]",
    "print(row['rep_path'], row['params'])",
    "print(len(df.cw2.filter({{'net': {{'depth': 3}}, 'lr': 0.1}})), len(df.cw2.name('tried')))",
    "print(len(df.cw2.repetition(1)), len(df.reset_index().cw2.repetition(1)))",
    "print(df.cw2.logger(l_cls=cw_pd_logger.PandasLogger).iloc[0]['loss'].tolist())",
    "flat = df.cw2.flatten_pd_log()",
    "row = flat.reset_index().query('name == \"other\" and r == 1 and iter == 1').iloc[0]",
    "print(flat.index.names, len(flat), row['loss'])",
    "print(row['params'], flat['net_depth'].count())",
    "print(len(df.cw2.flatten_pd_log()), 'PandasLogger' in flat.columns)",
)
LOADED = """\
['name', 'r'] 6 ['PandasLogger', 'lr', 'net_depth', 'params', 'rep_path']
out/other/log/rep_01 {'lr': 0.3}
2 4
3 3
[0.15, 0.075]
['name', 'r', 'iter'] 10 0.075
{'lr': 0.3} 6
10 False
"""


def test_results_are_loaded_into_a_table() -> None:
    program("cw.run(sch=Mine())").run()
    before = sorted(Path("out").glob("**/*"))
    done = program(*(line.format(root="") for line in LOAD)).run()
    assert done.returncode == 0, done.stderr
    missing = "tried__l0.2_net.d3/log/rep_01/rep_1.pkl does not exist"
    assert missing in done.stdout.splitlines()[0]
    told = [line for line in done.stdout.splitlines() if not line.startswith("[cw2]")]
    assert told == LOADED.splitlines()
    assert sorted(Path("out").glob("**/*")) == before, "loading makes no files"


def test_a_class_is_not_needed_to_load_but_to_run() -> None:
    script = program("cluster_work.ClusterWork().load()", "cluster_work.ClusterWork().run()")
    done = script.run()
    assert done.returncode == 1 and "NotImplementedError: there is nothing to run" in done.stderr


def test_an_experiment_with_nothing_logged_is_an_empty_table() -> None:
    done = program("print(cw.load().cw2.flatten_pd_log().shape)", words=("-e", "other")).run()
    assert done.stdout.endswith("(0, 0)\n"), done.stdout + done.stderr


