"""Which micro-batches are moved away from the slow ranks of a job, and what that promises; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actuators.mitigation.actions import ADJUST_MICROBATCHES, keeping, undoing
from actuators.mitigation.microbatches import distribute
from actuators.mitigation.speeds import Speeds
from actuators.mitigation.thresholds import LEAST_PROMISED_GAIN

KEEP_MICROBATCHES = keeping("keep_microbatches", "leaves micro-batches where they were moved to, for it has helped")
RESTORE_MICROBATCHES = undoing(
    ADJUST_MICROBATCHES, "restore_microbatches", "gives each rank as many micro-batches as its script began with"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A distribution, and what it promises.

    Attributes
    ----------
    before, after
        Micro-batches of each rank.
    gain
        The share by which iterations become shorter, as long as ranks are as fast as they were said to be.

    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: float


def plan_moves(counts: Sequence[int], speeds: Speeds) -> Moved | str:
    """The distribution that suits the speeds; or why there is none, in words.

    Parameters
    ----------
    counts
        Micro-batches of each rank as its script began with, 0 where it does not say.
    speeds
        Of the slow ranks; the others count as equally fast.

    Examples
    --------
    >>> moved = plan_moves([8, 8, 8, 8], Speeds(ratios={2: 2.0}, source=""))
    >>> moved.after, round(moved.gain, 3)
    ((10, 9, 4, 9), 0.375)
    >>> plan_moves([0, 8], Speeds(ratios={1: 2.0}, source=""))
    'not all scripts say how many micro-batches they compute (micro_batches of pacehound.trainer.connect)'

    """
    if not counts or min(counts) < 1:
        return "not all scripts say how many micro-batches they compute (micro_batches of pacehound.trainer.connect)"
    if unknown := [rank for rank in speeds.ratios if rank >= len(counts)]:
        return f"rank {unknown[0]} is slow, and the job has {len(counts)} ranks"
    times = [speeds.ratios.get(rank, 1.0) for rank in range(len(counts))]
    plan = distribute(times, sum(counts))
    before = max(time * n for time, n in zip(times, counts, strict=True))
    gain = 1.0 - plan.bottleneck_s / before
    if words := too_little(gain):
        return words
    return Moved(before=tuple(counts), after=tuple(plan.counts.tolist()), gain=gain)


def too_little(gain: float) -> str:
    """Why so little is not tried, else nothing.

    >>> too_little(0.02)
    'it would make iterations 2 % shorter, and less than 5 % is not tried'
    """
    if gain >= LEAST_PROMISED_GAIN:
        return ""
    least = f"less than {100 * LEAST_PROMISED_GAIN:.0f} % is not tried"
    return f"it would make iterations {100 * gain:.0f} % shorter, and {least}"
