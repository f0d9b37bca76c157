"""What earlier runs of the same job did: a change that they had at the same step was planned."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pacehound.model.events import EarlierRun, LevelChange
from pacehound.model.step_log import StepLog
from streams.level.changepoint import ChangepointDetector
from streams.level.thresholds import MAX_DIFFERENCE, MIN_STEPS_APART, SHARE_APART, SHARE_DIFFERENCE


def earlier_run(log: StepLog, *, min_change: float = 0.10) -> EarlierRun:
    """Read the changes of an earlier run off its step times; every new level is the baseline of the next."""
    detector = ChangepointDetector(min_change=min_change)
    changes = []
    columns = (log.step.tolist(), log.time_ns.tolist(), log.step_time_s.tolist(), log.n_steps.tolist())
    for i, (step, time_ns, step_time_s, n_steps) in enumerate(zip(*columns, strict=True)):
        if i in log.planned:
            detector.skip_planned()
            continue
        change = detector.update(step - n_steps + 1, time_ns, step_time_s, n_steps)
        if change is not None:
            changes.append(LevelChange(step=change.step, log_ratio=math.log(change.after_s / change.before_s)))
            detector.rebaseline()
    return EarlierRun(name=log.path, last_step=int(log.step[-1]) if len(log) else -1, changes=tuple(changes))


def planned_by(runs: Sequence[EarlierRun], step: int, log_ratio: float) -> tuple[str, ...]:
    """Names of the earlier runs that had this change, if at least half of those that came so far did; else none.

    The same change: within 20 steps or 2 %, in the same direction, and by as much within 5 or 30 %.

    Examples
    --------
    >>> run = EarlierRun(name="monday", last_step=5000, changes=(LevelChange(step=1000, log_ratio=0.5),))
    >>> planned_by([run], 1003, 0.52), planned_by([run], 1003, -0.5), planned_by([run], 2000, 0.5)
    (('monday',), (), ())
    """
    apart = max(MIN_STEPS_APART, SHARE_APART * step)
    came_so_far = [run for run in runs if run.last_step >= step]
    had_it = tuple(
        run.name
        for run in came_so_far
        if any(
            abs(change.step - step) <= apart
            and abs(change.log_ratio - log_ratio) <= max(MAX_DIFFERENCE, SHARE_DIFFERENCE * abs(log_ratio))
            for change in run.changes
        )
    )
    return had_it if 2 * len(had_it) >= len(came_so_far) else ()
