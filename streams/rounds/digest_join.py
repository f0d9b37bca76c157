"""Digests of iterations on their way to becoming rounds: a grid of optimizer steps x ranks, as that of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pacehound.model.calls import Sees
from streams.rounds.assembly import RoundGrid
from streams.rounds.call_rows import CallRows

PlacedGrid = tuple[tuple[int, ...], bool, RoundGrid]
"""Whose rounds, whether they are those of a pair, and the grid."""


@dataclass(frozen=True, slots=True)
class Grids:
    """Where rows go: grids of collectives and of pairs, and the pairs that rows have come for since the last look."""

    collectives: RoundGrid
    pairs: dict[tuple[int, int], RoundGrid]
    fresh: set[tuple[int, int]]

    def of(self, members: tuple[int, ...]) -> list[PlacedGrid]:
        """All of them, in order."""
        return [(members, False, self.collectives), *((pair, True, self.pairs[pair]) for pair in sorted(self.pairs))]

    def to_look_at(self, members: tuple[int, ...], *, everything: bool) -> list[PlacedGrid]:
        """All, or of pairs only those that rows have come for; this is the look."""
        fresh = sorted(self.fresh)
        self.fresh.clear()
        if everything:
            return self.of(members)
        return [(members, False, self.collectives), *((pair, True, self.pairs[pair]) for pair in fresh)]


class DigestJoin:
    """The digests of a communicator's iterations (`pacehound.model.digests`), joined by optimizer step.

    Attributes
    ----------
    last_seq
        The last step of which each member has told, shape `(n_members,)`; -1: of none.

    """

    def __init__(self, n_members: int, sees: Sees, source: str) -> None:
        self.grids = Grids(RoundGrid(n_members), {}, set())
        self.last_seq = np.full(n_members, -1, np.int64)
        self.sees = sees
        self.source = source

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        grids = {"collectives": self.grids.collectives, "pairs": self.grids.pairs}
        return {**grids, "last_seq": self.last_seq, "sees": self.sees, "source": self.source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What is kept of members must be numbers that can be written to (`ValueError`)."""
        self.grids = Grids(state["collectives"], state["pairs"], set(state["pairs"]))
        if state["last_seq"].dtype != np.int64:
            raise ValueError(f"the last digests of members are {state['last_seq'].dtype}, not int64")
        self.last_seq = np.require(state["last_seq"], requirements=["C", "A", "W"])
        self.sees, self.source = state["sees"], state["source"]

    def note(self, rows: CallRows, where: slice) -> None:
        """Rows have come, each rank's in order, and their places are known."""
        self.last_seq[rows.place[where]] = rows.seq[where]
