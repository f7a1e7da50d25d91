"""What runs in a test's own process."""

from __future__ import annotations

from .gpu_task import GPUTask


def call_main(task: GPUTask) -> None:
    """Runs a test."""
    task.main()
