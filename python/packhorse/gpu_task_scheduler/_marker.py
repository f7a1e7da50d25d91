"""What the folder of a test says about it."""

from __future__ import annotations

import json
import os

#: Written by packhorse into the folder of every task that has one.
MARKER = ".packhorse.json"


def is_done(folder: str, debug: bool = False) -> bool:
    """Whether a test need not run again. What was only tried is no result, unless it is only
    to be tried once more (``debug``).

    What failed or was interrupted runs again. A folder without a marker was made by the
    original, which never runs a test again whose folder is there.
    """
    try:
        with open(os.path.join(folder, MARKER), "rb") as file:
            marker = json.load(file)
    except FileNotFoundError:
        return os.path.isdir(folder)
    except (OSError, ValueError):
        return False
    if not isinstance(marker, dict) or marker.get("outcome") != "succeeded":
        return False
    return debug or not marker.get("debug")
