"""Ranks that are evenly spaced, as the members of most communicators are: whoever needs the same gets the same tuple.

Each of 2,048 hosts says who is in the world of its 16,384 ranks. What is asked of members by whoever reads that (do
they lie in the world, is one there twice) follows from first and last of ranks that were made here.
"""

from __future__ import annotations

MAX_KEPT = 1 << 22
"""Ranks that are kept to be shared, 150 MB: beyond that they are made anew."""


class EvenlySpaced:
    """Ranks that were made, by first, step and number.

    Examples
    --------
    >>> spaced = EvenlySpaced()
    >>> ranks = spaced.of(4, 2, 3)
    >>> ranks, spaced.of(4, 2, 3) is ranks
    ((4, 6, 8), True)
    >>> spaced.made(ranks), spaced.made((4, 6, 9))
    (range(4, 10, 2), None)

    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self._n_ranks = 0

    def of(self, first: int, step: int, n_ranks: int) -> tuple[int, ...]:
        """`first`, `first + step`, and so on; `step` is positive."""
        key = (first, step, n_ranks)
        made = self._made.get(key)
        if made is None:
            made = tuple(range(first, first + step * n_ranks, step))
            if self._n_ranks + n_ranks > MAX_KEPT:
                self._made, self._n_ranks = {}, 0
            self._made[key] = made
            self._n_ranks += n_ranks
        return made

    def made(self, ranks: tuple[int, ...]) -> range | None:
        """What these were made of, if they were made here and are kept; they are not looked at one by one."""
        if len(ranks) < 2:
            return None
        first, step = ranks[0], ranks[1] - ranks[0]
        if self._made.get((first, step, len(ranks))) is not ranks:
            return None
        return range(first, first + step * len(ranks), step)


SHARED = EvenlySpaced()
"""Of this process."""
