"""When a host that has fallen silent is given up: its machine is gone, and it will never say that its job has ended."""

from __future__ import annotations

from streams.rounds.thresholds import AWAY_NS, GIVEN_UP_AFTER_NS

GIVEN_UP = "not heard of for an hour"


class Patience:
    """How long something has been ticked without a word.

    >>> patience, second_ns = Patience(), 1_000_000_000
    >>> [patience.ends(second * second_ns) for second in range(3_601)].index(True)
    3600
    """

    def __init__(self, state: tuple[int | None, int] = (None, 0)) -> None:
        self._since_ns, self._ticked_ns = state

    @property
    def state(self) -> tuple[int | None, int]:
        """All that it knows."""
        return self._since_ns, self._ticked_ns

    def renew(self) -> None:
        """A word has come."""
        self._since_ns = None

    def ends(self, tick_ns: int) -> bool:
        """Whether it is over with this tick."""
        if self._since_ns is None or tick_ns - self._ticked_ns > AWAY_NS:
            self._since_ns = tick_ns
        self._ticked_ns = tick_ns
        return tick_ns - self._since_ns >= GIVEN_UP_AFTER_NS
