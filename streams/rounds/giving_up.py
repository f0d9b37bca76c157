"""When a host that has fallen silent is given up: its machine is gone, and it will never say that its job has ended."""

from __future__ import annotations

from dataclasses import dataclass

from streams.rounds.thresholds import AWAY_NS, GIVEN_UP_AFTER_NS

GIVEN_UP = "not heard of for an hour"


@dataclass(slots=True)
class Patience:
    """How long something has been ticked without a word: since when, and the last tick.

    >>> patience, second_ns = Patience(), 1_000_000_000
    >>> [patience.ends(second * second_ns) for second in range(3_601)].index(True)
    3600
    """

    since_ns: int | None = None
    ticked_ns: int = 0

    def renew(self) -> None:
        """A word has come."""
        self.since_ns = None

    def ends(self, tick_ns: int) -> bool:
        """Whether it is over with this tick."""
        if self.since_ns is None or tick_ns - self.ticked_ns > AWAY_NS:
            self.since_ns = tick_ns
        self.ticked_ns = tick_ns
        return tick_ns - self.since_ns >= GIVEN_UP_AFTER_NS
