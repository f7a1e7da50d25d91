"""Tests that import numpy, through GPUTaskScheduler: grid.py TESTS AT_A_TIME [MODULE…].

The modules are imported once for all of them.
"""

import sys

from imports_task import ImportsTask
from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

if __name__ == "__main__":
    tests, at_a_time = map(int, sys.argv[1:3])
    config = {
        "scheduler_config": {"gpu": [str(gpu) for gpu in range(at_a_time)]},
        "test_config": [{"number": list(range(tests))}],
    }
    if sys.argv[3:]:
        config["preload"] = sys.argv[3:]
    report = GPUTaskScheduler(config=config, gpu_task_class=ImportsTask).start()
    assert report.succeeded == tests and not report.failed
