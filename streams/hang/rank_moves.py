"""How often every rank has moved, and when it last did."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from streams.rounds.room import with_room

Int64Array = npt.NDArray[np.int64]


class RankMoves:
    """Counts the moves of ranks.

    `counters` and `advanced_ns` of before, shape `(n_ranks,)`, are taken over as they are. Those that do not fit
    together are refused (`ValueError`).
    """

    def __init__(self, counters: Int64Array | None = None, advanced_ns: Int64Array | None = None) -> None:
        self._counters = np.zeros(0, np.int64) if counters is None else counters
        self._advanced_ns = np.zeros(0, np.int64) if advanced_ns is None else advanced_ns
        self._length = len(self._counters)
        if any(one.dtype != np.int64 or one.shape != (self._length,) for one in (self._counters, self._advanced_ns)):
            raise ValueError("the moves of ranks differ in type or length")
        self._open_items()

    def _open_items(self) -> None:
        # The same memory: one item of it is read and written in half the time that it takes in an array.
        self._counter_items, self._advanced_items = self._counters.data, self._advanced_ns.data

    @property
    def counters(self) -> Int64Array:
        """How often each rank has moved, shape `(n_ranks,)`."""
        return self._counters[: self._length]

    @property
    def advanced_ns(self) -> Int64Array:
        """When each rank last moved, 0 where it never has, shape `(n_ranks,)`."""
        return self._advanced_ns[: self._length]

    def reserve(self, rank: int) -> None:
        """Make room for a rank and all below it."""
        self._length = max(self._length, rank + 1)
        if self._length > len(self._counters):
            self._counters = with_room(self._counters, self._length)
            self._advanced_ns = with_room(self._advanced_ns, self._length)
            self._open_items()

    def have_moved(self, ranks: Collection[int], time_ns: int) -> None:
        """Some ranks have, at least one; who is named twice has moved once."""
        highest = max(ranks)
        if highest >= self._length:
            self.reserve(highest)
        for rank in ranks if len(ranks) == 1 else set(ranks):
            self._counter_items[rank] += 1
            self._advanced_items[rank] = time_ns

    def have_moved_by(self, ranks: Int64Array, times_ns: Int64Array) -> list[int]:
        """Ranks, at least one and each any number of times, have moved by these times; those of whom it is news."""
        self.reserve(int(ranks.max()))
        before_ns = self.advanced_ns.copy()
        np.maximum.at(self.advanced_ns, ranks, times_ns)
        moved: list[int] = np.flatnonzero(self.advanced_ns > before_ns).tolist()
        self._counters[moved] += 1
        return moved

    def moved_since(self, ranks: Collection[int], counters: Int64Array) -> list[int]:
        """Those of some ranks that have moved since they had moved so often, shape `(len(ranks),)`."""
        chosen = np.array(ranks, np.int64)
        moved: list[int] = chosen[self.counters[chosen] > counters].tolist()
        return moved

    def is_later(self, rank: int, time_ns: int) -> bool:
        """Whether a rank has moved since a time."""
        return rank < self._length and int(self._advanced_ns[rank]) > time_ns
