"""One attempt of a job: its iteration times, what changed, its incidents."""

from __future__ import annotations

from typing import Any

from web.answers.incidents import summary
from web.answers.jobs import attempts
from web.source import Source

MOST_ATTEMPTS = 200
MOST_POINTS = 2_000
"""Of the line: more than a screen has columns."""


def job(source: Source, name: str, attempt: int | None) -> dict[str, Any] | None:
    """The attempt (the last one, where none is named) and which others there are; `None`: no such job."""
    known = sorted(attempts(source, name, MOST_ATTEMPTS), key=lambda row: int(row["attempt"]))
    shown = known[-1:] if attempt is None else [row for row in known if row["attempt"] == attempt]
    if not shown:
        return None
    (row,) = shown
    return {
        **row,
        "now_ns": source.now_ns(),
        "attempts": [row["attempt"] for row in known],
        "changes": source.rows("page/changes", job=name, attempt=row["attempt"]),
        "listed_incidents": [summary(one) for one in source.incidents(name) if one.attempt == row["attempt"]],
    }


def steps(source: Source, name: str, attempt: int, first: int, until: int) -> dict[str, Any]:
    """Iteration times of the steps from `first` on and before `until`, as columns: at most `MOST_POINTS` points."""
    width = max(-(-(until - first) // MOST_POINTS), 1)
    # Whole points, so that the same step falls into the same one whatever is looked at.
    table = source.table(
        "page/steps", job=name, attempt=attempt, first=first // width * width, until=until, width=width
    )
    return {"width": width, **{column: table.column(column).to_pylist() for column in table.column_names}}
