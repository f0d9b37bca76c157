"""When a worker writes down its states: seldom where that takes long, and then when it keeps nobody waiting.

While states are written nothing else is worked on. Of a job of 16,384 ranks that is a second and more, and all its
hosts say within a tenth of a second that an iteration has ended: whoever waits for what follows from that waits for the
snapshot, too, if it is just then. Right behind such a burst the next one is furthest away.
"""

from __future__ import annotations

EVERY_S = 2.0
"""Where it takes no time (chosen: that much is worked on again when a worker dies)."""

SHARE = 20.0
"""Times as long as it took, between two (chosen: a twentieth of the time at most; of the largest jobs they are written
each half minute, and a worker that takes over reads what came since)."""

BEHIND_S, STILL_BEHIND_S = 0.3, 3.0
"""A burst has ended if nothing has come for so long, and was just now if for no longer than that (chosen on the
messages of a job of 16,384 ranks: within a burst less than 0.1 s apart, bursts five seconds and more)."""


class SnapshotTimes:
    """Of one worker; times are monotonic, in seconds.

    Examples
    --------
    >>> times = SnapshotTimes()
    >>> times.written(began_s=100.0, took_s=0.01)
    >>> [times.are_due(now_s, came_s=now_s) for now_s in (101.9, 102.1)]
    [False, True]
    >>> times.written(began_s=200.0, took_s=1.0)  # the next one in 20 s, or behind the first burst then
    >>> times.are_due(221.0, came_s=220.9), times.are_due(221.0, came_s=215.0), times.are_due(221.3, came_s=220.9)
    (False, False, True)
    >>> times.are_due(230.0, came_s=230.0)  # there is no pause
    True

    """

    def __init__(self) -> None:
        self._not_before_s = self._at_latest_s = 0.0

    def are_due(self, now_s: float, came_s: float) -> bool:
        """Whether to write them now, where the last message came at `came_s`."""
        if now_s < self._not_before_s:
            return False
        return now_s >= self._at_latest_s or BEHIND_S <= now_s - came_s <= STILL_BEHIND_S

    def written(self, began_s: float, took_s: float) -> None:
        """They have been; it is put off for half as long as it is seldomer than every two seconds, at most."""
        every_s = max(EVERY_S, SHARE * took_s)
        self._not_before_s = began_s + every_s
        self._at_latest_s = self._not_before_s + (every_s - EVERY_S) / 2
