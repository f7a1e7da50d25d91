"""The original's README, line by line: with the import paths changed, and unmodified."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE

CONFIG = """\
config = {
    "scheduler_config": {
        "gpu": ["0", "1", "2"]
    },

    "global_config": {
        "num_run": 5,
        "num_epoch": 200,
    },

    "test_config": [
        {
            "method": ["GAN", "ALI"],
            "num_packing": [1],
            "num_zmode": [1]
        }, 
        {
            "method": ["WGAN"],
            "num_packing": [3],
            "num_zmode": [1, 2]
        }
    ]
}
"""
TASK = """\
from gpu_task_scheduler.gpu_task import GPUTask


class MyGPUTask(GPUTask):
    def required_env(self):
        return {"EXTRA": "5"}

    def main(self):
        import os
        with open(os.path.join(self._work_dir, "result.txt"), "w") as f:
            f.write(repr(self._config) + os.environ["EXTRA"])
"""
MAIN = """\
from config import config
from my_gpu_task import MyGPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
scheduler = GPUTaskScheduler(config = config, gpu_task_class = MyGPUTask)
scheduler.start()
"""
INSTANCES = {
    "method-GAN,num_packing-1,num_zmode-1,": {"method": "GAN", "num_packing": 1, "num_zmode": 1},
    "method-ALI,num_packing-1,num_zmode-1,": {"method": "ALI", "num_packing": 1, "num_zmode": 1},
    "method-WGAN,num_packing-3,num_zmode-1,": {"method": "WGAN", "num_packing": 3, "num_zmode": 1},
    "method-WGAN,num_packing-3,num_zmode-2,": {"method": "WGAN", "num_packing": 3, "num_zmode": 2},
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=PATIENCE
    )


def write(change: bool) -> None:
    for name, text in (("config.py", CONFIG), ("my_gpu_task.py", TASK), ("my_main.py", MAIN)):
        if change:
            text = text.replace("from gpu_task_scheduler", "from packhorse.gpu_task_scheduler")
        Path(name).write_text(text)


@pytest.mark.parametrize("words", [["my_main.py"], ["-m", "packhorse", "my_main.py"]])
def test_the_readme_can_be_followed(words: list[str]) -> None:
    write(change=len(words) == 1)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in Path("results").iterdir()} == set(INSTANCES)
    for name, own in INSTANCES.items():
        wanted = {"num_run": 5, "num_epoch": 200, **own}
        assert Path("results", name, "result.txt").read_text() == repr(wanted) + "5"
    log = Path("scheduler.log").read_text()
    assert log.count("receives task") == log.count("finishes task") == 4
    again = run(*words)
    assert again.returncode == 0 and again.stdout.count("skips task") == 4, again.stderr


def test_the_original_name_is_ours_for_the_script_alone() -> None:
    Path("names.py").write_text(
        "import sys\n"
        "import gpu_task_scheduler.gpu_task\n"
        "from gpu_task_scheduler.config_manager import ConfigManager\n"
        "import packhorse.gpu_task_scheduler.gpu_task as ours\n"
        "import packhorse.gpu_task_scheduler.config_manager as manager\n"
        "assert gpu_task_scheduler.gpu_task.GPUTask is ours.GPUTask\n"
        "assert gpu_task_scheduler.gpu_task is ours and ours.__name__.startswith('packhorse')\n"
        "assert ConfigManager is manager.ConfigManager\n"
        "import os\n"
        "print(__name__, __file__, sys.argv, sys.path[0] == os.getcwd())\n"
        "print(repr(os.environ['CUDA_VISIBLE_DEVICES']))\n"
        "sys.exit(3)\n"
    )
    done = run("-m", "packhorse", "names.py", "a", "b")
    path = os.path.abspath("names.py")
    assert done.stdout == f"__main__ {path} ['names.py', 'a', 'b'] True\n''\n", done.stderr
    assert done.returncode == 3
    assert run("-c", "import packhorse, gpu_task_scheduler").returncode == 1


def test_a_class_in_the_script_itself_works_unmodified() -> None:
    Path("all_in_one.py").write_text(
        CONFIG + TASK + MAIN.partition("import MyGPUTask\n")[2] + "print('after')\n"
    )
    done = run("-m", "packhorse", "all_in_one.py")
    assert done.returncode == 0 and done.stdout.endswith("after\n"), done.stderr
    assert len(list(Path("results").glob("*/result.txt"))) == 4
    assert done.stdout.count("after") == 1


def test_programs_of_the_usual_form_run_unmodified() -> None:
    """As PacGAN, InfoGAN-CR and DoppelGANger: a guarded main, and imports within it."""
    for name in ("example", "gan"):
        Path(name).mkdir()
    Path("gan/network.py").write_text("def train(config): return config['batch_size'] * 2\n")
    Path("example/config.py").write_text(
        CONFIG.replace('"gpu": ["0", "1", "2"]', '"gpu": ["0"],\n"config_string_value_maxlen": 1000,\n"result_root_folder": "../results/"')
        .replace('"num_run": 5', '"batch_size": 5, "gen_noise": False')
    )
    Path("example/gan_task.py").write_text(
        "from gpu_task_scheduler.gpu_task import GPUTask\n\n\n"
        "class GANTask(GPUTask):\n"
        "    def main(self):\n"
        "        import os\n"
        "        import sys\n"
        "        sys.path.append('..')\n"
        "        from gan.network import train\n"
        "        sample_dir = os.path.join(self._work_dir, 'sample')\n"
        "        if not os.path.exists(sample_dir):\n"
        "            os.makedirs(sample_dir)\n"
        "        print(train(self._config))\n"
    )
    Path("example/main.py").write_text(
        "if __name__ == '__main__':\n"
        "    from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n"
        "    from gan_task import GANTask\n"
        "    from config import config\n"
        "    scheduler = GPUTaskScheduler(config=config, gpu_task_class=GANTask)\n"
        "    scheduler.start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "packhorse", "main.py"],
        cwd="example", capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list(Path("results").glob("*/sample"))) == 4
    assert {path.read_text() for path in Path("results").glob("*/worker.log")} == {"10\n"}


@pytest.mark.parametrize("module", [[], ["-m", "packhorse"]])
def test_tests_find_modules_in_the_folder_that_the_program_was_started_in(
    module: list[str],
) -> None:
    Path("example").mkdir()
    Path("network.py").write_text("def train(): return 'trained'\n")
    Path("example/task.py").write_text(
        "from packhorse.gpu_task_scheduler.gpu_task import GPUTask\n"
        "class Test(GPUTask):\n"
        "    def main(self):\n"
        "        from network import train\n"
        "        print(train())\n"
    )
    Path("example/main.py").write_text(
        "from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n"
        "from task import Test\n"
        "GPUTaskScheduler({'scheduler_config': {'gpu': ['0']}}, Test).start()\n"
    )
    done = run(*module, "example/main.py")
    assert done.returncode == 0, done.stderr
    [log] = Path("results").rglob("worker.log")
    assert log.read_text() == "trained\n"


def test_help_version_and_mistakes() -> None:
    assert run("-m", "packhorse", "--version").stdout == "packhorse 0.1.0\n"
    assert "usage: python -m packhorse SCRIPT" in run("-m", "packhorse", "--help").stdout
    for words in ([], ["no.py"], ["--nonsense"], ["run"]):
        done = run("-m", "packhorse", *words)
        assert done.returncode == 2 and done.stderr and not done.stdout
    assert "`packhorse run`" in run("-m", "packhorse", "run").stderr
