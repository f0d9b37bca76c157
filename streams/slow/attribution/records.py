"""What is kept of each iteration of a job, and what it comes to over some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streams.rounds.round_columns import TransferKey
from streams.slow.critical_path import Charges
from streams.slow.thresholds import MANY_LOST

BoolArray = npt.NDArray[np.bool_]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """What is kept of one iteration."""

    step: int
    time_ns: int
    step_time_s: float
    ranks: Int64Array  # ascending, shape `(n_ranks,)`; the same object in all records, as long as they do not change
    charges: Charges
    # own time of each rank, the least and the most that it can be (`critical_path.OwnTime`), the same shape
    own_ns: Float32Array
    own_most_ns: Float32Array
    # by the number of the communicator or pair, of any length: what lies behind its end is 0
    transfer_ns: Float32Array
    n_rounds: int
    size_bytes: int
    lost_share: Float32Array | None = None  # share of each rank's rows that are missing, or `None` where none is
    first_launch_ns: Float32Array | None = None  # how long after its begin each rank launched its first call
    sees_transfers: bool = True  # calls with a start and an end were seen

    def chosen(self, is_asked: BoolArray) -> IterationRecord:
        """The same of some of its ranks alone, `is_asked` of shape `(n_ranks,)`."""
        return replace(
            self,
            ranks=self.ranks[is_asked],
            own_ns=self.own_ns[is_asked],
            own_most_ns=self.own_most_ns[is_asked],
            lost_share=None if self.lost_share is None else self.lost_share[is_asked],
            first_launch_ns=None if self.first_launch_ns is None else self.first_launch_ns[is_asked],
        )


def of_ranks(records: Sequence[IterationRecord], ranks: Int64Array) -> list[IterationRecord]:
    """The same of some ranks alone, as far as each has them."""
    found, before = [], None
    for record in records:
        if record.ranks is not before:
            is_asked, before = np.isin(record.ranks, ranks), record.ranks
            are_all = bool(is_asked.all())
        found.append(record if are_all else record.chosen(is_asked))
    return found


def level_of(records: Sequence[IterationRecord], name: str, ranks: Int64Array) -> Float64Array:
    """Mean over the iterations of a column, per rank; NaN for ranks that were never seen."""
    if all(r.ranks is ranks or np.array_equal(r.ranks, ranks) for r in records):
        total = np.zeros(len(ranks))
        for record in records:
            total += getattr(record, name)
        return total / len(records)
    columns = columns_of(records, name, ranks)
    seen = np.isfinite(columns).sum(axis=0)
    level: Float64Array = np.where(seen > 0, np.nansum(columns, axis=0) / np.maximum(seen, 1), np.nan)
    return level


def columns_of(records: Sequence[IterationRecord], name: str, ranks: Int64Array) -> Float64Array:
    """A column of some ranks, shape `(n_iterations, n_ranks)`; NaN where a rank was not seen."""
    if records and all(record.ranks is ranks for record in records):
        return np.array([getattr(record, name) for record in records], np.float64)
    columns = np.full((len(records), len(ranks)), np.nan)
    place, known, before = np.zeros(0, np.int64), np.zeros(0, np.bool_), None
    for line, record in enumerate(records):
        if not len(record.ranks):
            continue
        if record.ranks is not before:
            place = np.minimum(np.searchsorted(record.ranks, ranks), len(record.ranks) - 1)
            known, before = record.ranks[place] == ranks, record.ranks
        columns[line] = np.where(known, getattr(record, name)[place], np.nan)
    return columns


def lost_columns(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Shares of rows that are missing, shape `(n_iterations, n_ranks)`."""
    lost = np.zeros((len(records), len(ranks)))
    for line, record in enumerate(records):
        if record.lost_share is not None and len(record.ranks):
            place = np.minimum(np.searchsorted(record.ranks, ranks), len(record.ranks) - 1)
            lost[line] = np.where(record.ranks[place] == ranks, record.lost_share[place], 0.0)
    return lost


def rank_charges(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Mean charge of each rank on the critical path."""
    on: list[int] = []
    ns: list[int] = []
    for record in records:
        on += record.charges.ranks.keys()
        ns += record.charges.ranks.values()
    charged = np.zeros(len(ranks))
    if on and len(ranks):
        place = np.minimum(np.searchsorted(ranks, on), len(ranks) - 1)
        known = ranks[place] == np.array(on)
        np.add.at(charged, place[known], np.array(ns, np.float64)[known])
    return charged / len(records)


def transfer_charges(records: Sequence[IterationRecord], keys: Mapping[TransferKey, int]) -> Float64Array:
    """Mean charge of each communicator and pair on the critical path."""
    total: dict[TransferKey, int] = {}
    for record in records:
        for key, ns in record.charges.transfers.items():
            total[key] = total.get(key, 0) + ns
    charged = np.zeros(len(keys))
    for key, ns in total.items():
        if key in keys:
            charged[keys[key]] = ns / len(records)
    return charged


def mean_transfers(records: Sequence[IterationRecord], n_keys: int) -> Float64Array:
    """Mean transfer time of each key."""
    total = np.zeros(n_keys)
    for record in records:
        total[: len(record.transfer_ns)] += record.transfer_ns
    return total / len(records)


def lost_shares(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Mean share of each rank's rows that are missing."""
    lossy = [record for record in records if record.lost_share is not None]
    if not lossy:
        return np.zeros(len(ranks))
    return np.nan_to_num(level_of(lossy, "lost_share", ranks)) * len(lossy) / len(records)


def loses_many(records: Sequence[IterationRecord], ranks: Int64Array, of: Sequence[int]) -> bool:
    """Some of these ranks are missing, or many of their rows."""
    known = np.isin(np.array(of, np.int64), ranks)
    if not known.all():
        return True
    lost = lost_shares(records, ranks)[np.searchsorted(ranks, of)]
    return float(lost.max(initial=0.0)) > MANY_LOST


def mean_step_time_s(records: Sequence[IterationRecord]) -> float:
    """How long an iteration takes, in the mean."""
    return float(np.mean([record.step_time_s for record in records]))
