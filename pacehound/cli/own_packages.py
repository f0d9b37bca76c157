"""Makes sure that `collector`, `storage` and the others are ours, whatever else has such a name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the `pacehound` package and its siblings."""

SIBLINGS = ("collector", "streams", "storage", "alerts", "actuators", "simulator", "web")


def prefer_ours(root: Path = ROOT) -> None:
    """Put `root` first on `sys.path` and forget siblings that were imported from elsewhere.

    A user's working directory or PYTHONPATH may hold a `collector.py` or a `storage/`, and their `sitecustomize` may
    have imported it into this process before us. Call this before the first import of a sibling; it is for processes
    of our own, never for a training process.
    """
    place = str(root)
    sys.path[:] = [place, *(entry for entry in sys.path if entry not in (place, "", os.curdir))]
    for name in list(sys.modules):
        if name.partition(".")[0] in SIBLINGS and not _lies_in(name, root):
            del sys.modules[name]


def _lies_in(name: str, root: Path) -> bool:
    module = sys.modules[name]
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    return any(place is not None and Path(place).resolve().is_relative_to(root) for place in places)
