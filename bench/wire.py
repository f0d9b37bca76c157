"""Bytes per call on the wire, and how fast batches are written and read, by batch size."""

from __future__ import annotations

import gzip
import time
from typing import Any

from pacehound.model.calls import CallBatch
from pacehound.model.codec import decode, encode
from pacehound.model.topology import Layout
from simulator.job import JobSpec, simulate

SIZES = (1, 10, 100, 1_450, 10_000)


def run() -> list[dict[str, Any]]:
    """One row per batch size and figure."""
    batches = [
        e for e in simulate(JobSpec(layout=Layout(tp=4, dp=2), iterations=200)).events() if isinstance(e, CallBatch)
    ]
    largest = max(batches, key=len)
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        columns = {name: largest.column(name) for name in ("rank", "seq", "count", "launch_ns", "start_ns", "end_ns")}
        repeated = {name: _cycled(values, size) for name, values in columns.items()}
        repeated["op"] = _cycled(largest.codes("op"), size)
        repeated["dtype"] = _cycled(largest.codes("dtype"), size)
        batch = CallBatch.from_columns(
            repeated,
            job=largest.job,
            attempt=0,
            host=largest.host,
            communicator=largest.communicator,
            source=largest.source,
        )
        message = encode(batch)
        case = f"{size} calls"
        rows.append({"case": case, "figure": "bytes per call", "value": len(message) / size, "unit": "B"})
        packed = len(gzip.compress(message, 1))
        rows.append({"case": case, "figure": "bytes per call, gzip", "value": packed / size, "unit": "B"})
        for figure, work in (("encode", lambda b=batch: encode(b)), ("decode", lambda m=message: decode(m))):
            rows.append({"case": case, "figure": figure, "value": size / _seconds(work), "unit": "calls/s"})
    return rows


def _cycled(values: Any, size: int) -> Any:
    return values[[i % len(values) for i in range(size)]]


def _seconds(work: Any, repeats: int = 50) -> float:
    """Median time of one call."""
    times = []
    for _ in range(repeats):
        before_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - before_s)
    return sorted(times)[repeats // 2]
