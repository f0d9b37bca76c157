"""What is common to ranks and links that are slow from the first step on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.records import IterationRecord
from streams.slow.attribution.verdict import Attribution


@dataclass(frozen=True, slots=True)
class AlwaysSlow:
    """Who is slow from the start, and what an iteration loses by it."""

    found: Attribution
    cost_ns: float
    level_ns: float  # by how much the named ranks, or the transfers, lie above their peers
    keys: tuple[TransferKey, ...] = ()  # the transfers that are slow, and how long they would take
    usual_ns: float = 0.0


def typical_step_ns(records: Sequence[IterationRecord]) -> float:
    """Median of the iterations."""
    return 1e9 * float(np.median([record.step_time_s for record in records]))


def least_cost_ns(records: Sequence[IterationRecord], min_change: float) -> float:
    """What lengthens an iteration by `min_change`: a share of what it would take without it."""
    return typical_step_ns(records) * min_change / (1.0 + min_change)
