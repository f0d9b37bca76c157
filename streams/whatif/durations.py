"""What each operation takes of itself: computes their duration, transfers the part after the last peer has started.

The rest of a transfer's duration is waiting, and waiting is what the simulation works out anew (section 3.2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.trace_defects import Defect
from streams.whatif import optypes
from streams.whatif.layout import Ops, Trace
from streams.whatif.model import Model
from streams.whatif.thresholds import IMPOSSIBLE_S

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


def own_durations(trace: Trace, model: Model) -> tuple[FloatArray, Trace]:
    """The own duration of every operation, and the trace with what was found wrong.

    Shape `(n_ops, n_steps, n_dp)`, in the precision of the trace. Transfers may be negative by less than IMPOSSIBLE_S;
    what is missing is filled with the median of the operation.
    """
    own_s = trace.durations_s.copy()
    n_impossible, worst = 0, {}
    for group, over_dp in zip(model.groups, model.over_dp, strict=True):
        members = list(group)
        began_s = latest_start(trace.starts_s, members, over_dp)
        for op in members:
            np.subtract(trace.starts_s[op] + trace.durations_s[op], began_s, out=own_s[op])
            is_impossible = own_s[op] <= -IMPOSSIBLE_S
            if is_impossible.any():
                own_s[op][is_impossible] = 0.0
                n_impossible += int(is_impossible.sum())
                worst[op] = int(is_impossible.sum())
    if n_impossible:
        names = [trace.ops.name(op) for op in sorted(worst, key=lambda op: -worst[op])[:3]]
        found = Defect(
            kind="negative transfer",
            count=n_impossible,
            where="; ".join(names) + ("; …" if len(worst) > len(names) else ""),
            repair="taken as 0 s",
        )
        trace = replace(trace, defects=(*trace.defects, found))
    return _filled(own_s), trace


def latest_start(starts_s: FloatArray, members: list[int], over_dp: bool) -> FloatArray:
    """When the last member of a group has started, shape `(n_steps, n_dp)`; NaN where one of them is missing.

    Without the missing one nobody knows how long the others waited for it.
    """
    began_s: FloatArray = starts_s[members[0]]
    for op in members[1:]:
        began_s = np.maximum(began_s, starts_s[op])
    if over_dp:
        began_s = np.broadcast_to(np.maximum.reduce(began_s, axis=1, keepdims=True), began_s.shape)
    return began_s


def _filled(own_s: FloatArray) -> FloatArray:
    is_missing = np.isnan(own_s)
    for op in np.flatnonzero(is_missing.any(axis=(1, 2))):
        own_s[op][is_missing[op]] = np.nanmedian(own_s[op])
    return own_s


def ideal_durations(own_s: FloatArray, ops: Ops) -> Float64Array:
    """What each operation would take without stragglers: of its type the mean, of communication the median.

    Over all micro-batches, stages, steps and DP ranks (section 3.2). The mean is formed in double precision (the
    published code forms it in that of the trace).

    Shape `(n_ops,)`.
    """
    ideal_s = np.empty(len(ops))
    bounds = np.searchsorted(ops.optype, np.arange(len(optypes.NAMES) + 1))
    for kind in range(len(optypes.NAMES)):
        of_kind = slice(bounds[kind], bounds[kind + 1])
        if of_kind.start < of_kind.stop:
            values = own_s[of_kind]
            is_median = kind in optypes.IDEAL_IS_MEDIAN
            ideal_s[of_kind] = np.median(values) if is_median else values.mean(dtype=np.float64)
    return ideal_s


def launch_delays(trace: Trace, model: Model) -> FloatArray:
    """How long after the last operation that it waits for each one was launched: what nobody recorded took that time.

    Shape `(n_ops, n_steps, n_dp)`. Negative by less than IMPOSSIBLE_S where clocks differ; 0 where by more, and where
    the operation is missing.
    """
    ends_s = trace.ends_s
    delays_s = np.empty_like(trace.starts_s)
    for op, before in enumerate(model.waits_for):
        ready_s: Any = 0.0
        for earlier in before:
            ready_s = np.fmax(ready_s, ends_s[earlier]) if earlier != before[0] else ends_s[earlier]
        np.subtract(trace.starts_s[op], ready_s, out=delays_s[op])
    delays_s[~(delays_s > -IMPOSSIBLE_S)] = 0.0
    return delays_s
