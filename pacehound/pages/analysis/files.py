"""The files that the user's paths stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Files as given, and the regular files below directories in the order of their names; each once.

    What begins with a dot is passed over in directories.
    """
    found: dict[str, Path] = {}
    for path in paths:
        for file in _below(path) if path.is_dir() else (path,):
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(place) / name for name in sorted(names) if not name.startswith("."))
        found.extend(file for file in files if file.is_file())
    return found
