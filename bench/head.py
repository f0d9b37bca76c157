"""What an embedded head takes: calls through its door, the operators and the store, per second of a core."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from pacehound.errors import BusFull
from pacehound.model import codec
from pacehound.model.topology import Layout
from pacehound.runtime.embedded import open_parts
from pacehound.runtime.head.node import Head
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from streams import native_loops

LAYOUT = Layout(tp=4, dp=8, pp=2)
RUNS = 3
_SETTLE_S = 300.0


def run() -> list[dict[str, Any]]:
    """One row per figure; the median of some runs."""
    bodies = [codec.encode(event) for event in simulate(JobSpec(layout=LAYOUT, iterations=150)).events()]
    native_loops.loaded()
    figures = sorted(_calls_per_core_s(bodies) for _ in range(RUNS))
    case = f"{LAYOUT.world_size} ranks, {len(bodies):,} messages"
    return [
        {"case": case, "figure": "calls through a head", "value": figures[RUNS // 2], "unit": "calls/s and core"},
        {"case": case, "figure": "the slowest run", "value": figures[0], "unit": "calls/s and core"},
        {"case": case, "figure": "the fastest run", "value": figures[-1], "unit": "calls/s and core"},
    ]


def _calls_per_core_s(bodies: list[bytes]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        settings, telemetry = Settings(), Telemetry()
        head = Head(settings=settings, parts=open_parts(settings, Path(folder), telemetry), telemetry=telemetry)
        head.start()
        try:
            began_s = time.process_time()
            for body in bodies:
                while True:
                    try:
                        head.ingest(body)
                        break
                    except BusFull:
                        time.sleep(0.02)
            if not head.settle(_SETTLE_S):
                raise TimeoutError(f"{len(bodies)} messages were not dealt with in {_SETTLE_S:.0f} s")
            took_s = time.process_time() - began_s
            calls = head.query("SELECT count() AS n FROM calls").column("n")[0].as_py()
        finally:
            head.stop()
    return float(calls) / took_s
