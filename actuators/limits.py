"""How often a job is acted upon without anybody's doing; pure."""

from __future__ import annotations

from collections import deque

from actuators.mitigation.thresholds import COOL_DOWN_NS, MOST_ACTIONS_PER_HOUR

HOUR_NS = 3_600_000_000_000


class Limits:
    """Of one job, in monotonic time.

    Examples
    --------
    >>> limits = Limits()
    >>> limits.reason_not_to_act(0)
    ''
    >>> limits.undone(0)
    >>> limits.reason_not_to_act(60 * 10**9)
    'an action about this job did not help and was undone 60 s ago; nothing is tried for 1800 s'

    """

    def __init__(self) -> None:
        self._acted_ns: deque[int] = deque(maxlen=MOST_ACTIONS_PER_HOUR)
        self._undone_ns: int | None = None

    def reason_not_to_act(self, now_ns: int) -> str:
        """Which limit forbids it, else nothing."""
        if self._undone_ns is not None and now_ns - self._undone_ns < COOL_DOWN_NS:
            ago_s = (now_ns - self._undone_ns) / 1e9
            wait_s = COOL_DOWN_NS / 1e9
            return (
                f"an action about this job did not help and was undone {ago_s:.0f} s ago; "
                f"nothing is tried for {wait_s:.0f} s"
            )
        if len(self._acted_ns) == MOST_ACTIONS_PER_HOUR and now_ns - self._acted_ns[0] < HOUR_NS:
            return f"this job was acted upon {MOST_ACTIONS_PER_HOUR} times within an hour, and no more is allowed"
        return ""

    def acted(self, now_ns: int) -> None:
        """An action was ordered."""
        self._acted_ns.append(now_ns)

    def undone(self, now_ns: int) -> None:
        """It did not help."""
        self._undone_ns = now_ns
