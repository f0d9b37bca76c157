"""How long to wait before something that failed is tried again."""

from __future__ import annotations


class Backoff:
    """Pauses that double from `first_s` up to `longest_s`, until a success resets them.

    It neither sleeps nor reads a clock, so that it serves a loop that must not block as well as one that waits. There
    is no jitter: each of our processes waits for a receiver of its own, and a test can say when the next try comes.

    Examples
    --------
    >>> backoff = Backoff(first_s=1.0, longest_s=3.0)
    >>> backoff.next_s(), backoff.next_s(), backoff.next_s()
    (1.0, 2.0, 3.0)
    >>> backoff.reset()
    >>> backoff.next_s()
    1.0

    """

    __slots__ = ("_first_s", "_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        """The pause after a failure; the one after the next failure is twice as long."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """It worked: the next failure is a first one."""
        self._next_s = self._first_s
