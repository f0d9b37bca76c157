"""The recorded and the ideal timeline of a trace, in the form in which they are written for Perfetto."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streams.whatif import optypes
from streams.whatif.analysis import Built
from streams.whatif.perfetto import Timeline

FloatArray = npt.NDArray[np.floating[Any]]

MOST_OPERATIONS = 400_000
"""Of one timeline: more than this no browser likes. The first steps are shown."""

_STREAM_NAMES = ("compute", "DP", "forward send", "forward receive", "backward send", "backward receive")
_STREAM = {
    optypes.FORWARD_SEND: 2,
    optypes.FORWARD_RECV: 3,
    optypes.BACKWARD_SEND: 4,
    optypes.BACKWARD_RECV: 5,
}
_ON_COMPUTE = (*optypes.COMPUTE, optypes.GC, optypes.OPTIMIZER)


def timelines(built: Built) -> dict[str, Timeline]:
    """`recorded`, `simulated` (own durations, no launch delays) and `ideal`, of as many first steps as may be shown."""
    trace, job = built.trace, built.job
    n_steps = max(1, min(len(trace.steps), MOST_OPERATIONS // (len(trace.ops) * trace.n_dp)))
    own_s = job.own_s[:, :n_steps]
    ideal_s = np.broadcast_to(job.ideal_s[:, None, None], own_s.shape)
    starts_s, ends_s = trace.starts_s[:, :n_steps], trace.ends_s[:, :n_steps]
    return {
        "recorded": _timeline(built, starts_s, ends_s, own_s),
        "simulated": _timeline(built, *job.timeline(own_s), own_s),
        "ideal": _timeline(built, *job.timeline(np.ascontiguousarray(ideal_s)), ideal_s),
    }


def _timeline(built: Built, starts_s: FloatArray, ends_s: FloatArray, own_s: FloatArray) -> Timeline:
    ops = built.trace.ops
    kinds = ops.optype.tolist()
    return Timeline(
        steps=built.trace.steps[: starts_s.shape[1]],
        names=[optypes.NAMES[kind] for kind in kinds],
        stages=ops.stage,
        streams=np.array([0 if kind in _ON_COMPUTE else _STREAM.get(kind, 1) for kind in kinds], dtype=np.int64),
        stream_names=_STREAM_NAMES,
        micro_batches=np.where(np.isin(ops.optype, optypes.COMPUTE), ops.mb_id, -1),
        chunks=ops.mc,
        starts_s=starts_s,
        ends_s=ends_s,
        own_s=own_s,
    )
