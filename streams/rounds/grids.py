"""Where the calls of a communicator go: a grid of its collectives, and one for each pair of its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from streams.rounds.assembly import RoundGrid

PlacedGrid = tuple[tuple[int, ...], RoundGrid]
"""Whose rounds, and the grid."""

PlacedPair = tuple[tuple[int, int], RoundGrid]
"""Sender and receiver, and their grid."""


@dataclass(frozen=True, slots=True)
class Grids:
    """Grids of collectives and of pairs, and the pairs that rows have come for since the last look."""

    collectives: RoundGrid
    pairs: dict[tuple[int, int], RoundGrid]
    fresh: set[tuple[int, int]]

    def of(self, members: tuple[int, ...]) -> list[PlacedGrid]:
        """All of them, in order."""
        return [(members, self.collectives), *((pair, self.pairs[pair]) for pair in sorted(self.pairs))]

    def to_look_at(self, *, everything: bool) -> list[PlacedPair]:
        """Of pairs those in which a round is open, in order: all, or only those that rows have come for.

        This is the look.
        """
        if not self.pairs or not (everything or self.fresh):
            return []
        pairs = [pair for pair in (self.pairs if everything else self.fresh) if self.pairs[pair].has_open]
        self.fresh.clear()
        return [(pair, self.pairs[pair]) for pair in sorted(pairs)]
