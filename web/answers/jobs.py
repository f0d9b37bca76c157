"""The list of jobs: how they do, the shape of their pace, what they have lost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Literal

from web.source import Source

MOST_JOBS = 500
"""Attempts in the list, the newest first."""
SILENT_AFTER_S = 60.0
"""A job that nothing was heard of for so long is not called running: agents speak every few seconds, a step may take
most of a minute."""

POINTS = 60
"""Of the shape of a job's pace."""

State = Literal["slow", "running", "silent", "ended"]


def jobs(source: Source) -> dict[str, Any]:
    """Every attempt of every job that the history knows."""
    return {"now_ns": source.now_ns(), "most": MOST_JOBS, "jobs": attempts(source, "", MOST_JOBS)}


def attempts(source: Source, job: str, most: int) -> list[dict[str, Any]]:
    """The attempts of one job, or of all (`""`), those first of which something was heard last."""
    rows = source.rows("page/jobs", job=job, most=most)
    asked: dict[str, list[Any]] = {
        "jobs": [row["job"] for row in rows],
        "attempts": [int(row["attempt"]) for row in rows],
        "widths": [max(-(-(int(row["last_step"]) + 1) // POINTS), 1) for row in rows],
    }
    sparks = {(row["job"], row["attempt"]): row["points"] for row in source.rows("page/sparks", **asked)}
    now_ns = source.now_ns()
    for row in rows:
        points = sparks.get((row["job"], row["attempt"]), [])
        row["spark_s"] = points
        row["step_time_s"] = statistics.median(points) if points else 0.0
        row["state"] = state(row, now_ns, is_watched=source.is_watched)
        row["steps"] = int(row["last_step"]) + 1
        if not source.is_watched:
            row["open_incidents"] = 0
    return rows


def state(row: Mapping[str, Any], now_ns: int, *, is_watched: bool) -> State:
    """In a word: something is wrong with it now, it runs, nothing is heard of it, it is over."""
    if row["has_ended"]:
        return "ended"
    if not is_watched or (now_ns - row["last_ns"]) / 1e9 > SILENT_AFTER_S:
        return "silent"
    return "slow" if row["open_incidents"] else "running"
