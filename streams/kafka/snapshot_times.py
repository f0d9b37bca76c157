"""When a worker writes down its states: seldom where that takes long, and then when it keeps nobody waiting.

While states are written nothing else is worked on. Of a job of 16,384 ranks that is a second and more, and all its
hosts say within a tenth of a second that an iteration has ended: whoever waits for what follows from that waits for the
snapshot, too, if it is just then. Right behind such a burst the next one is furthest away. There are lesser ones, of
which the next may be an iteration's end: heartbeats, which all hosts send at once as well.
"""

from __future__ import annotations

import math

EVERY_S = 2.0
"""Where it takes no time (chosen: that much is worked on again when a worker dies)."""

SHARE = 20.0
"""Times as long as it took, between two (chosen: a twentieth of the time at most; of the largest jobs they are written
each half minute, and a worker that takes over reads what came since)."""

BEHIND_S, STILL_BEHIND_S = 0.3, 1.0
"""A burst has ended if the worker has not been busy for so long, and was just now if for no longer than that (chosen on
the messages of a job of 16,384 ranks: bursts two seconds and more apart. Who looks each half second finds it)."""

BUSY_SHARE, OVER_S = 0.1, 0.1
"""It is busy that has worked for so much of the last so many seconds (chosen: hosts of that job say in turn how their
processes are, 45 a second, which takes a hundredth; a burst takes all of it)."""

IDLE_SHARE = 0.25
"""Of the time between two: where nothing has come for so long they are written at once (chosen: a backlog's last states
are large, and without this it was six minutes until what had been read of 16,384 ranks was confirmed)."""

GREAT = 0.75
"""So much of the work of the greatest burst since they were written last is a great one (chosen on the same messages:
the ends of iterations take 1.25 to 1.41 s of a processor, a round of heartbeats with what hardware is like 0.63 to
0.83)."""


class SnapshotTimes:
    """Of one worker; times are monotonic, in seconds.

    Examples
    --------
    >>> times = SnapshotTimes()
    >>> times.written(began_s=100.0, took_s=0.01)
    >>> times.worked(101.0, 101.001)
    >>> [times.are_due(now_s) for now_s in (101.9, 102.1)]
    [False, True]
    >>> times.written(began_s=200.0, took_s=1.0)  # the next one in 20 s, or behind the first great burst then
    >>> times.worked(219.0, 221.0)
    >>> times.worked(221.25, 221.251)  # one message by itself
    >>> [times.are_due(now_s) for now_s in (221.2, 221.4, 223.0)]
    [False, True, False]
    >>> times.worked(224.0, 224.5)  # no great one
    >>> times.are_due(224.9)
    False
    >>> times.worked(226.0, 237.9)
    >>> times.are_due(238.0)  # there is no pause
    True
    >>> times.written(began_s=240.0, took_s=1.0)
    >>> [times.are_due(now_s) for now_s in (242.0, 243.0)]  # nothing has come since 237.9
    [False, True]

    """

    def __init__(self) -> None:
        self._not_before_s = self._at_latest_s = self._idle_s = 0.0
        self._busy = self._worked_s = 0.0
        self._burst_ended_s = self._work_s = self._greatest_work_s = 0.0

    def worked(self, began_s: float, ended_s: float) -> None:
        """A message has been worked on."""
        before = self._busy * math.exp((self._worked_s - ended_s) / OVER_S)
        self._busy, self._worked_s = before + 1 - math.exp((began_s - ended_s) / OVER_S), ended_s
        if self._busy < BUSY_SHARE:
            return
        if ended_s - self._burst_ended_s > BEHIND_S:
            self._work_s = 0.0
        self._burst_ended_s = ended_s
        self._work_s += ended_s - began_s
        self._greatest_work_s = max(self._greatest_work_s, self._work_s)

    def are_due(self, now_s: float) -> bool:
        """Whether to write them now."""
        if now_s - self._worked_s >= self._idle_s:
            return True
        if now_s < self._not_before_s:
            return False
        is_behind_great_one = (
            self._work_s >= GREAT * self._greatest_work_s and BEHIND_S <= now_s - self._burst_ended_s <= STILL_BEHIND_S
        )
        return is_behind_great_one or now_s >= self._at_latest_s

    def written(self, began_s: float, took_s: float) -> None:
        """They have been; where that is seldomer than every two seconds they are put off for as long again, at most."""
        every_s = max(EVERY_S, SHARE * took_s)
        self._not_before_s = began_s + every_s
        self._at_latest_s = self._not_before_s + (every_s - EVERY_S)
        self._idle_s = max(EVERY_S, IDLE_SHARE * every_s)
        self._greatest_work_s = 0.0
