"""Cost of following the period of calls: in steady state by period and batch, and while none is known."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.rounds import Rounds
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from streams.pipeline import Pipeline
from streams.rounds.call_codes import token
from streams.rounds.period import PeriodTracker
from streams.rounds.recurring import RecurringIterations

PERIODS = (8, 500, 5_000, 50_000)
BATCHES = (125, 1_450, 10_000)
STEADY_CALLS = 300_000

Int64Array = npt.NDArray[np.int64]


def run() -> list[dict[str, Any]]:
    """One row per period, batch size and figure."""
    rows: list[dict[str, Any]] = []
    for period in PERIODS:
        kinds, tokens = _calls(period)
        for batch in BATCHES:
            tracker = PeriodTracker()
            learning_s = _feed(tracker, kinds, tokens, 5 * max(period, 500), batch)
            if tracker.period != period:
                raise RuntimeError(f"the period is {period}, the tracker found {tracker.period}")
            steady_s = _feed(tracker, kinds, tokens, STEADY_CALLS, batch)
            case = f"period {period:,}, batches of {batch:,}"
            learnt = tracker.calls_seen - STEADY_CALLS
            rows += [
                {"case": case, "figure": "steady", "value": steady_s / STEADY_CALLS * 1e9, "unit": "ns/call"},
                {"case": case, "figure": "until found", "value": learning_s / learnt * 1e9, "unit": "ns/call"},
                {"case": case, "figure": "snapshot", "value": len(pickle.dumps(tracker)) / 1024, "unit": "KiB"},
            ]
    rows.append(
        {"case": "rank of 3D job, 8 ranks", "figure": "rounds to iterations", "value": _rounds_ns(), "unit": "ns/call"}
    )
    rng = np.random.default_rng(0)
    endless = rng.integers(0, 50, 600_000)
    tracker = PeriodTracker()
    search_s = _feed(tracker, np.zeros(len(endless), np.int64), endless, len(endless), 125)
    rows.append(
        {"case": "never repeats", "figure": "searching", "value": search_s / len(endless) * 1e9, "unit": "ns/call"}
    )
    return rows


def _calls(period: int) -> tuple[Int64Array, Int64Array]:
    """Kinds and tokens of one iteration: a few operations, some sizes, as on the communicators of one rank."""
    rng = np.random.default_rng(period)
    op, size = rng.integers(1, 5, period), rng.integers(1, 12, period) << 20
    op[0] = 9
    return token(op, 0, -1), token(op, size, -1)


def _rounds_ns() -> float:
    """One rank's calls on all its communicators, from closed rounds to iterations, second by second."""
    pipeline = Pipeline(Settings())
    events = simulate(JobSpec(layout=Layout(tp=2, dp=2, pp=2), iterations=600)).events()
    by_second: dict[int, list[Rounds]] = {}
    for event in events:
        for out in pipeline.on_event(event):
            if isinstance(out, Rounds):
                by_second.setdefault(out.time_ns // 1_000_000_000, []).append(out)
    recurring = RecurringIterations("bench", 0, 0)
    n_calls = 0
    before_s = time.perf_counter()
    for second, rounds in sorted(by_second.items()):
        recurring.add(rounds, (second + 1) * 1_000_000_000)
        n_calls += sum(len(block) for block in rounds if 0 in block.ranks)
    return (time.perf_counter() - before_s) / n_calls * 1e9


def _feed(tracker: PeriodTracker, kinds: Int64Array, tokens: Int64Array, n_calls: int, batch: int) -> float:
    """Seconds that it takes to follow so many calls, beginning where the last ones ended."""
    first = tracker.calls_seen
    order = np.arange(first, first + n_calls) % len(tokens)
    kinds, tokens = kinds[order], tokens[order]
    before_s = time.perf_counter()
    for start in range(0, n_calls, batch):
        tracker.extend(tokens[start : start + batch], kinds[start : start + batch])
        tracker.take_boundaries()
    return time.perf_counter() - before_s
