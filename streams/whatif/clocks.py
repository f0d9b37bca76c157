"""Workers whose clocks are apart: found where transfers that end together do not, and moved.

Sender and receiver of a micro-batch end together, and so do all DP ranks of a collective. The median difference of
their ends, over many of them, is the difference of their clocks. Tens of microseconds are ordinary and stay as they
are; what is beyond IMPOSSIBLE_S would turn transfers negative.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.trace_defects import Defect
from streams.whatif import optypes
from streams.whatif.durations import latest_start
from streams.whatif.layout import Trace
from streams.whatif.model import Model
from streams.whatif.thresholds import IMPOSSIBLE_S, STEADY

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]

_SAMPLED_OPS, _SAMPLED_STEPS = 16, 16
"""Of each kind: a clock that is wrong is wrong in all of them."""


def on_one_clock(trace: Trace, model: Model) -> Trace:
    """The trace with the times of workers moved whose clocks are more than IMPOSSIBLE_S off the others'."""
    offsets_s = clock_offsets_s(trace, model)
    is_off = np.abs(offsets_s) > IMPOSSIBLE_S
    if not is_off.any() or not _has_impossible_transfer(trace, model):
        return trace
    starts_s = trace.starts_s.copy()
    for stage, dp in np.argwhere(is_off):
        starts_s[trace.ops.stage == stage, :, dp] -= offsets_s[stage, dp].astype(starts_s.dtype)
    starts_s -= np.nanmin(starts_s, axis=(0, 2), keepdims=True)
    sentences = [f"dp {dp} stage {stage} by {offsets_s[stage, dp]:+.3f} s" for stage, dp in np.argwhere(is_off)]
    found = Defect(
        kind="clock skew",
        count=len(sentences),
        where="; ".join(sentences[:4]) + ("; …" if len(sentences) > 4 else ""),
        repair="their times are moved back",
    )
    return replace(trace, starts_s=starts_s, defects=(*trace.defects, found))


def _has_impossible_transfer(trace: Trace, model: Model) -> bool:
    """Whether some transfer ends before the last peer has started: what no clocks do that agree."""
    ends_s = trace.ends_s
    for group, over_dp in zip(model.groups, model.over_dp, strict=True):
        members = list(group)
        waited_s = latest_start(trace.starts_s, members, over_dp) - ends_s[members]
        if (waited_s >= IMPOSSIBLE_S).any():
            return True
    return False


def clock_offsets_s(trace: Trace, model: Model) -> Float64Array:
    """By how much each worker's clock is ahead of the median worker's, shape `(n_stages, n_dp)`.

    Differences that vary as much as they are large count as none.
    """
    ops, n_stages = trace.ops, trace.ops.n_stages
    along = np.zeros((n_stages, trace.n_dp))  # of each stage against the first, per DP rank
    pairs = [group for group in model.groups if len(group) == 2 and ops.optype[group[0]] in optypes.P2P]
    for stage in range(1, n_stages):
        joined = [sorted(pair, key=lambda op: ops.stage[op]) for pair in pairs]
        here = [pair for pair in joined if (ops.stage[pair[0]], ops.stage[pair[1]]) == (stage - 1, stage)]
        if here:
            earlier, later = np.array(here[:: max(1, len(here) // _SAMPLED_OPS)]).T
            along[stage] = along[stage - 1] + _steady(_ends_s(trace, later) - _ends_s(trace, earlier))
    across = np.zeros((n_stages, trace.n_dp))  # of each DP rank against the median one, per stage
    kinds = (optypes.PARAMS_GATHER, optypes.GRADS_SCATTER, optypes.SEPARATE_GRADS)
    alone = [group[0] for group, over_dp in zip(model.groups, model.over_dp, strict=True) if over_dp]
    for stage in range(n_stages):
        here_ops = [op for op in alone if ops.stage[op] == stage and ops.optype[op] in kinds][:_SAMPLED_OPS]
        if here_ops and trace.n_dp > 1:
            ends_s = _ends_s(trace, np.array(here_ops))
            across[stage] = _steady(ends_s - _median(ends_s, axis=2)[:, :, None])
    offsets_s: Float64Array = along + np.median(across - along, axis=0, keepdims=True)
    if trace.n_dp == 1:
        offsets_s = along
    return offsets_s - np.median(offsets_s)


def _ends_s(trace: Trace, ops: npt.NDArray[Any]) -> FloatArray:
    """Ends of some operations in some of the steps, shape `(n_ops, n_sampled, n_dp)`."""
    steps = slice(None, None, max(1, len(trace.steps) // _SAMPLED_STEPS))
    ends_s: FloatArray = trace.starts_s[ops][:, steps] + trace.durations_s[ops][:, steps]
    return ends_s


def _steady(difference_s: FloatArray) -> Float64Array:
    """The median over operations and steps where it is steady, else 0; shape `(n_dp,)`."""
    flat_s = difference_s.reshape(-1, difference_s.shape[2]).astype(np.float64)
    middle_s = _median(flat_s, axis=0)
    if (np.abs(middle_s) <= IMPOSSIBLE_S).all():
        return middle_s
    spread_s = _median(np.abs(flat_s - middle_s), axis=0)
    return np.where(spread_s <= STEADY * np.abs(middle_s), middle_s, 0.0)


def _median(values: FloatArray, axis: int) -> Float64Array:
    """Of what is not missing; the way that knows of missing values is ten times slower."""
    found: Float64Array = (np.nanmedian if np.isnan(values).any() else np.median)(values, axis=axis)
    return found
