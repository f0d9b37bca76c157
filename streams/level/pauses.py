"""Single steps of a log that took so long that they are worth a line, though no level changed and nothing comes again.

Levels leave single steps out, and bursts count from five on. While a job runs, a step that does not end is a hang
before it is long; of a log only its length is left.
"""

from __future__ import annotations

import math

import numpy as np

from pacehound.model.events import Finding, Instant
from pacehound.model.evidence.levels import LongSteps
from pacehound.model.identity import event_id
from pacehound.model.step_log import StepLog
from pacehound.settings import IncidentSettings
from streams.level.thresholds import MIN_BURSTS, MUCH_LONGER, SAME_DISTANCE, WARM_UP_ROWS


def long_pause(log: StepLog, limits: IncidentSettings) -> Finding | None:
    """What is to be said of its long steps together, where they cost as much as an incident must.

    Announced ones and such as recur are left out; where there are five, bursts tell of them.
    """
    seconds = np.asarray(log.step_time_s, np.float64) * log.n_steps
    usable = np.isfinite(seconds) & (log.step_time_s > 0)
    if not usable.any():
        return None
    usual_s = float(np.median(log.step_time_s[usable]))
    excess_s = np.where(usable, seconds - usual_s * log.n_steps, 0.0)
    is_long = (excess_s >= limits.min_duration_s) & (log.step_time_s >= MUCH_LONGER * usual_s)
    is_long[: min(WARM_UP_ROWS, len(is_long))] = False
    is_long[[row for row in log.planned if row < len(is_long)]] = False
    rows = np.flatnonzero(is_long).tolist()
    lost = float(excess_s[rows].sum() / seconds[usable].sum()) if rows else 0.0
    if not rows or len(rows) >= MIN_BURSTS or lost < limits.min_loss or _recur(rows):
        return None
    at = [Instant(step=int(log.step[row]), time_ns=int(log.time_ns[row])) for row in rows]
    steps = tuple((int(log.step[row]), float(seconds[row])) for row in rows)
    return Finding(
        id=event_id("intermittent", log.path, log.rank, "pause", at[0].step),
        job=log.path,
        attempt=0,
        kind="intermittent",
        verdict="unknown",
        cause=None,
        onset=at[0],
        detected=at[-1],
        relief=at[-1],
        evidence=(LongSteps(steps=steps, usual_s=usual_s, lost_percent=math.floor(lost * 100)),),
        unseen=("what happened in it: only step times are known",),
        source=log.path,
    )


def _recur(rows: list[int]) -> bool:
    """Three or more at one distance: a checkpoint or an evaluation that the log does not announce."""
    distances = np.diff(rows)
    return len(distances) > 1 and bool(np.ptp(distances) <= SAME_DISTANCE * distances.mean())
