"""How often a job is acted upon without anybody's doing; pure."""

from __future__ import annotations

from collections import deque

from actuators.mitigation.thresholds import COOL_DOWN_NS, MOST_ACTIONS_PER_HOUR, MOST_AIMED_SHARE

HOUR_NS = 3_600_000_000_000


class Hourly:
    """So many times an hour at the most, in monotonic time.

    >>> twice = Hourly(2)
    >>> twice.note(0)
    >>> twice.note(5)
    >>> twice.is_reached(10), twice.is_reached(HOUR_NS)
    (True, False)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._times_ns: deque[int] = deque(maxlen=most)

    def note(self, now_ns: int) -> None:
        """Once more."""
        self._times_ns.append(now_ns)

    def is_reached(self, now_ns: int) -> bool:
        """Whether it would be too often."""
        return len(self._times_ns) == self.most and now_ns - self._times_ns[0] < HOUR_NS


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
        self._actions = Hourly(MOST_ACTIONS_PER_HOUR)
        self._undone_ns: int | None = None

    def reason_not_to_act(self, now_ns: int, *, n_aimed: int = 0, n_ranks: int = 0) -> str:
        """Which limit forbids it, else nothing; `n_aimed` of `n_ranks` are to blame, where it is known."""
        if n_ranks and n_aimed > MOST_AIMED_SHARE * n_ranks:
            most = f"no action is aimed at more than {100 * MOST_AIMED_SHARE:.0f} % of a job's ranks"
            return f"{n_aimed} of {n_ranks} ranks are to blame, and {most}"
        if self._undone_ns is not None and now_ns - self._undone_ns < COOL_DOWN_NS:
            ago_s = (now_ns - self._undone_ns) / 1e9
            wait_s = COOL_DOWN_NS / 1e9
            return (
                f"an action about this job did not help and was undone {ago_s:.0f} s ago; "
                f"nothing is tried for {wait_s:.0f} s"
            )
        if self._actions.is_reached(now_ns):
            return f"this job was acted upon {self._actions.most} times within an hour, and no more is allowed"
        return ""

    def acted(self, now_ns: int) -> None:
        """An action was ordered."""
        self._actions.note(now_ns)

    def undone(self, now_ns: int) -> None:
        """It did not help."""
        self._undone_ns = now_ns
