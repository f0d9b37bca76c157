"""Where the kernel keeps what it counts of a process's control groups."""

from __future__ import annotations

from pathlib import Path

from collector.host.kernel_files import text_of


def control_groups(pid: int, controller: str, proc: Path, groups: Path) -> list[Path]:
    """The folders under `groups` in which a controller tells of a process; nothing where /proc does not say.

    In version 1 a controller has a tree of its own, in version 2 all share one.
    """
    folders = []
    for line in text_of(proc / str(pid) / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            folders.append(groups / group.lstrip("/"))
        elif controller in controllers.split(","):
            folders.append(groups / controller / group.lstrip("/"))
    return folders
