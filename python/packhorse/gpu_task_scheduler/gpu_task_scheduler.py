"""Runs the tests of a configuration on the GPUs that it names."""

from __future__ import annotations

from .. import _worker
from . import _visibility
from .config_manager import ConfigManager
from .gpu_task import GPUTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._failures import GridReport


class GPUTaskScheduler:
    """Runs a class's ``main`` for each combination of parameters, each on a free GPU."""

    def __init__(self, config: Mapping[str, Any], gpu_task_class: type[GPUTask]) -> None:
        """``config`` as the manual describes it, and a class derived from ``GPUTask``."""
        _worker.check_not_loading()
        self._config_manager = ConfigManager(config)
        self._gpu_task_class = gpu_task_class

    def start(self) -> GridReport:
        """Runs all tests that were not done before; returns when all have ended.

        Tests that fail do not keep the others from running. They are listed at the end, and
        if nobody looks at the report, the program ends with exit status 1.
        """
        _worker.check_not_loading()
        # They were shown again at the end of an earlier start().
        _visibility.hide()
        _visibility.scheduling = True
        try:
            # Not at the top: a script that is loaded for a test needs none of it.
            from ._grid_run import GridRun

            return GridRun(self._config_manager, self._gpu_task_class).run()
        finally:
            _visibility.scheduling = False
            # The program may go on to use a GPU itself.
            _visibility.show()
