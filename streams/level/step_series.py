"""A whole step-time log through a watch: what there is to say about it in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from pacehound.model.events import EarlierRun, Finding
from pacehound.model.step_log import StepLog
from streams.level.earlier_runs import earlier_run
from streams.level.step_watch import StepTime, StepWatch


class SeriesWatch(Protocol):
    """What is asked of a watch (`streams.level.step_watch.StepWatch`)."""

    def update(self, row: StepTime) -> list[Finding]:
        """Take the next row; versions of findings that it completes."""
        ...

    @property
    def planned(self) -> tuple[Finding, ...]:
        """What was learnt to be planned."""
        ...


def rows_of(log: StepLog) -> Iterator[StepTime]:
    """The rows of a log, as a watch takes them.

    >>> import numpy as np
    >>> ones = np.ones(2, np.int64)
    >>> log = StepLog(path="a", format="csv", step=np.array([4, 5]), n_steps=ones, time_ns=ones,
    ...     step_time_s=np.array([0.5, 0.6]), work={"global_batch_size": np.array([np.nan, 64.0])})
    >>> [(row.step, row.step_time_s, dict(row.work)) for row in rows_of(log)]
    [(4, 0.5, {}), (5, 0.6, {'global_batch_size': 64.0})]
    """
    work = {name: column.tolist() for name, column in log.work.items()}
    columns = (log.step.tolist(), log.n_steps.tolist(), log.time_ns.tolist(), log.step_time_s.tolist())
    for i, (step, n_steps, time_ns, step_time_s) in enumerate(zip(*columns, strict=True)):
        yield StepTime(
            step=step,
            n_steps=n_steps,
            time_ns=time_ns,
            step_time_s=step_time_s,
            work={name: column[i] for name, column in work.items() if not math.isnan(column[i])},
            planned=log.planned.get(i, ""),
        )


def follow(log: StepLog, watch: SeriesWatch) -> tuple[list[Finding], list[Finding]]:
    """The last version of every finding in order of onset, and what was learnt to be planned."""
    latest: dict[str, Finding] = {}
    for row in rows_of(log):
        for finding in watch.update(row):
            latest[finding.id] = finding
    return sorted(latest.values(), key=_onset), sorted(watch.planned, key=_onset)


def _onset(finding: Finding) -> int:
    return finding.onset.step if finding.onset is not None and finding.onset.step is not None else 0


def earlier_runs(logs: Sequence[StepLog], *, min_change: float) -> tuple[EarlierRun, ...]:
    """What earlier runs of the same job did, read off their logs."""
    return tuple(earlier_run(log, min_change=min_change) for log in logs if len(log))


def watch_for(log: StepLog, *, min_change: float, earlier: tuple[EarlierRun, ...] = ()) -> SeriesWatch:
    """A watch for one log. Each rank is a job of its own here, so that no two findings have the same id."""
    job = log.path if log.rank is None else f"{log.path} rank {log.rank}"
    return StepWatch(job=job, source=log.path, min_change=min_change, history=earlier)
