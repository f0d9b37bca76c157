"""Timelines in the trace format of Chrome, which Perfetto opens: one process per DP rank, one thread per stream."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput

FloatArray = npt.NDArray[np.floating[Any]]
Int64Array = npt.NDArray[np.int64]

_GAP = 0.1
"""Between two steps, of the longer of their timelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Operations in time.

    Attributes
    ----------
    steps
        Shape `(n_steps,)`.
    names, stages, streams, micro_batches, chunks
        Of each operation, shape `(n_ops,)`; `streams` numbers what runs in turn on a worker, -1 are micro-batches and
        chunks of operations that have none.
    stream_names
        By number.
    starts_s, ends_s
        From the beginning of their step, shape `(n_ops, n_steps, n_dp)`; NaN where an operation is missing.
    own_s
        The part of each that is not waiting for peers, same shape.
    """

    steps: Int64Array
    names: Sequence[str]
    stages: Int64Array
    streams: Int64Array
    stream_names: Sequence[str]
    micro_batches: Int64Array
    chunks: Int64Array
    starts_s: FloatArray
    ends_s: FloatArray
    own_s: FloatArray

    @property
    def lengths_s(self) -> FloatArray:
        """Of each step, shape `(n_steps,)`."""
        lengths_s: FloatArray = np.nanmax(self.ends_s, axis=(0, 2))
        return lengths_s


def step_origins_s(timelines: Sequence[Timeline]) -> FloatArray:
    """Where each step begins if timelines of the same steps are to be laid over each other."""
    longest_s = np.max([timeline.lengths_s for timeline in timelines], axis=0)
    return np.concatenate([[0.0], np.cumsum(longest_s * (1 + _GAP))[:-1]])


def write_timeline(timeline: Timeline, origins_s: FloatArray, file: Path) -> None:
    """Write one timeline, compressed; its folder is made where it is missing.

    Raises
    ------
    InvalidInput
        `file` cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wb", compresslevel=5) as out:
            out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
            for number, event in enumerate(events(timeline, origins_s)):
                out.write((b",\n" if number else b"") + msgspec.json.encode(event))
            out.write(b"\n]}\n")
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror or error}") from error


def events(timeline: Timeline, origins_s: FloatArray) -> Iterator[dict[str, Any]]:
    """Names of processes and threads, then one complete event per operation; times in microseconds."""
    n_ops, n_steps, n_dp = timeline.starts_s.shape
    n_streams = len(timeline.stream_names)
    threads = (timeline.stages * n_streams + timeline.streams).tolist()
    for dp in range(n_dp):
        yield {"name": "process_name", "ph": "M", "pid": dp, "args": {"name": f"DP rank {dp}"}}
        for thread in sorted(set(threads)):
            stage, stream = divmod(thread, n_streams)
            named = f"stage {stage}: {timeline.stream_names[stream]}"
            yield {"name": "thread_name", "ph": "M", "pid": dp, "tid": thread, "args": {"name": named}}
            yield {"name": "thread_sort_index", "ph": "M", "pid": dp, "tid": thread, "args": {"sort_index": thread}}
    starts_us = (timeline.starts_s.astype(np.float64) + origins_s[None, :, None]) * 1e6
    durations_us = (timeline.ends_s - timeline.starts_s).astype(np.float64) * 1e6
    own_us = timeline.own_s.astype(np.float64) * 1e6
    for op in range(n_ops):
        args: dict[str, Any] = {}
        if timeline.micro_batches[op] >= 0:
            args["micro_batch"] = int(timeline.micro_batches[op])
        if timeline.chunks[op] >= 0:
            args["model_chunk"] = int(timeline.chunks[op])
        of_op = {"name": timeline.names[op], "cat": timeline.names[op], "ph": "X", "tid": threads[op]}
        for step in range(n_steps):
            for dp in range(n_dp):
                if np.isnan(durations_us[op, step, dp]):
                    continue
                waiting_us = max(durations_us[op, step, dp] - own_us[op, step, dp], 0.0)
                yield {
                    **of_op,
                    "pid": dp,
                    "ts": round(float(starts_us[op, step, dp]), 3),
                    "dur": round(max(float(durations_us[op, step, dp]), 0.0), 3),
                    "args": {"step": int(timeline.steps[step]), **args, "waiting_us": round(float(waiting_us), 3)},
                }
