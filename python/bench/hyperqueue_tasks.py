"""/bin/true through HyperQueue: hyperqueue_tasks.py TASKS WORKERS CORES prints the time.

The time to start its server and workers, and to stop them, is not counted.
"""

import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def main() -> None:
    tasks, workers, cores = (int(word) for word in sys.argv[1:])
    with tempfile.TemporaryDirectory(dir=".") as folder, LocalCluster(folder) as cluster:
        for _ in range(workers):
            cluster.start_worker(WorkerConfig(cores=cores))
        client = cluster.client()
        start = time.perf_counter()
        job = Job(folder)
        for _ in range(tasks):
            job.program(["/bin/true"], stdout=None, stderr=None)
        client.wait_for_jobs([client.submit(job)])
        print(f"seconds={time.perf_counter() - start}")


if __name__ == "__main__":
    main()
