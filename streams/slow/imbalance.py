"""For whom the others wait, from one stretch of calls without a quiet past (traces of a few steps).

In a round that all leave together whoever comes last is in it for the shortest time: what a rank spends there beyond
the shortest one is waiting (CCL-D 4.2.2, S1). A rank that keeps others waiting in one communicator may wait for
somebody else in another, so that waiting is summed over all of them: the one that the delay comes from hardly waits
anywhere. Durations are differences on one rank's clock, and need no common one.

Without a baseline nobody knows whether it was always so: more than a suspicion cannot follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OP_CODE, CallBatch, Sees
from streams.slow.thresholds import IMBALANCE_PERSISTENCE, IMBALANCE_ROUNDS, MAX_NAMED_SHARE, MIN_IMBALANCE

Float64Array = npt.NDArray[np.float64]

PARTS = 10

_TOGETHER = tuple(OP_CODE[op] for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))


@dataclass(frozen=True, slots=True)
class Uneven:
    """Ranks for whom the others wait.

    `waiting` and `theirs` are shares of the time: of a typical rank, and the largest among the named ones.
    """

    ranks: tuple[int, ...]
    waiting: float
    theirs: float
    n_rounds: int


def uneven_ranks(batches: Sequence[CallBatch], members: Mapping[str, tuple[int, ...]]) -> Uneven | None:
    """Find them; `None` where nobody stands apart, or where too few rounds are whole.

    Rounds in which a member of their communicator is missing are not used: it may be the one.
    """
    ranks = np.unique([rank for group in members.values() for rank in group])
    waited = np.zeros((PARTS, len(ranks)))
    seen_ns = np.zeros((2, len(ranks)))
    seen_ns[0] = np.inf
    n_rounds = 0
    for communicator, group in sorted(members.items()):
        rounds = (
            _whole_rounds([b for b in batches if b.communicator == communicator], group) if len(group) > 1 else None
        )
        if rounds is None:
            continue
        start, end = rounds
        n_rounds += len(start)
        columns = np.searchsorted(ranks, group)
        np.minimum.at(seen_ns[0], columns, start.min(axis=0))
        np.maximum.at(seen_ns[1], columns, end.max(axis=0))
        duration = end - start
        part = np.arange(len(start)) * PARTS // len(start)
        np.add.at(waited, (part[:, None], columns[None, :]), duration - duration.min(axis=1, keepdims=True))
    span_ns = seen_ns[1] - seen_ns[0]
    known = np.flatnonzero(np.isfinite(span_ns) & (span_ns > 0))
    if n_rounds < IMBALANCE_ROUNDS or len(known) < 2:
        return None
    share: Float64Array = waited[:, known] / span_ns[known] * PARTS
    typical = np.median(share, axis=1)
    apart = typical[:, None] - share >= MIN_IMBALANCE
    named = np.flatnonzero(
        (apart.mean(axis=0) >= IMBALANCE_PERSISTENCE) & (typical.mean() - share.mean(axis=0) >= MIN_IMBALANCE)
    )
    if not len(named) or len(named) > max(1, int(MAX_NAMED_SHARE * len(known))):
        return None
    theirs = float(share[:, named].mean(axis=0).max())
    return Uneven(tuple(ranks[known[named]].tolist()), float(typical.mean()), theirs, n_rounds)


def _whole_rounds(batches: Sequence[CallBatch], group: tuple[int, ...]) -> tuple[Float64Array, Float64Array] | None:
    """Starts and ends of the rounds that every member has reported, each of shape `(n_rounds, n_members)`."""
    usable = [batch for batch in batches if Sees.START in batch.sees and Sees.END in batch.sees and len(batch)]
    if not usable or len(group) < 2:
        return None
    rank, seq, op, start, end = (
        np.concatenate([_column(batch, name) for batch in usable])
        for name in ("rank", "seq", "op", "start_ns", "end_ns")
    )
    chosen = np.isin(op, _TOGETHER) & (start > 0) & (end >= start) & np.isin(rank, group)
    rank, seq, start, end = rank[chosen], seq[chosen], start[chosen], end[chosen]
    numbers, line = np.unique(seq, return_inverse=True)
    order = np.argsort(group)
    column = order[np.searchsorted(np.array(group)[order], rank)]
    starts, ends = np.zeros((len(numbers), len(group))), np.zeros((len(numbers), len(group)))
    starts[line, column], ends[line, column] = start, end
    is_whole = (ends > 0).all(axis=1)
    return (starts[is_whole], ends[is_whole]) if is_whole.any() else None


def _column(batch: CallBatch, name: str) -> npt.NDArray[np.int64]:
    return batch.codes("op").astype(np.int64) if name == "op" else batch.integers(name)
