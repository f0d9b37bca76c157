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
