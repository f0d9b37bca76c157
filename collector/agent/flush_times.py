"""When what was read is told: every so often; and of a job that is told of in iterations, when one of them is over.

There a flush in between says nothing but the time. It costs those who read it nearly as much as one that tells of an
iteration, and at ten seconds an iteration there would be nine of them (docs/adr/0030-digests.md). So there are fewer,
and as long as iterations take no longer than others did no flush says how far ranks are.

A job that is told of call by call has a quarter of the flushes while its iterations are short and take what they took:
each costs the agent and the head beside it more than the calls in it (docs/benchmarks.md, the small end). So has a job
that will be told of in iterations, while its first ones are told call by call: its thousands of hosts all say then how
far ranks are, and nobody can conclude anything from that yet.
"""

from __future__ import annotations

from collections import deque

from pacehound.model.long_iteration import is_long
from pacehound.settings import StreamSettings

USUAL_OF = 8
"""Iterations of which the longest is what is usual (chosen: a checkpoint or an evaluation each few makes one long)."""

OVERDUE_FACTOR = 1.5
"""Times the longest of them: from then on it is told how far each rank is (chosen: nothing is called a hang before ten,
`streams/hang/thresholds.py`)."""

EVEN_FACTOR = 1.5
"""Times what iterations took in the shortest of the last `USUAL_OF` looks, in the longest: they take what they took
(chosen: what grows by less is found from dozens of iterations, where a second does not count)."""

SELDOM_FLUSHES = 4
"""Times `flush_s` between two flushes then, and before iterations are known; never more than `lateness_s` (chosen: who
is slower by less than `EVEN_FACTOR` is told of four seconds later, of an incident that has to last for a minute; twice
as many flushes cost a small job a quarter more)."""

QUIET_FACTOR = 1.0
"""Times `lateness_s` between two heartbeats (chosen: an exit in the middle of an iteration is heard of when all hosts
have spoken again, and fewer messages cost less)."""

LOOK_AHEAD_NS = 500_000_000
"""So much before a heartbeat hardware is looked at, so that what is seen goes with it (chosen: a tenth of the time
between two; a look that takes longer is told with the next flush, whatever that is)."""

SPREAD_NS = 200_000_000
"""By how much sooner than others a host may end an iteration and still promise enough at its first word about it
(chosen: behind the last collective of an iteration there is the optimizer's own step alone)."""


