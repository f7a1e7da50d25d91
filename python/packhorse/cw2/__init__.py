"""The interfaces of the original ``cw2``, on packhorse.

    from packhorse.cw2 import cluster_work, cw_error, experiment
    from packhorse.cw2.cw_data import cw_logging
    from packhorse.cw2.cw_data.cw_pd_logger import PandasLogger

Only the import paths are new; under ``python -m packhorse SCRIPT`` not even these.

    ClusterWork(MyExperiment).run()
        │  packhorse exp CONFIG … -- python SCRIPT …
        ▼
    a task per repetition: the same script, whose run() finds out which one it is, and runs
    just that

What a file of experiments means is asked of the ``packhorse`` program (``_ask.py``): nothing
here reads YAML, expands or names anything.
"""

from __future__ import annotations

import sys

from . import _told


def _show_gpus() -> None:
    """``python -m packhorse`` hides the GPUs, because a program for ``gpu_task_scheduler``
    needs none itself. One for this may."""
    visibility = sys.modules.get("packhorse.gpu_task_scheduler._visibility")
    if visibility is not None and "packhorse.gpu_task_scheduler.gpu_task" not in sys.modules:
        visibility.show()


_show_gpus()
# Before the script looks at its arguments.
_told.hide_label()
