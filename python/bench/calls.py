"""Empty functions through an executor: calls.py WHICH CALLS AT_A_TIME prints the time."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import packhorse
from functions import nothing


def joblib(calls: int, at_a_time: int) -> None:
    from joblib import Parallel, delayed

    Parallel(n_jobs=at_a_time, batch_size=1)(delayed(nothing)(n) for n in range(calls))


def main() -> None:
    which, calls, at_a_time = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    start = time.perf_counter()
    if which == "packhorse":
        with packhorse.Executor(slots=at_a_time) as pool:
            list(pool.map(nothing, range(calls)))
    elif which == "preload":
        with packhorse.Executor(slots=at_a_time, preload=[]) as pool:
            list(pool.map(nothing, range(calls)))
    elif which == "processes":
        with ProcessPoolExecutor(at_a_time, max_tasks_per_child=1) as pool:
            list(pool.map(nothing, range(calls)))
    elif which == "loky":
        joblib(calls, at_a_time)
    print(f"seconds={time.perf_counter() - start}")


if __name__ == "__main__":
    main()
