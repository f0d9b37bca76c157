"""When what was read is told: every so often; and of a job that is told of in iterations, when one of them is over.

There a flush in between says nothing but the time. It costs those who read it nearly as much as one that tells of an
iteration, and at ten seconds an iteration there would be nine of them (docs/adr/0030-digests.md).
"""

from __future__ import annotations


class FlushTimes:
    """Of one agent; times are monotonic.

    Parameters
    ----------
    longest_s
        It never waits for longer: a host that says nothing for too long is taken for a silent one.
    guard_ns
        How far a promise stays behind the clock: sooner after its end an iteration is not promised.

    Examples
    --------
    >>> times = FlushTimes(2.5, guard_ns=10**8)
    >>> times.flushed(0, 1.0)
    >>> times.note_iterations(1, 3 * 10**8)
    >>> [times.is_due(now, tells_iterations=True) for now in (35 * 10**7, 99 * 10**7, 10**9)]
    [False, False, True]
    >>> times.flushed(10**9, 1.0)
    >>> [times.is_due(2 * 10**9, tells_iterations=tells) for tells in (True, False)]  # no iteration has ended since
    [False, True]
    >>> times.is_due(35 * 10**8, tells_iterations=True)
    True

    """

    def __init__(self, longest_s: float, guard_ns: int) -> None:
        self._longest_s, self._guard_ns = longest_s, guard_ns
        self._next_ns = self._latest_ns = 0
        self._n_told = 0
        self._n_over = 0
        self._over_ns = 0

    def note_iterations(self, n_over: int, now_ns: int) -> None:
        """So many iterations have ended on all ranks of this host by now."""
        if n_over > self._n_over == self._n_told:
            self._over_ns = now_ns
        self._n_over = n_over

    def is_due(self, now_ns: int, *, tells_iterations: bool) -> bool:
        """Whether to flush now."""
        if now_ns < self._next_ns:
            return False
        return not tells_iterations or self._has_news(now_ns) or now_ns >= self._latest_ns

    def flushed(self, now_ns: int, flush_s: float) -> None:
        """That has just happened; the next one follows in `flush_s` at the earliest."""
        if self._has_news(now_ns):
            self._n_told = self._n_over
        self._next_ns = now_ns + round(flush_s * 1e9)
        self._latest_ns = now_ns + round(max(flush_s, self._longest_s) * 1e9)

    def _has_news(self, now_ns: int) -> bool:
        return self._n_over > self._n_told and now_ns >= self._over_ns + self._guard_ns
