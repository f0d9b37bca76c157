"""Where the calls of a communicator go: a grid of its collectives, and one for each pair of its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from streams.rounds.assembly import RoundGrid

PlacedGrid = tuple[tuple[int, ...], bool, RoundGrid]
"""Whose rounds, whether they are those of a pair, and the grid."""


@dataclass(frozen=True, slots=True)
class Grids:
    """Grids of collectives and of pairs, and the pairs that rows have come for since the last look."""

    collectives: RoundGrid
    pairs: dict[tuple[int, int], RoundGrid]
    fresh: set[tuple[int, int]]

    def of(self, members: tuple[int, ...]) -> list[PlacedGrid]:
        """All of them, in order."""
        return [(members, False, self.collectives), *((pair, True, self.pairs[pair]) for pair in sorted(self.pairs))]

    def to_look_at(self, members: tuple[int, ...], *, everything: bool) -> list[PlacedGrid]:
        """Those in which a round is open; of pairs all, or only those that rows have come for. This is the look."""
        placed: list[PlacedGrid] = [(members, False, self.collectives)] if self.collectives.has_open else []
        if self.pairs and (everything or self.fresh):
            pairs = [pair for pair in (self.pairs if everything else self.fresh) if self.pairs[pair].has_open]
            placed += [(pair, True, self.pairs[pair]) for pair in sorted(pairs)]
            self.fresh.clear()
        return placed
