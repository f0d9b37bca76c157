"""What is common to ranks and links that are slow from the first steps on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from pacehound.model.events import Instant
from pacehound.model.evidence.computing import OwnTimeApart
from pacehound.model.evidence.transfers import AboveAlike
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.records import Float64Array, IterationRecord
from streams.slow.attribution.verdict import Attribution


@dataclass(frozen=True, slots=True)
class AlwaysSlow:
    """Who is slow from the start, or since a little later, and what an iteration loses by it."""

    found: Attribution
    cost_ns: float
    level_ns: float  # by how much the named ranks, the transfers or the iterations lie above what is usual
    keys: tuple[TransferKey, ...] = ()  # the transfers that are slow, and how long they would take
    usual_ns: float = 0.0
    since: Instant | None = None
    own_before_ns: Mapping[int, float] = field(default_factory=dict)  # of ranks that have no peers to be held against
    before_ns: float = 0.0  # what an iteration took before, where that and no peers tell

    def begun(self, since: Instant) -> AlwaysSlow:
        """The same since then."""
        assert since.step is not None
        step = since.step
        evidence = [
            msgspec.structs.replace(piece, since_step=step) if isinstance(piece, OwnTimeApart | AboveAlike) else piece
            for piece in self.found.evidence
        ]
        return replace(self, since=since, found=replace(self.found, evidence=tuple(evidence)))


def typical_step_ns(records: Sequence[IterationRecord]) -> float:
    """Median of the iterations."""
    return 1e9 * float(np.median([record.step_time_s for record in records]))


def least_cost_ns(records: Sequence[IterationRecord], min_change: float) -> float:
    """What lengthens an iteration by `min_change`: a share of what it would take without it."""
    return typical_step_ns(records) * min_change / (1.0 + min_change)


def split_of(values: Float64Array, latest: int) -> int:
    """How many of the values, fewer than `latest`, come before the split in two levels that leaves the least squares.

    >>> split_of(np.array([1.0, 1.1, 3.0, 3.1, 2.9]), 5)
    2
    """
    n_before = np.arange(1, min(latest, len(values)))
    before = np.cumsum(values)[: len(n_before)]
    after = values.sum() - before
    return int(n_before[np.argmax(before**2 / n_before + after**2 / (len(values) - n_before))])


def level_begins(step_times_s: Sequence[float], latest: int, min_change: float) -> int:
    """At which of the first `latest` iterations the level of those behind them begins; 0 where it was so before.

    The split of twice as many, without the very first, that leaves the least squares; pauses do not decide.

    >>> level_begins([9.0] + 14 * [1.0] + 85 * [1.4], 24, 0.1), level_begins([9.0] + 99 * [1.4], 24, 0.1)
    (15, 0)
    """
    seen = np.array(step_times_s[1 : 2 * latest])
    seen = np.minimum(seen, 2.0 * np.median(step_times_s))
    at = split_of(seen, latest)
    return at + 1 if seen[at:].mean() >= (1.0 + 0.5 * min_change) * seen[:at].mean() else 0