class FlushTimes:
    """Of one agent; times are monotonic.

    Parameters
    ----------
    stream
        It never waits for longer than half of `lateness_s`: a host that says nothing for too long is taken for a silent
        one, unless it has said that it may. An iteration is judged when all hosts have promised beyond its end if it
        is long (`pacehound.model.long_iteration`), else beyond the next multiple of `tick_s` in Unix time: sooner it
        need not be told.
    guard_ns
        How far a promise stays behind the clock: sooner after its end an iteration is not promised.
    unix_ns
        Unix time when monotonic time was 0.

    Examples
    --------
    >>> times = FlushTimes(StreamSettings(), guard_ns=10**8, unix_ns=5 * 10**9)
    >>> times.flushed(0, 1.0)
    >>> times.quiet_behind_promises_ns(10**9, tells_iterations=True) / 1e9  # no iteration is over yet
    1.5
    >>> times.flushed(0, 1.0)
    >>> times.note_iterations(1, 3 * 10**8)
    >>> [times.is_due(now, tells_iterations=True) for now in (35 * 10**7, 105 * 10**7, 11 * 10**8)]
    [False, False, True]
    >>> times.flushed(11 * 10**8, 1.0)
    >>> [times.is_due(22 * 10**8, tells_iterations=tells) for tells in (True, False)]  # no iteration has ended since
    [False, True]
    >>> times.is_due(36 * 10**8, tells_iterations=True)
    True
    >>> even = FlushTimes(StreamSettings(), guard_ns=10**8, unix_ns=0)
    >>> even.flushed(0, 1.0)
    >>> for second in range(10):  # ten iterations in each
    ...     even.note_iterations(10 * second, second * 10**9)
    >>> even.quiet_behind_promises_ns(9 * 10**9, tells_iterations=False) / 1e9  # 2.5 s nobody wonders about anyhow
    1.5
    >>> even.flushed(9 * 10**9, 1.0)
    >>> even.note_iterations(115, 115 * 10**8), even.is_due(115 * 10**8, tells_iterations=False)
    (None, True)
    >>> even.has_promised_to_be_quiet(9 * 10**9), even.is_due(115 * 10**8, tells_iterations=False)  # that has been said
    (None, False)
    >>> even.note_iterations(121, 125 * 10**8), even.is_due(125 * 10**8, tells_iterations=False)
    (None, True)
    >>> even.flushed(125 * 10**8, 1.0)
    >>> even.is_due(135 * 10**8, tells_iterations=False)  # they took longer in the last second
    True
    >>> even.quiet_behind_promises_ns(125 * 10**8, tells_iterations=False)
    0
    >>> times.note_iterations(2, 103 * 10**8)  # ten seconds
    >>> times.is_usual(110 * 10**8)  # nobody knew, and that they go on is told first
    False
    >>> times.flushed(111 * 10**8, 1.0)
    >>> [times.is_usual(now) for now in (120 * 10**8, 250 * 10**8, 260 * 10**8)]
    [True, True, False]
    >>> times.may_be_quiet(111 * 10**8)
    >>> [times.awaits_heartbeat(now, tells_iterations=True) for now in (112 * 10**8, 155 * 10**8, 156 * 10**8)]
    [True, True, False]
    >>> [times.is_due(now, tells_iterations=True) for now in (125 * 10**8, 165 * 10**8)]
    [False, True]

    """

    def __init__(self, stream: StreamSettings, *, guard_ns: int, unix_ns: int) -> None:
        self._longest_s = stream.lateness_s / 2
        self.quiet_ns = round(QUIET_FACTOR * stream.lateness_s * 1e9)
        self._tick_ns = round(stream.tick_s * 1e9)
        self._guard_ns, self._unix_ns = guard_ns, unix_ns
        self._next_ns = self._even_ns = self._latest_ns = 0
        self._flush_ns = 0  # to the next one, as was said last
        self._n_told = 0
        self._n_over = 0
        self._told_from_ns = 0  # when the first one that is not told is to be told
        self._ended_ns = 0  # when the last one has
        self._last_over_ns = 0  # when that was seen
        self._was_overdue = False  # when was flushed, and it has not been told since that it has ended
        self._lasted_ns: deque[int] = deque(maxlen=USUAL_OF)

    def note_iterations(self, n_over: int, now_ns: int, ended_ns: int | None = None) -> None:
        """So many iterations have ended on all ranks of this host by now; fewer than before: of another attempt.

        `ended_ns` is when the last one has, where that is known: in one look two of them may be over, and in the next
        one three, though all take what they took.
        """
        ended_ns = now_ns if ended_ns is None else ended_ns
        if n_over < self._n_over:
            self._n_told = n_over
            self._lasted_ns.clear()
            self._ended_ns, self._last_over_ns = ended_ns, now_ns
        if n_over > self._n_over:
            lasted_ns = (ended_ns - self._ended_ns) // (n_over - self._n_over) if self._n_over > 0 else 0
            if self._n_over == self._n_told:
                promised_ns = now_ns + SPREAD_NS
                if not is_long(lasted_ns, self._tick_ns):
                    promised_ns = -(-(self._unix_ns + promised_ns) // self._tick_ns) * self._tick_ns - self._unix_ns
                self._told_from_ns = promised_ns + self._guard_ns
            if self._n_over > 0:
                self._lasted_ns.append(lasted_ns)
            self._ended_ns, self._last_over_ns = ended_ns, now_ns
        self._n_over = n_over

    def is_due(self, now_ns: int, *, tells_iterations: bool) -> bool:
        """Whether to flush now."""
        if now_ns < self._next_ns:
            return False
        if not tells_iterations:
            return now_ns >= self._even_ns or not self._is_even(now_ns)
        if now_ns >= self._latest_ns:
            return True
        return self._has_news(now_ns) or (self._is_overdue(now_ns) and not self._was_overdue)

    def is_usual(self, now_ns: int) -> bool:
        """No iteration takes longer than others did, or has and was not told to be over: nothing follows from where
        ranks are.
        """
        return not (self._was_overdue or self._is_overdue(now_ns))

    def awaits_heartbeat(self, now_ns: int, *, tells_iterations: bool) -> bool:
        """What is seen now may be told with an iteration, and a heartbeat is to come: whoever can wait looks then.

        Thousands of hosts tell at once that an iteration is over, and whoever is to be named waits until all of that
        was read. A heartbeat nobody waits for.
        """
        has_heartbeats = tells_iterations and min(self._lasted_ns, default=0) > self.quiet_ns
        return has_heartbeats and now_ns < self._latest_ns - LOOK_AHEAD_NS

    def until_next_ns(self, now_ns: int) -> int:
        """So long nothing is due, unless what is seen until then changes that."""
        return max((self._next_ns if now_ns < self._next_ns else self._even_ns) - now_ns, 0)

    def flushed(self, now_ns: int, flush_s: float) -> None:
        """That has just happened; the next one follows in `flush_s` at the earliest."""
        self._flush_ns = round(flush_s * 1e9)
        self._was_overdue = self._is_overdue(now_ns)
        if self._has_news(now_ns):
            self._n_told = self._n_over
        self._next_ns = now_ns + self._flush_ns
        self._latest_ns = now_ns + round(max(flush_s, self._longest_s) * 1e9)
        self._even_ns = min(now_ns + self._until_seldom_ns, self._latest_ns)

    def quiet_behind_promises_ns(self, now_ns: int, *, tells_iterations: bool) -> int:
        """For how long promises have to say that they hold, so that there may be fewer of them; 0: there may not."""
        is_none_known = not self._lasted_ns
        may_be_seldom = is_none_known or not self._is_overdue(now_ns) if tells_iterations else self._is_even(now_ns)
        return max(self._until_seldom_ns - round(self._longest_s * 1e9), 0) if may_be_seldom else 0

    def has_promised_to_be_quiet(self, now_ns: int) -> None:
        """They have just said so."""
        self._even_ns = self._latest_ns = now_ns + self._until_seldom_ns

    @property
    def _until_seldom_ns(self) -> int:
        return min(SELDOM_FLUSHES * self._flush_ns, round(2 * self._longest_s * 1e9))

    def may_be_quiet(self, now_ns: int) -> None:
        """It has just been said that nothing may be said for `quiet_ns`."""
        self._latest_ns = now_ns + self.quiet_ns

    def _is_overdue(self, now_ns: int) -> bool:
        return not self._lasted_ns or now_ns - self._last_over_ns > OVERDUE_FACTOR * max(self._lasted_ns)

    def _is_even(self, now_ns: int) -> bool:
        """Iterations are shorter than a flush and take what they took, as far as looks have seen them end."""
        lasted_ns = self._lasted_ns
        longest_ns = max(lasted_ns, default=0)
        is_short = len(lasted_ns) == USUAL_OF and longest_ns <= self._flush_ns
        return is_short and longest_ns <= EVEN_FACTOR * min(lasted_ns) and not self._is_overdue(now_ns)

    def _has_news(self, now_ns: int) -> bool:
        return self._n_over > self._n_told and now_ns >= self._told_from_ns
