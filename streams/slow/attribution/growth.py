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
    mean_transfers,
    rank_charges,
    transfer_charges,
)


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
