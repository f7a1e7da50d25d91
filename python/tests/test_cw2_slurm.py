"""Programs for cw2 on a real Slurm cluster: the examples of its manual's chapter on GPUs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import packhorse
from conftest import Cluster, Script, needs

SLURM = """\
---
name: "SLURM"
partition: "{partition}"
job-name: "{job}"
num_parallel_jobs: 4
time: 20
ntasks: 1
cpus-per-task: {cpus}
gpus_per_rep: {gpus_per_rep}
{more}
sbatch_args:
  gres: "gpu:{gpus}"
---
name: DEFAULT
path: out
repetitions: 4
iterations: 2
reps_per_job: {reps}
reps_in_parallel: {reps}
---
name: half
params: {{lr: 0.1}}
"""
SCRIPT = """
    import json, os
    from cw2 import cluster_work, experiment
    from cw2.cw_data import cw_logging

    class Training(experiment.AbstractIterativeExperiment):
        def initialize(self, cw_config, rep, logger):
            self.folder = cw_config["_rep_log_path"]
            about = {
                "node": os.environ["SLURMD_NODENAME"],
                "job": os.environ["SLURM_JOB_ID"],
                "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
                "of": os.environ["SLURM_JOB_GPUS"],
                "cores": sorted(cw_config.get("cpu_cores", ())),
                "affinity": sorted(os.sched_getaffinity(0)),
            }
            with open(os.path.join(self.folder, "about.json"), "w") as file:
                json.dump(about, file)

        def iterate(self, cw_config, rep, n):
            return {"loss": 1 / (n + 1)}

        def save_state(self, cw_config, rep, n):
            pass

        def finalize(self, surrender=None, crash=False):
            pass

    if __name__ == "__main__":
        cw = cluster_work.ClusterWork(Training)
        cw.run()
        print("after")
"""


def program(*words: str, **slurm: Any) -> Script:
    about = {"partition": "main", "job": "job", "gpus": 1, "more": "", **slurm}
    Path("config.yml").write_text(SLURM.format(**about))
    return Script(SCRIPT, "config.yml", "-s", *words, name="my_main.py", module="packhorse")


def repetitions() -> list[dict[str, Any]]:
    paths = sorted(Path("out/half/log").glob("rep_*/about.json"))
    return [json.loads(path.read_text()) for path in paths]


def test_two_repetitions_share_a_gpu(cluster: Cluster) -> None:
    """10.1.1: half a GPU each, two at a time."""
    script = program("--wait", cpus=8, gpus_per_rep=0.5, gpus=1, reps=2)
    done = cluster.inside(script).run()
    assert done.returncode == 0 and done.stdout.endswith("after\n"), done.stdout + done.stderr
    found = repetitions()
    assert len(found) == 4
    for repetition in found:
        assert repetition["gpus"] == repetition["of"], "the device that the job really has"
    jobs = [repetition["job"] for repetition in found]
    assert jobs[0] == jobs[1] != jobs[2] == jobs[3]
    # Run again, all is done; one that is gone is run again.
    again = cluster.inside(program("--wait", cpus=8, gpus_per_rep=0.5, gpus=1, reps=2)).run()
    assert again.returncode == 0 and "nothing to do" in again.stderr, again.stdout


def test_four_repetitions_have_a_gpu_each(cluster: Cluster) -> None:
    """10.1.2: four GPUs at once."""
    script = program("--wait", cpus=8, gpus_per_rep=1, gpus=4, reps=4)
    done = cluster.inside(script).run()
    assert done.returncode == 0, done.stdout + done.stderr
    found = repetitions()
    assert len({repetition["job"] for repetition in found}) == 1
    assert sorted(repetition["gpus"] for repetition in found) == ["0", "1", "2", "3"]


def test_no_repetition_steals_the_cores_of_another(cluster: Cluster) -> None:
    """10.2 and 10.3: each has cores of its own, and knows them."""
    needs("cores")
    script = program(
        "--wait", cpus=2, gpus_per_rep=1, gpus=2, reps=2, more='scheduler: "horeka"'
    )
    done = cluster.inside(script).run()
    assert done.returncode == 0, done.stdout + done.stderr
    found = repetitions()
    for one, other in (found[:2], found[2:]):
        assert one["job"] == other["job"]
        assert one["cores"] and not set(one["cores"]) & set(other["cores"])
    for repetition in found:
        assert repetition["cores"] == repetition["affinity"]


def test_the_lines_of_a_job_choose_its_python(cluster: Cluster) -> None:
    """As with the original, where `venv` and `sh_lines` activate an environment."""
    chosen = Path("chosen").resolve()
    chosen.mkdir()
    wrapper = chosen / "python3"
    wrapper.write_text(f'#!/bin/sh\ntouch {chosen}/used\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    lines = f"sh_lines: ['export PATH={chosen}:$PATH']"
    script = program("--wait", cpus=1, gpus_per_rep=1, reps=4, more=lines)
    done = cluster.inside(script).run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(repetitions()) == 4
    assert (chosen / "used").exists()


def test_a_submission_returns_at_once_and_outlives_the_program(cluster: Cluster) -> None:
    program(cpus=1, gpus_per_rep=1, gpus=1, reps=1)
    watch = f"""
        import subprocess, sys
        main = [sys.executable, "-m", "packhorse", "my_main.py", "config.yml", "-s"]
        done = subprocess.run(main, capture_output=True, text=True)
        print(done.returncode, "submitted to Slurm" in done.stdout, done.stdout.endswith("after\\n"))
        print(subprocess.run([{packhorse.binary()!r}, "slurm", "wait", "-q"]).returncode)
    """
    done = cluster.inside(Script(watch)).run()
    assert done.stdout.splitlines()[:1] == ["0 True True"], done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "0"
    assert len(repetitions()) == 4


def test_what_slurm_refuses_is_told(cluster: Cluster) -> None:
    script = program("--wait", cpus=1, gpus_per_rep=1, reps=1, partition="nowhere")
    done = cluster.inside(script).run()
    assert done.returncode == 2 and "invalid partition" in done.stderr, done.stderr
    assert "after" not in done.stdout and not repetitions()


def test_a_repetition_that_fails_on_the_cluster_is_the_programs_failure(
    cluster: Cluster,
) -> None:
    script = program("--wait", cpus=1, gpus_per_rep=1, reps=1)
    text = Path("my_main.py").read_text()
    Path("my_main.py").write_text(
        text.replace('return {"loss": 1 / (n + 1)}', 'return {"loss": 1 / (1 - rep)}')
    )
    done = cluster.inside(script).run()
    assert done.returncode == 1 and done.stdout.endswith("after\n"), done.stdout + done.stderr
    said = Path("out/half/log/rep_01/err.log").read_text()
    assert "ZeroDivisionError" in said
    assert Path("out/half/log/rep_02/err.log").read_text() == ""
