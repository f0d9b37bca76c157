"""What stragglers cost a job, window by window of recorded steps (the what-if analysis)."""

from __future__ import annotations

import re
from typing import Any

from web.source import Source

_WORKER = re.compile(r"dp (\d+), stage (\d+)")


def prices(source: Source, job: str, attempt: int) -> dict[str, Any]:
    """The windows in order, and each worker's share of the waste by its data-parallel rank and stage."""
    windows: dict[tuple[int, int], dict[str, Any]] = {}
    for row in source.rows("page/prices", job=job, attempt=attempt):
        kept = ("first_step", "last_step", "n_steps", "recorded_s", "original_s", "ideal_s", "slowdown", "waste")
        window = windows.setdefault(
            (row["first_step"], row["last_step"]),
            {
                **{key: row[key] for key in (*kept, "discrepancy", "patterns")},
                "fixes": [],
            },
        )
        fix = {key: row[key] for key in ("what", "name", "ranks", "gain", "step_time_s")}
        if place := _WORKER.fullmatch(row["name"]):
            fix["dp"], fix["stage"] = int(place[1]), int(place[2])
        window["fixes"].append(fix)
    return {"windows": list(windows.values())}


def straggling(source: Source, job: str, attempt: int, first: int, until: int) -> dict[str, Any]:
    """By rank and recorded step of a window: how much longer than its stage's median it computed (SMon's map by step).

    `longer` is row by row, a row for each rank; `None` where a step of a rank was not recorded.
    """
    rows = source.table("page/step_ranks", job=job, attempt=attempt, first=first, until=until)
    steps, ranks = (sorted(set(rows.column(name).to_pylist())) for name in ("step", "rank"))
    row_of = {rank: row for row, rank in enumerate(ranks)}
    column_of = {step: column for column, step in enumerate(steps)}
    longer: list[float | None] = [None] * (len(steps) * len(ranks))
    for step, rank, value in zip(*(rows.column(name).to_pylist() for name in ("step", "rank", "longer")), strict=True):
        longer[row_of[rank] * len(steps) + column_of[step]] = value
    return {"steps": steps, "ranks": ranks, "longer": longer}
