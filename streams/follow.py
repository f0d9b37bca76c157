"""Runs what watches a job over what was recorded of it: everything that was concluded, from start to end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from pacehound.events import Finding, Incident
from pacehound.routing import Event
from pacehound.settings import Settings
from pacehound.steps import StepLog
from streams.pipeline import Pipeline
from streams.step_watch import StepTime


class Watch(Protocol):
    """`streams.step_watch.StepWatch`, or another detector that it is compared with."""

    def update(self, row: StepTime) -> list[Finding]:
        """Take the next row; versions of findings that it completes."""
        ...


def rows_of(log: StepLog) -> Iterator[StepTime]:
    """The rows of a log, one by one."""
    names = tuple(log.work)
    work = zip(*(log.work[name].tolist() for name in names), strict=True) if names else ((),) * len(log)
    columns = (log.step.tolist(), log.n_steps.tolist(), log.time_ns.tolist(), log.step_time_s.tolist())
    for step, n_steps, time_ns, step_time_s, of_work in zip(*columns, work, strict=True):
        yield StepTime(
            step=step,
            n_steps=n_steps,
            time_ns=time_ns,
            step_time_s=step_time_s,
            work=dict(zip(names, of_work, strict=True)),
        )


def follow_log(watch: Watch, log: StepLog) -> list[Finding]:
    """Every version of every finding about a log of step times."""
    return [finding for row in rows_of(log) for finding in watch.update(row)]


def follow_job(events: Iterable[Event], settings: Settings) -> list[Finding]:
    """Every version of every finding that the pipeline draws from a job's events."""
    pipeline = Pipeline(settings)
    incidents = [e for event in events for e in pipeline.on_event(event) if isinstance(e, Incident)]
    return [finding for incident in incidents for finding in incident.findings]
