"""Where the calls of a communicator go: a grid of its collectives, and one for each pair of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.rounds.assembly import RoundGrid
from streams.rounds.room import from_snapshot

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


WrittenPairs = tuple[npt.NDArray[np.int64], dict[tuple[int, int], RoundGrid]] | None
"""A row for each pair, with sender, receiver and the numbers of its grid; and those grids that have more to them."""

_N_NUMBERS = 2 + len(RoundGrid(2).numbers())


def written_pairs(pairs: Mapping[tuple[int, int], RoundGrid]) -> WrittenPairs:
    """The grids of pairs as a snapshot has them: a large job has tens of thousands, and in most no round is open."""
    if not pairs:
        return None
    numbers = np.array([(*pair, *grid.numbers()) for pair, grid in pairs.items()], np.int64)
    return numbers, {pair: grid for pair, grid in pairs.items() if not grid.is_bare}


def read_pairs(written: Any) -> dict[tuple[int, int], RoundGrid]:
    """As they were, in the same order; `ValueError`, `TypeError`: they cannot have been."""
    if written is None:
        return {}
    numbers, with_rounds = written
    pairs: dict[tuple[int, int], RoundGrid] = {}
    for sender, receiver, *of_grid in from_snapshot(numbers, np.int64, (None, _N_NUMBERS), "pairs").tolist():
        grid = with_rounds.get((sender, receiver))
        pairs[sender, receiver] = RoundGrid.of_numbers(of_grid) if grid is None else grid
    if not with_rounds.keys() <= pairs.keys():
        raise ValueError(f"there are rounds of pairs that are not known: {sorted(with_rounds.keys() - pairs.keys())}")
    return pairs
