"""What a job loses while it is looked at more closely (`pacehound profile`), beside the same job a moment before.

One real job, a GPT under DDP on two gloo ranks that take all of two cores, is watched throughout; in turn it is looked
at for ten seconds, as long as a suspicion is looked into, and left alone for ten. Each pair compares the median step of
both. It takes ten minutes of a machine that is idle besides and runs when it is named: `python -m bench profiled`
(`PACEHOUND_BENCH_PAIRS`, 10; `PACEHOUND_BENCH_CASES`, `100 ms,10 ms`).
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.overhead import RANKS, SCRIPT, SHAPES, Shape, micro_batches_for
from bench.rig import realjob
from pacehound.cli.controlled_job import answers_to, by_hand, controlled_job
from pacehound.model.orders import Profile
from pacehound.settings import Settings

WARM_S = 20.0
WINDOW_S = 10.0
"""`actuators/thresholds.py` looks for as long before it measures."""
SETTLE_S = 1.0
"""Until an agent has asked, and is answered: of no window."""


def run() -> list[dict[str, Any]]:
    """One row per job and figure."""
    pairs = int(os.environ.get("PACEHOUND_BENCH_PAIRS", "10"))
    asked = os.environ.get("PACEHOUND_BENCH_CASES", "") or "100 ms,10 ms"
    return [row for name in asked.split(",") for row in _compare(SHAPES[name], name, pairs)]


def _compare(shape: Shape, name: str, pairs: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        steps = (shape.width, shape.layers, micro_batches_for(shape, Path(folder)), 10**9, Path(folder) / "said.json")
        watched = realjob.start(Path(folder), realjob.forked(*steps, ranks=RANKS, script=SCRIPT))
        neighbours = realjob.Neighbours()
        try:
            realjob.until("iterations", lambda: watched.iterations_seen() > 20, 120)
            time.sleep(WARM_S)
            job = controlled_job(watched.store, Settings.load({}, ()), None, by_hand("profile"))
            windows = []
            for pair in range(pairs):
                of = {}
                for is_profiled in (pair % 2 == 0, pair % 2 == 1):
                    answers_to(job, Profile(for_ms=round(1000 * WINDOW_S) if is_profiled else 0))
                    time.sleep(SETTLE_S)
                    began_ns = time.time_ns()
                    time.sleep(WINDOW_S - SETTLE_S)
                    of[is_profiled] = began_ns, time.time_ns()
                windows.append(of)
            time.sleep(WINDOW_S)  # until the last iterations are stored
            medians = [{key: _median_s(watched, window) for key, window in of.items()} for of in windows]
        finally:
            watched.process.send_signal(signal.SIGTERM)
            watched.stop()
    added = [100 * (of[True] / of[False] - 1) for of in medians]
    print(f"profiled: {name}: {', '.join(f'{one:+.2f}%' for one in added)}", file=sys.stderr)
    figures = {
        "a step, tracked": (1e3 * statistics.median(of[False] for of in medians), "ms"),
        "added by profiling, median of the pairs": (statistics.median(added), "%"),
        "added, least": (min(added), "%"),
        "added, most": (max(added), "%"),
        "processors that others took": (100 * neighbours.share(), "%"),
    }
    case = f"steps of {name}"
    return [{"case": case, "figure": f, "value": value, "unit": unit} for f, (value, unit) in figures.items()]


def _median_s(watched: realjob.Run, window: tuple[int, int]) -> float:
    """Of the iterations that ended in a window."""
    asked = "SELECT median(step_time_s) AS step_s FROM iterations WHERE time_ns BETWEEN {} AND {}"
    return float(watched.live_sql(asked.format(*window))[0]["step_s"])
