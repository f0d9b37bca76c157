"""The pace of a job: what its iterations take on average, the slow ones among them included.

A level is what most iterations take. Where every fourth one is slow (a rank that is stopped 10 ms of every 30) the
level goes back to where it was while the job does not, so the end of a slowdown is a matter of the pace.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from streams.slow.attribution.records import IterationRecord
from streams.slow.thresholds import STRETCH, STRETCHES, USUAL_SHARE


def pace_s(step_times_s: Sequence[float]) -> float:
    """The mean of all of them, but that a single pause does not move it: the median over four stretches.

    >>> calm, every_fourth = [1.0] * 64, [1.0, 1.0, 1.0, 3.0] * 16
    >>> pace_s(calm), pace_s([*calm[1:], 50.0]), pace_s(every_fourth)
    (1.0, 1.0, 1.5)
    """
    n = max(len(step_times_s) // STRETCHES, 1)
    return statistics.median(_means(step_times_s, n))


@dataclass(frozen=True, slots=True)
class Pace:
    """What the pace was before a slowdown, in seconds per iteration, and up to which one it was usual."""

    typical_s: float
    usual_s: float

    @classmethod
    def of(cls, step_times_s: Sequence[float]) -> Pace | None:
        """From the iterations before it; nothing where they are fewer than a stretch."""
        if len(step_times_s) < STRETCH:
            return None
        means = sorted(_means(step_times_s, STRETCH))
        return cls(statistics.median(means), means[min(int(USUAL_SHARE * len(means)), len(means) - 1)])

    def is_exceeded(self, step_times_s: Sequence[float], min_change: float) -> bool:
        """Whether these iterations are slower by what counts as slow, and slower than was usual."""
        return pace_s(step_times_s) > max((1.0 + min_change) * self.typical_s, self.usual_s)


def newest(records: Sequence[IterationRecord], since_step: int) -> list[IterationRecord]:
    """The newest iterations since a step, as many as tell the pace."""
    return [record for record in records if record.step >= since_step][-STRETCH * STRETCHES :]


def _means(step_times_s: Sequence[float], n: int) -> list[float]:
    """Of whole stretches of `n`; of the newest, where some are left over."""
    first = len(step_times_s) % n
    return [statistics.fmean(step_times_s[i : i + n]) for i in range(first, len(step_times_s), n)]
