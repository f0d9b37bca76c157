"""Calls per second through the embedded pipeline: bytes in, decoded, both stages, bytes out."""

from __future__ import annotations

import time
from typing import Any

from pacehound.model.calls import CallBatch
from pacehound.model.codec import decode, encode
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from streams.pipeline import Pipeline

LAYOUTS = {16: Layout(tp=2, dp=4, pp=2), 64: Layout(tp=4, dp=4, pp=4), 256: Layout(tp=8, dp=8, pp=4)}


def run() -> list[dict[str, Any]]:
    """One row per world size and figure."""
    rows: list[dict[str, Any]] = []
    for ranks, layout in LAYOUTS.items():
        events = list(simulate(JobSpec(layout=layout, iterations=100)).events())
        calls = sum(len(event) for event in events if isinstance(event, CallBatch))
        messages = [encode(event) for event in events]
        case = f"{ranks} ranks, {calls:,} calls"
        before_s = time.perf_counter()
        decoded = [event for message in messages for event in decode(message)]
        read_s = time.perf_counter() - before_s
        pipeline = Pipeline(Settings())
        out: list[Any] = []
        state_bytes = 0
        work_s = 0.0
        for number, event in enumerate(decoded):
            before_s = time.perf_counter()
            out += pipeline.on_event(event)
            work_s += time.perf_counter() - before_s
            if number == len(decoded) * 3 // 4:
                state_bytes = len(pipeline.snapshot())
        before_s = time.perf_counter()
        written = sum(len(encode(event)) for event in out)
        write_s = time.perf_counter() - before_s
        total_s = read_s + work_s + write_s
        for figure, value, unit in (
            ("through the pipeline", calls / total_s, "calls/s"),
            ("of which reading", read_s / total_s, "share"),
            ("of which operators", work_s / total_s, "share"),
            ("of which writing", write_s / total_s, "share"),
            ("bytes in", sum(map(len, messages)) / calls, "B/call"),
            ("bytes out", written / calls, "B/call"),
            ("state in mid-job", state_bytes / 1024, "KiB"),
        ):
            rows.append({"case": case, "figure": figure, "value": value, "unit": unit})
    return rows
