"""The last items of a series, and every so many of those before them: a baseline that reaches far back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Thinned(Generic[T]):
    """The `n_recent` last items, and of those that leave them every `every`-th, `n_older` at most; oldest first.

    >>> kept = Thinned[int](3, 2, every=2)
    >>> for number in range(9):
    ...     kept.append(number)
    >>> list(kept)
    [3, 5, 6, 7, 8]
    """

    def __init__(self, n_recent: int, n_older: int, *, every: int, n_gone: int = 0) -> None:
        self.recent: deque[T] = deque(maxlen=n_recent)
        self._older: deque[T] = deque(maxlen=n_older)
        self._every = every
        self._n_gone = n_gone

    def __iter__(self) -> Iterator[T]:
        yield from self._older
        yield from self.recent

    def append(self, item: T) -> None:
        """The next item."""
        if len(self.recent) == self.recent.maxlen:
            self._n_gone += 1
            if self._n_gone % self._every == 0:
                self._older.append(self.recent[0])
        self.recent.append(item)
