"""Calls that the NCCL shim saw and could not place: their communicator was made where it did not look.

They are in no ring; the process counts them in its control block. Whoever concludes from the other calls must know that
they are not all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collector.agent import control_block
from collector.agent.host_processes import KnownProcess

MOST = 1 << 40
"""No process makes more calls: a larger count is garbage."""


class UnnamedCalls:
    """Follows the counts of a host's processes.

    Parameters
    ----------
    folder
        `<run folder>/control`; it may not exist.
    told
        What was told before, by pid and start ticks.

    """

    def __init__(self, folder: Path, told: dict[str, int]) -> None:
        self._folder = folder
        self.told = dict(told)

    def look(self, processes: Iterable[KnownProcess]) -> list[tuple[KnownProcess, int]]:
        """Processes that have made more of them since the last time, and how many."""
        news = []
        for process in processes:
            try:
                start_ticks, count = control_block.unnamed_calls(self._folder / f"{process.pid}.control")
            except (control_block.UnreadableControl, OSError):  # no shim in it, or no room: it says so itself
                continue
            key = f"{process.pid}-{process.start_ticks}"
            told = self.told.get(key, 0)
            if start_ticks == process.start_ticks and told < count <= MOST:
                self.told[key] = count
                news.append((process, count - told))
        return news
