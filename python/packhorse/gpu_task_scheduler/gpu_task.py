"""The class that tests are derived from."""

from __future__ import annotations

from . import _visibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A file that defines a test imports this before, or right after, what would take a GPU.
_visibility.hide()


class GPUTask:
    """A test: derive a class from it, and write what it does into ``main``."""

    #: The test's parameters: the global ones, and those of this test laid over them.
    _config: dict[str, Any]
    #: The folder for its results.
    _work_dir: str

    def __init__(self, config: dict[str, Any], work_dir: str) -> None:
        if not _visibility.scheduling:
            # It was made to be used here.
            _visibility.show()
        self._config = config
        self._work_dir = work_dir

    def required_env(self) -> dict[str, str]:
        """Environment variables for ``main``, asked for before it starts.

        It is called in the scheduler's process. They win over those of the GPU.
        """
        return {}

    def main(self) -> None:
        """What the test does. It runs in a process of its own, on its GPU."""
        raise NotImplementedError(f"{type(self).__name__} has no main()")
