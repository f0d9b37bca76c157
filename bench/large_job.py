"""One job of 16,384 ranks at its own pace, told of in iterations, through Kafka, the streams and the store.

It takes half an hour of both processors, so that it does not run unless it is named: `python -m bench large_job`. First
all messages of its agents are made (`bench.rig.large_job_load`), then the job begins (`bench.rig.own_pace`); what was
made once (`run(made=FOLDER)`) can be sent again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.engine import LAYOUTS
from bench.rig import large_job_load
from bench.rig.own_pace import watched
from simulator.faults import SlowCompute
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec

RANKS, ITERATIONS_OF_JOB, TIMES_LONGER = 16_384, 45, 100
"""Ten minutes of iterations of 11 to 15 s, 100 times as long as `JobSpec`'s own."""

START_UNIX_NS = 1_800_000_000_000_000_000
"""When the job begins by its own clock."""

SLOW_RANK, SLOW_FROM = 8_191, 24


def run(
    ranks: int = RANKS,
    iterations: int = ITERATIONS_OF_JOB,
    times_longer: float = TIMES_LONGER,
    made: Path | None = None,
) -> list[dict[str, Any]]:
    """One row per figure; `made` is where messages of such a job lie, or shall lie when they have been made."""
    spec = JobSpec(
        layout=LAYOUTS[ranks][0],
        iterations=iterations,
        micro_batches=2,
        tp_calls=1,
        source=DEVICE_TIMES,
        faults=(SlowCompute(ranks=(SLOW_RANK % ranks,), factor=2.0, from_step=SLOW_FROM),),
        job="large",
        start_unix_ns=START_UNIX_NS,
    ).with_longer_iterations(times_longer)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        at = made or folder
        at.mkdir(exist_ok=True)
        paths = sorted(at.glob("messages*")) or large_job_load.prepared(spec, at)
        return watched(spec, paths, folder)
