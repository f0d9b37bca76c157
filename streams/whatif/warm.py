"""Compiling what is compiled before somebody waits for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.whatif import optypes
from streams.whatif.analysis import analyse, build
from streams.whatif.durations import launch_delays
from streams.whatif.reader import table_of

_OPS = (optypes.PARAMS_GATHER, *optypes.COMPUTE, optypes.OPTIMIZER)


def warm_up() -> None:
    """Compile, or load what was compiled before: seconds once per version, for files in single and double precision."""
    dp_rank, step, number = (one.ravel() for one in np.indices((2, 2, len(_OPS))))
    zero = np.zeros(len(dp_rank), dtype=np.int64)
    for precision in (np.float32, np.float64):
        table = pa.table(
            {
                **dict.fromkeys(("stage", "rank", "seq_id", "mc", "gmc", "mb_id"), zero),
                "dp_rank": dp_rank,
                "step": step,
                "start_ts": number.astype(precision),
                "duration": np.ones(len(number), dtype=precision),
                "optype": [optypes.NAMES[_OPS[i]] for i in number],
            }
        )
        built = build(table_of(table, "warm-up"), Path("warm-up"))
        analyse(built)
        everywhere = np.ones((len(built.job.ops), built.job.n_dp), dtype=bool)
        built.job.timeline(built.job.own_s, launch_delays(built.trace, built.model), everywhere)
