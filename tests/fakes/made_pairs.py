"""Rounds of pairs for tests: of rounds that are there, or drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pacehound.model.calls import Sees
from pacehound.model.digests import digests_of
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import COLUMNS, Rounds


def pairs_of(blocks: Sequence[Rounds]) -> PairRounds:
    """The rounds of these pairs, of one source and with the same columns, as one table."""
    blocks = sorted(blocks, key=lambda block: (block.communicator, block.ranks))
    first, lengths = blocks[0], [len(block) for block in blocks]
    names = sorted({block.communicator for block in blocks})
    columns = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in COLUMNS
        if getattr(first, name) is not None
    }
    return PairRounds(
        job=first.job,
        attempt=first.attempt,
        source=first.source,
        sees=first.sees,
        communicators=tuple(names),
        communicator=np.repeat([names.index(block.communicator) for block in blocks], lengths),
        ranks=np.repeat([block.ranks for block in blocks], lengths, axis=0),
        **columns,
    )


def drawn_pairs(
    rng: np.random.Generator,
    n: int,
    *,
    base_ns: int = 0,
    within_ns: int = 100,
    communicators: Sequence[str] = ("a", "b", "c"),
    n_ranks: int = 5,
    sees: Sees = Sees.ALL,
    source: str = digests_of("c10d"),
) -> PairRounds:
    """So many lines at most, each another one of a pair's; a tenth of what ranks say is lost."""
    drawn = np.column_stack([rng.integers(0, most, n) for most in (len(communicators), n_ranks, n_ranks, 6)])
    whose = np.unique(drawn[drawn[:, 1] != drawn[:, 2]], axis=0)
    start_ns = base_ns + rng.integers(1, within_ns, (len(whose), 2))
    is_there = rng.random((len(whose), 2)) > 0.1
    arrival_ns = start_ns - rng.integers(0, 2, (len(whose), 2))
    return PairRounds(
        job="j",
        attempt=0,
        source=source,
        sees=sees,
        communicators=tuple(communicators),
        communicator=whose[:, 0].copy(),
        ranks=whose[:, 1:3].copy(),
        seq=whose[:, 3].copy(),
        op=rng.integers(0, 3, len(whose)).astype(np.int8),
        size_bytes=rng.integers(0, 1 << 20, len(whose)),
        arrival_ns=np.where(is_there, arrival_ns, 0),
        start_ns=np.where(is_there, start_ns, 0),
        end_ns=np.where(is_there, start_ns + rng.integers(0, within_ns // 4, (len(whose), 2)), 0),
    )
