"""When a host that has fallen silent is given up: its machine is gone, and it will never say that its job has ended."""

from __future__ import annotations

GIVEN_UP_AFTER_NS = 3_600_000_000_000
"""An hour of ticks. Agents that are cut off keep trying, and half an hour is the longest that NCCL lets ranks wait by
default: a job that nobody has told of for an hour trains no more. Ticks stand in the log, one a second, while a bus is
there and listened to; the host's last word would not do, for what was away may have been we."""

_AWAY_NS = 60_000_000_000
"""After a gap between two ticks that is longer than this, somebody listens anew, and the hour begins again."""

GIVEN_UP = "not heard of for an hour"


class Patience:
    """How long something has been ticked without a word.

    >>> patience, second_ns = Patience(), 1_000_000_000
    >>> [patience.ends(second * second_ns) for second in range(3_601)].index(True)
    3600
    """

    def __init__(self) -> None:
        self._since_ns: int | None = None
        self._ticked_ns = 0

    def renew(self) -> None:
        """A word has come."""
        self._since_ns = None

    def ends(self, tick_ns: int) -> bool:
        """Whether it is over with this tick."""
        if self._since_ns is None or tick_ns - self._ticked_ns > _AWAY_NS:
            self._since_ns = tick_ns
        self._ticked_ns = tick_ns
        return tick_ns - self._since_ns >= GIVEN_UP_AFTER_NS
