"""What is asked of a store again and again, by name and as events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from pacehound.model.events import Decision, EarlierRun, Incident, LevelChange, Notification, UsualRounds
from pacehound.model.events.store import PACE_STEPS, WARM_UP_STEPS
from pacehound.model.evidence import read_json
from storage.named_queries import named_query

E = TypeVar("E")


class Asked(Protocol):
    """A store, or handles that only read one."""

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer to a question."""
        ...


def ask(store: Asked, name: str, **parameters: Any) -> pa.Table:
    """The answer to a named query."""
    return store.query(named_query(name), parameters)


def incidents(store: Asked, job: str | None = None) -> list[Incident]:
    """The latest version of every incident, newest first, as they were published."""
    return _events(ask(store, "incidents", job=job or ""), Incident)


def incident_versions(store: Asked, incident_id: str) -> list[Incident]:
    """All versions of the incidents whose id starts with `incident_id`, newest version first."""
    return _events(ask(store, "incident", id=incident_id), Incident)


def decisions(store: Asked, incident_id: str | None = None) -> list[Decision]:
    """What was decided about one incident, or about all, in order."""
    return _events(ask(store, "decisions", incident=incident_id or ""), Decision)


def told(store: Asked) -> list[Notification]:
    """Who has been told of what; the job and the attempt stand with the incident."""
    table = store.query("SELECT incident, state, idempotency_key, sink, level, alert, sent_ns FROM notifications")
    return [Notification(job="", attempt=0, time_ns=row.pop("sent_ns"), **row) for row in table.to_pylist()]


def last_attempt(store: Asked, job: str) -> int | None:
    """The highest attempt of `job` that has anything stored; `None` when the job is not known."""
    sql = """
        SELECT max(attempt) AS attempt, count() AS n FROM
        (
            SELECT attempt FROM stored_topology WHERE job = {job:String}
            UNION ALL SELECT attempt FROM stored_batches WHERE job = {job:String}
            UNION ALL SELECT attempt FROM stored_host_samples WHERE job = {job:String}
        )
    """
    row = store.query(sql, {"job": job}).to_pylist()[0]
    return int(row["attempt"]) if row["n"] else None


def earlier_runs(store: Asked, job: str, before_attempt: int) -> list[EarlierRun]:
    """What the last runs of `job` before this attempt did, the latest first; at most eight of them."""
    sql = """
        WITH step_time_s > 0 AND planned = '' AND step >= {first:Int64} AS is_usual
        SELECT attempt, max(step) AS last_step,
               if(countIf(is_usual) < {steps:Int64}, 0., quantileExactIf(0.5)(step_time_s, is_usual)) AS pace_s
        FROM iterations
        WHERE job = {job:String} AND attempt < {attempt:Int32}
        GROUP BY attempt ORDER BY attempt DESC LIMIT 8
    """
    known: dict[str, Any] = {"job": job, "attempt": before_attempt}
    reached = {
        int(row["attempt"]): row
        for row in store.query(sql, known | {"first": WARM_UP_STEPS, "steps": PACE_STEPS}).to_pylist()
    }
    sql = """
        SELECT attempt, max(world_size) AS world_size, uniqExact(host) AS hosts FROM topology
        WHERE job = {job:String} AND attempt < {attempt:Int32} GROUP BY attempt
    """
    shapes = {
        int(row["attempt"]): (int(row["world_size"]), int(row["hosts"])) for row in store.query(sql, known).to_pylist()
    }
    sql = """
        SELECT attempt, at_step, before_s, after_s FROM changepoints
        WHERE job = {job:String} AND attempt < {attempt:Int32} AND series = 'iteration' AND at_step IS NOT NULL
            AND before_s > 0 AND after_s > 0
        ORDER BY attempt, at_step
    """
    changes: dict[int, list[LevelChange]] = {attempt: [] for attempt in reached}
    for row in store.query(sql, known).to_pylist():
        if row["attempt"] in changes:
            log_ratio = math.log(row["after_s"] / row["before_s"])
            changes[row["attempt"]].append(LevelChange(step=int(row["at_step"]), log_ratio=log_ratio))
    return [
        EarlierRun(
            name=f"attempt {attempt}",
            last_step=int(row["last_step"]),
            changes=tuple(changes[attempt]),
            step_time_s=float(row["pace_s"]),
            world_size=shapes.get(attempt, (0, 0))[0],
            hosts=shapes.get(attempt, (0, 0))[1],
        )
        for attempt, row in reached.items()
    ]


def usual_rounds(store: Asked) -> list[UsualRounds]:
    """What rounds of each kind take in the fleet, those that were seen last first; at most 256 kinds.

    The median over jobs of each job's median attempt: a job that is slow from the start, or again and again, is one
    voice. What one run alone has done is not usual yet.
    """
    sql = """
        SELECT op, size_bytes, source, n_ranks, n_hosts, host_kind, quantileExact(0.5)(of_job_s) AS longest_s
        FROM
        (
            SELECT job, op, size_bytes, source, n_ranks, n_hosts, host_kind,
                   quantileExactLow(0.5)(longest_s) AS of_job_s, uniqExact(attempt) AS runs, max(time_ns) AS last_ns
            FROM learnt_rounds WHERE longest_s > 0
            GROUP BY job, op, size_bytes, source, n_ranks, n_hosts, host_kind
        )
        GROUP BY op, size_bytes, source, n_ranks, n_hosts, host_kind
        HAVING sum(runs) >= 2
        ORDER BY max(last_ns) DESC, op, size_bytes, source, n_ranks, n_hosts, host_kind
        LIMIT 256
    """
    return [UsualRounds(**row) for row in store.query(sql).to_pylist()]


def _events(table: pa.Table, kind: type[E]) -> list[E]:
    return [read_json(event, kind) for event in table.column("event").to_pylist()]
