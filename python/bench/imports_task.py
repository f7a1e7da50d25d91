"""A test that imports numpy."""

from packhorse.gpu_task_scheduler.gpu_task import GPUTask


class ImportsTask(GPUTask):
    def main(self):
        import numpy

        numpy.zeros(1)
