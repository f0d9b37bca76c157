"""Rows to tensors in two compiled passes: no sorting, no temporary arrays as long as the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streams.compiled import compiled

Int64Array = npt.NDArray[np.int64]

OF_UNKNOWN_TYPE, NEGATIVE, IMPOSSIBLE, TWICE = 0, 1, 2, 3
"""Why a row was not taken."""


@compiled
def count_keys(
    optype: Any, stage: Any, dp_rank: Any, seq_id: Any, duration_s: Any, start_s: Any, seen: Any, refused: Any
) -> None:
    """Count the usable rows of each (optype, stage, seq_id) into `seen`, the others by reason into `refused`."""
    for i in range(len(optype)):
        if optype[i] < 0:
            refused[OF_UNKNOWN_TYPE] += 1
        elif stage[i] < 0 or dp_rank[i] < 0 or seq_id[i] < 0 or not np.isfinite(start_s[i]):
            refused[IMPOSSIBLE] += 1
        elif not duration_s[i] >= 0 or not np.isfinite(duration_s[i]):
            refused[NEGATIVE] += 1
        else:
            seen[optype[i], stage[i], seq_id[i]] += 1


@compiled
def scatter(
    optype: Any,
    stage: Any,
    dp_rank: Any,
    seq_id: Any,
    step: Any,
    start_s: Any,
    duration_s: Any,
    mb_id: Any,
    rank: Any,
    steps: Any,
    op_of_key: Any,
    starts_s: Any,
    durations_s: Any,
    first_row: Any,
    ranks: Any,
    surplus: Any,
    moved: Any,
    refused: Any,
) -> None:
    """Put every usable row where it belongs.

    `steps` are the distinct steps, ascending, shape `(n_steps,)`; `op_of_key`, shape `(n_types, n_stages, n_seq)`, is
    the row of the tensors, -1 for keys that most workers do not have.

    Written are `starts_s` and `durations_s`, shape `(n_ops, n_steps, n_dp)`, filled with NaN before; `first_row` and
    `ranks`, shapes `(n_ops,)` and `(n_dp, n_stages)`, filled with -1 before; and, counted per step, rows of keys that
    most do not have (`surplus`) and rows whose micro-batch is not that of the operation's first row (`moved`).
    """
    last_step, at = -1, -1
    for i in range(len(optype)):
        if (
            optype[i] < 0
            or stage[i] < 0
            or dp_rank[i] < 0
            or seq_id[i] < 0
            or not np.isfinite(start_s[i])
            or not np.isfinite(duration_s[i])
            or not duration_s[i] >= 0
        ):
            continue
        if at < 0 or step[i] != last_step:
            last_step = step[i]
            at = np.searchsorted(steps, last_step)
        op = op_of_key[optype[i], stage[i], seq_id[i]]
        if op < 0:
            surplus[at] += 1
            continue
        ranks[dp_rank[i], stage[i]] = rank[i]
        if first_row[op] < 0:
            first_row[op] = i
        elif mb_id[i] != mb_id[first_row[op]]:
            moved[at] += 1
        if np.isnan(durations_s[op, at, dp_rank[i]]):
            starts_s[op, at, dp_rank[i]] = start_s[i]
            durations_s[op, at, dp_rank[i]] = duration_s[i]
        else:
            refused[TWICE] += 1
            if start_s[i] < starts_s[op, at, dp_rank[i]]:
                starts_s[op, at, dp_rank[i]] = start_s[i]
                durations_s[op, at, dp_rank[i]] = duration_s[i]
