"""The control groups of a process, by controller."""

from __future__ import annotations

from pathlib import Path, PurePosixPath


def control_groups(pid: int, proc: Path) -> list[tuple[frozenset[str], PurePosixPath]]:
    """Controllers and group, a path without a leading slash; version 2 names no controller.

    Nothing where /proc does not tell.
    """
    try:
        text = (proc / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        found.append((frozenset(controllers.split(",")) - {""}, PurePosixPath(group.lstrip("/"))))
    return found
