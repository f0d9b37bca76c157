"""Steps in which operations were lost and the rest numbered anew: their peers' times cannot belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput
from pacehound.model.trace_defects import Defect
from streams.whatif.layout import Trace
from streams.whatif.model import Model
from streams.whatif.thresholds import FEWEST_STEPS, IMPOSSIBLE_S

BoolArray = npt.NDArray[np.bool_]


def without_mismatched_steps(trace: Trace, model: Model, name: str) -> Trace:
    """Leave out the steps that miss operations and in which one peer ends before the other starts.

    A trace of which nothing is missing is not looked at: there, such a transfer is the clocks'.

    Raises
    ------
    InvalidInput
        Too few steps would be left.
    """
    is_damaged: BoolArray = np.asarray(np.isnan(trace.durations_s).any(axis=(0, 2)), dtype=bool)
    if not is_damaged.any():
        return trace
    is_mismatched = np.zeros(len(trace.steps), dtype=bool)
    count = 0
    for group in model.groups:
        if len(group) < 2:
            continue
        members = list(group)
        starts_s = trace.starts_s[members]
        last_start_s = _known(starts_s, -np.inf).max(axis=0)
        first_end_s = _known(starts_s + trace.durations_s[members], np.inf).min(axis=0)
        is_apart = np.greater_equal(last_start_s - first_end_s, IMPOSSIBLE_S) & is_damaged[:, None]
        count += int(is_apart.sum())
        is_mismatched |= is_apart.any(axis=1)
    if not count:
        return trace
    steps = trace.steps[is_mismatched].tolist()
    if len(steps) > (1 - FEWEST_STEPS) * len(trace.steps):
        raise InvalidInput(
            f"{name}: {count} transfers end before their peer has started, in {len(steps)} of {len(trace.steps)} steps "
            "that miss operations; sends and receives cannot be matched"
        )
    found = Defect(
        kind="unmatched peers",
        count=count,
        where="steps " + ", ".join(map(str, steps[:8])) + (", …" if len(steps) > 8 else ""),
        repair=f"{len(steps)} step{'' if len(steps) == 1 else 's'} left out",
    )
    return trace.only(~is_mismatched, found)


def _known(times_s: npt.NDArray[Any], otherwise: float) -> npt.NDArray[Any]:
    return np.where(np.isnan(times_s), otherwise, times_s)
