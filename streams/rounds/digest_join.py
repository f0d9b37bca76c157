"""Digests of iterations on their way to becoming rounds: a grid of optimizer steps x ranks, as that of calls."""

from __future__ import annotations

import numpy as np

from pacehound.model.calls import Sees
from streams.rounds.assembly import RoundGrid
from streams.rounds.call_rows import CallRows


class DigestJoin:
    """The digests of a communicator's iterations (`pacehound.model.digests`), joined by optimizer step.

    Attributes
    ----------
    last_seq
        The last step of which each member has told, shape `(n_members,)`; -1: of none.

    """

    def __init__(self, n_members: int, sees: Sees, source: str) -> None:
        self.collectives = RoundGrid(n_members)
        self.pairs: dict[tuple[int, int], RoundGrid] = {}
        self.last_seq = np.full(n_members, -1, np.int64)
        self.sees = sees
        self.source = source

    def note(self, rows: CallRows, where: slice) -> None:
        """Rows have come, whose places are known."""
        np.maximum.at(self.last_seq, rows.place[where], rows.seq[where])
