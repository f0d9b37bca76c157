"""How many processes of the job the kernel has killed for memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from collector.host.kernel_files import text_of
from collector.host.processes import PROC
from collector.host.rank_process import RankProcess
from collector.host.vitals.control_groups import control_groups
from collector.host.vitals.nics import SYS

_FILES = ("memory.events", "memory.oom_control")
"""Of version 2, of version 1."""

_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class OomKills:
    """Counts from the first look on, in the control groups of the ranks.

    Where these keep no such count (the root group, no permission) the whole host's is taken: it may count processes
    of others. A group is remembered: it outlives the rank that was killed in it.

    Parameters
    ----------
    proc, sys
        Where /proc and /sys are.

    """

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc = proc
        self._groups = sys / "fs" / "cgroup"
        self._first: dict[Path, int] = {}
        self._asked: set[int] = set()

    def look(self, ranks: Sequence[RankProcess]) -> int:
        """How many since the first look."""
        for process in ranks:
            if process.pid not in self._asked:
                self._asked.add(process.pid)
                self._follow(process.pid)
        return sum(max(_kills(path) - first, 0) for path, first in self._first.items())

    def _follow(self, pid: int) -> None:
        for folder in control_groups(pid, "memory", self._proc, self._groups):
            for name in _FILES:
                path = folder / name
                if _kills(path) >= 0:
                    self._first.setdefault(path, _kills(path))
                    return
        host = self._proc / "vmstat"
        if _kills(host) >= 0:
            self._first.setdefault(host, _kills(host))


def _kills(path: Path) -> int:
    """The count in a file, -1 where it has none."""
    match = _OOM_KILL.search(text_of(path))
    return int(match[1]) if match else -1
