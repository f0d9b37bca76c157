"""The list of jobs: how they do, the shape of their pace, what they have lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from web.source import Source

MOST_JOBS = 500
"""Attempts in the list, the newest first."""
SILENT_AFTER_S = 60.0
"""A job that nothing was heard of for so long is not called running: agents speak every few seconds, a step may take
most of a minute."""

State = Literal["slow", "running", "silent", "ended"]


def jobs(source: Source) -> dict[str, Any]:
    """Every attempt of every job that the history knows."""
    rows = source.rows("page/jobs", job="", most=MOST_JOBS)
    now_ns = source.now_ns()
    names = {"jobs": [row["job"] for row in rows], "attempts": [int(row["attempt"]) for row in rows]}
    sparks = {(row["job"], row["attempt"]): row["points"] for row in source.rows("page/sparks", **names)}
    listed = [one_job(row, now_ns, is_watched=source.is_watched) for row in rows]
    for one in listed:
        one["spark_s"] = sparks.get((one["job"], one["attempt"]), [])
    return {"now_ns": now_ns, "most": MOST_JOBS, "jobs": listed}


def one_job(row: Mapping[str, Any], now_ns: int, *, is_watched: bool) -> dict[str, Any]:
    """A row of the list without its picture."""
    fields = dict(row)
    fields["state"] = state(row, now_ns, is_watched=is_watched)
    fields["steps"] = int(row["last_step"]) + 1 if row["last_step"] >= 0 else 0
    if not is_watched:
        fields["open_incidents"] = 0
    return fields


def state(row: Mapping[str, Any], now_ns: int, *, is_watched: bool) -> State:
    """In a word: something is wrong with it now, it runs, nothing is heard of it, it is over."""
    if row["has_ended"]:
        return "ended"
    if not is_watched or (now_ns - row["last_ns"]) / 1e9 > SILENT_AFTER_S:
        return "silent"
    return "slow" if row["open_incidents"] else "running"
