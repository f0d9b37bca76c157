"""What level detection costs: ns per observation and series, bytes per series, and what the first update takes.

All times are CPU times of one thread. The series run in step, so that the searches which each does every 64 rows (a
repeating pattern) or every eight (drifts) fall on the same rows; a whole number of 64 rows is timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.suites.step_noise import Noise
from streams.level.changepoint import ChangepointDetector, ChangepointDetectors
from streams.level.records import record

FloatArray = npt.NDArray[np.float64]

DATA = {
    "sharp (0.5 %)": Noise(sd=0.005),
    "noisy (3 %, 0.8)": Noise(sd=0.03, correlation=0.8),
    "noisy (6 %, 0.8)": Noise(sd=0.06, correlation=0.8),
}
"""By jitter and lag-1 correlation."""

ROWS = {1: 6_400, 1_000: 64, 10_000: 64}
"""Rows in one timing, by the number of series."""

WARM_ROWS = 640  # the reference and its noise are full by then
WARM_SERIES = 100  # of which the states of more series are copies; what is timed differs for each
REPEATS = 3
STEP_TIME_S = 0.1

VARIANTS: dict[str, dict[str, bool]] = {
    "without small changes": {"small_changes": False},
    "with small changes": {},
    "with small changes, exact posterior": {"exact": True},
}

_FIRST_UPDATE = """
import time
import numpy as np
from streams.level.changepoint import ChangepointDetector, ChangepointDetectors
before_s = time.perf_counter()
ChangepointDetector().update(0, 0, 0.1)
ChangepointDetectors(2).update(0, 0, np.full(2, 0.1))
print(time.perf_counter() - before_s)
"""


def run() -> list[dict[str, Any]]:
    """One row per data, number of series and variant."""
    rows: list[dict[str, Any]] = [
        {"case": "one series", "figure": "state", "value": record("series").itemsize, "unit": "B"},
        *_compilation(),
    ]
    _call(ChangepointDetectors(2, exact=True), np.full((1, 2), STEP_TIME_S))
    for data, noise in DATA.items():
        for n, n_rows in ROWS.items():
            case = f"{n:,} series, {data}"
            step_times_s = _step_times_s(noise, n, n_rows * REPEATS)
            for variant, options in VARIANTS.items():
                detectors = _warm(noise, n, options)
                rows.append(_row(case, variant, step_times_s, partial(_call, detectors)))
        one = ChangepointDetector()
        _call_one(one, _step_times_s(noise, 1, WARM_ROWS))
        rows.append(
            _row(
                f"1 series, {data}",
                "with small changes, ChangepointDetector",
                _step_times_s(noise, 1, ROWS[1] * REPEATS),
                partial(_call_one, one),
            )
        )
    return rows


def _compilation() -> list[dict[str, Any]]:
    """How long the first updates of a process take: with an empty cache, and with the build in it."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for figure in ("first update, nothing built", "first update, built before"):
            done = subprocess.run(
                [sys.executable, "-c", _FIRST_UPDATE],
                env={**os.environ, "XDG_CACHE_HOME": folder, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                check=True,
                text=True,
            )
            rows.append({"case": "a process", "figure": figure, "value": float(done.stdout), "unit": "s"})
    return rows


def _step_times_s(noise: Noise, n: int, n_rows: int) -> FloatArray:
    """Shape `(n_rows, n)`; every series is a stretch of one long sample."""
    sample = noise.sample(np.random.default_rng(n), n * n_rows)
    return STEP_TIME_S * np.exp(np.ascontiguousarray(sample.reshape(n, n_rows).T))


def _warm(noise: Noise, n: int, options: dict[str, bool]) -> ChangepointDetectors:
    """Detectors that have learnt; more than a hundred are copies of a hundred."""
    some = min(n, WARM_SERIES)
    learnt = ChangepointDetectors(some, **options)
    _call(learnt, _step_times_s(noise, some, WARM_ROWS))
    if some == n:
        return learnt
    detectors = ChangepointDetectors(n, **options)
    detectors._records.reshape(-1, some)[:] = learnt._records
    return detectors


def _call(detectors: ChangepointDetectors, step_times_s: FloatArray) -> None:
    for row, step_time_s in enumerate(step_times_s):
        detectors.update(row, row, step_time_s)


def _call_one(detector: ChangepointDetector, step_times_s: FloatArray) -> None:
    for row, step_time_s in enumerate(step_times_s[:, 0].tolist()):
        detector.update(row, row, step_time_s)


def _row(case: str, figure: str, values: FloatArray, work: Callable[[FloatArray], None]) -> dict[str, Any]:
    """Median of `REPEATS` timings, each of its own share of the rows."""
    times_s = []
    for part in np.split(values, REPEATS):
        before_s = time.process_time()
        work(part)
        times_s.append((time.process_time() - before_s) / part.size)
    return {"case": case, "figure": figure, "value": 1e9 * median(times_s), "unit": "ns"}
