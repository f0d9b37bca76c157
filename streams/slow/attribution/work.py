"""More work, imbalance of the work, and pauses that meet everybody: longer iterations with nobody to name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence.computing import NobodyApart
from pacehound.model.evidence.levels import WorkChanged
from streams.slow.attribution.growth import Growth
from streams.slow.attribution.records import Float64Array, IterationRecord, mean_step_time_s
from streams.slow.attribution.verdict import Attribution
from streams.slow.thresholds import MAX_CULPRITS, MIN_EXPLAINED, MIN_MORE_WORK, MIN_TRANSFER_SHARE, WORK_SHARE
from streams.spread import robust_sigma


def change_of_work(slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> WorkChanged | None:
    """What there is more of to do, where the calls themselves tell it.

    It has to be more than the work varies anyhow (experts, packed sequences, lost rows), and a fair share of what the
    iterations have become longer by.
    """
    longer = mean_step_time_s(slow) / mean_step_time_s(quiet) - 1.0
    for what, unit in (("n_rounds", "calls"), ("size_bytes", "bytes")):
        amounts = np.array([getattr(r, what) for r in quiet], np.float64)
        before, after = float(np.median(amounts)), float(np.median([getattr(r, what) for r in slow]))
        spread = robust_sigma(amounts)
        if before and after - before > max(MIN_MORE_WORK * before, WORK_SHARE * longer * before, 3.0 * spread):
            return WorkChanged(what=unit, before=before, after=after)
    return None


def follows_bytes(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    slow_own: Float64Array,
    quiet_own: Float64Array,
) -> npt.NDArray[np.bool_]:
    """Per rank: what it needs per byte, learnt from the quiet iterations, explains most of its growth.

    Own times have shape `(n_iterations, n_ranks)`.
    """
    nobody = np.zeros(slow_own.shape[1], np.bool_)
    quiet_bytes = np.array([r.size_bytes for r in quiet], np.float64)
    slow_bytes = np.array([r.size_bytes for r in slow], np.float64)
    spread = float(quiet_bytes.std())
    if not spread or spread < 0.01 * float(quiet_bytes.mean()):
        return nobody
    centred = quiet_bytes - quiet_bytes.mean()
    usual = np.nanmean(quiet_own, axis=0)
    per_byte = np.nansum((quiet_own - usual) * centred[:, None], axis=0) / float((centred**2).sum())
    explained = np.maximum(per_byte, 0.0) * (slow_bytes.mean() - quiet_bytes.mean())
    follows: npt.NDArray[np.bool_] = explained >= MIN_EXPLAINED * (np.nanmean(slow_own, axis=0) - usual)
    return follows


def nobody_apart(slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], growth: Growth) -> Attribution:
    """Nobody stands apart: say whether the growth wanders."""
    usual: dict[int, float] = {}
    for record in quiet:
        for rank, ns in record.charges.ranks.items():
            usual[rank] = usual.get(rank, 0.0) + ns / len(quiet)
    tops = []
    for record in slow:
        over = {rank: ns - usual.get(rank, 0.0) for rank, ns in record.charges.ranks.items()}
        top = max(over, key=lambda rank: (over[rank], -rank), default=None)
        if top is not None and over[top] >= MIN_TRANSFER_SHARE * growth.total:
            tops.append(top)
    if len(set(tops)) > MAX_CULPRITS:
        nobody = NobodyApart(growth="wanders", n_ranks=len(set(tops)), n_iterations=len(tops))
    else:
        nobody = NobodyApart(growth="is spread")
    return Attribution("slow", "unknown", None, evidence=(nobody,))
