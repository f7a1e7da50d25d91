"""The same in the original's way: original.py TESTS AT_A_TIME.

A thread for each GPU starts a new Python for each test, which imports the scheduler's package
and then what the test needs, after 15 ms of scheduling.
"""

import subprocess
import sys
import threading
import time

TEST = """
import packhorse.gpu_task_scheduler.gpu_task_scheduler
import numpy
numpy.zeros(1)
"""


def main() -> None:
    tests, at_a_time = map(int, sys.argv[1:])
    numbers = iter(range(tests))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
            time.sleep(0.015)
            subprocess.run([sys.executable, "-c", TEST], check=True)

    threads = [threading.Thread(target=work) for _ in range(at_a_time)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
