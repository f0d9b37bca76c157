"""By how much slow iterations are longer than quiet ones, rank by rank and transfer by transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.records import (
    Float64Array,
    Int64Array,
    IterationRecord,
    level_of,
    mean_step_time_s,
    mean_transfers,
    rank_charges,
    transfer_charges,
)
from streams.slow.thresholds import NOT_THEIRS, STILL_SLOW


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much the means of the slow iterations lie above those of the quiet ones, in nanoseconds.

    `own` and `path` have one entry per rank of `ranks`, `transfer` and `path_transfer` one per key; so have the quiet
    levels of both.
    """

    total: float
    ranks: Int64Array
    own: Float64Array
    path: Float64Array
    transfer: Float64Array
    path_transfer: Float64Array
    quiet_own: Float64Array
    quiet_transfer: Float64Array


def growth_of(
    slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], keys: Mapping[TransferKey, int], total_ns: float
) -> Growth:
    """The growth of everything that is measured, over iterations that take `total_ns` longer; `keys` as in `attribute`.

    A rank's own time is known within bounds: the bound that has grown less counts.
    """
    ranks = slow[-1].ranks
    quiet_own = level_of(quiet, "own_ns", ranks)
    quiet_transfer = mean_transfers(quiet, len(keys))
    least = level_of(slow, "own_ns", ranks) - quiet_own
    most = level_of(slow, "own_most_ns", ranks) - level_of(quiet, "own_most_ns", ranks)
    return Growth(
        total=total_ns,
        ranks=ranks,
        own=np.nan_to_num(np.minimum(least, most)),
        path=rank_charges(slow, ranks) - rank_charges(quiet, ranks),
        transfer=mean_transfers(slow, len(keys)) - quiet_transfer,
        path_transfer=transfer_charges(slow, keys) - transfer_charges(quiet, keys),
        quiet_own=np.nan_to_num(quiet_own),
        quiet_transfer=quiet_transfer,
    )


def is_of_others(
    culprits: Sequence[int], slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], first_growth_s: float
) -> bool:
    """Whether iterations that are nearly as slow as at first, by `first_growth_s`, are so for other reasons than these.

    That is so where a small share of the growth is theirs, both on the critical path and in the time that they take
    themselves: who is slow makes transfers longer, too, and may be slow in some iterations only.
    """
    if not (slow and quiet and culprits and all(record.sees_transfers for record in slow)):
        return False
    ranks = np.array(sorted(culprits), np.int64)
    growth_ns = 1e9 * (mean_step_time_s(slow) - mean_step_time_s(quiet))
    path_ns = (rank_charges(slow, ranks) - rank_charges(quiet, ranks)).sum()
    own_ns = np.nan_to_num(level_of(slow, "own_ns", ranks) - level_of(quiet, "own_ns", ranks))
    theirs_ns = max(float(path_ns), float(own_ns.max()))
    return growth_ns >= STILL_SLOW * 1e9 * first_growth_s and theirs_ns < NOT_THEIRS * growth_ns
