"""What the agent itself takes of its host, and what it does so that this stays within its budget.

It flushes less often first, for that costs nothing but delay. Where this does not suffice, one rank represents the
others of its host in small calls (collector/calls/representative_rank.py). It goes back the other way round.
"""

from __future__ import annotations

import os
from pathlib import Path

from collector.host.kernel_files import read_text

WINDOW_NS = 10_000_000_000
"""What it takes is judged over this long: evidence of a stall may cost half a second of a core at once."""
LOW_SHARE = 0.25
"""Below this share of the budget it flushes more often again: twice the flushes cost twice as much at most."""


class OwnCost:
    """Follows the agent's processor time, and says what to do while it is above the budget; time is an argument.

    Parameters
    ----------
    flush_s
        How often it flushes where that is cheap enough.
    longest_flush_s
        It never waits for longer: a host that says nothing for too long is taken for a silent one.
    budget_cores
        Cores that it may take, over a window.

    Attributes
    ----------
    flush_s
        How often it flushes now.
    uses_representatives
        Whether one rank represents the others of its host in small calls.
    cpu_cores
        What it took in the last window; 0 before the first one is over.

    Examples
    --------
    >>> cost = OwnCost(1.0, 2.5, budget_cores=0.2)
    >>> [cost.look(second * 10**9, cpu_ns) for second, cpu_ns in ((0, 0), (5, 10**9))]
    ['', '']
    >>> cost.look(10 * 10**9, 3 * 10**9)
    'the agent takes 0.30 cores, more than agent.cpu_budget_cores=0.2: it flushes every 2 s'
    >>> [cost.look(second * 10**9, second * 3 * 10**8).split(": ")[1] for second in (20, 30)]
    ['it flushes every 2.5 s', 'one rank tells of small calls that its whole host made alike']

    """

    def __init__(self, flush_s: float, longest_flush_s: float, budget_cores: float) -> None:
        self.flush_s = flush_s
        self.uses_representatives = False
        self.cpu_cores = 0.0
        self._shortest_s = flush_s
        self._longest_s = max(flush_s, longest_flush_s)
        self._budget_cores = budget_cores
        self._since: tuple[int, int] | None = None

    def look(self, now_ns: int, cpu_ns: int) -> str:
        """The agent has used so much processor time at a moment; a sentence when it holds back more from now on.

        Parameters
        ----------
        now_ns
            Monotonic time.
        cpu_ns
            Processor time of the whole process since it began.

        """
        if self._since is None:
            self._since = (now_ns, cpu_ns)
            return ""
        passed_ns = now_ns - self._since[0]
        if passed_ns < WINDOW_NS:
            return ""
        self.cpu_cores = (cpu_ns - self._since[1]) / passed_ns
        self._since = (now_ns, cpu_ns)
        if self.cpu_cores > self._budget_cores:
            return self._less()
        if self.cpu_cores < LOW_SHARE * self._budget_cores:
            if not self.uses_representatives:
                self.flush_s = max(self.flush_s / 2, self._shortest_s)
            self.uses_representatives = False
        return ""

    def _less(self) -> str:
        if self.uses_representatives:
            return ""  # there is nothing left to do
        if self.flush_s < self._longest_s:
            self.flush_s = min(2 * self.flush_s, self._longest_s)
            what = f"it flushes every {self.flush_s:g} s"
        else:
            self.uses_representatives = True
            what = "one rank tells of small calls that its whole host made alike"
        share = f"{self.cpu_cores:.2f} cores, more than agent.cpu_budget_cores={self._budget_cores:g}"
        return f"the agent takes {share}: {what}"


def resident_bytes() -> int:
    """Memory of this process; 0 where the kernel does not say."""
    try:
        pages = int(read_text(Path("/proc/self/statm")).split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
