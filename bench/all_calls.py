"""Jobs told of call by call, at their own pace: how large one may be so that two cores follow it, the store included.

Each is made first and then sent through Kafka, two workers of the streams and the writer for `SECONDS`
(`bench.rig.own_pace`): it keeps up where the answers of its second half come as late as those of its first. It takes
ten minutes of both processors, so that it does not run unless it is named: `python -m bench all_calls`.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.rig.flushes import flushed_by_agents, messages_of, together
from bench.rig.large_job_load import Due
from bench.rig.own_pace import watched
from bench.rig.vitals import with_vitals
from pacehound.model.topology import Layout
from pacehound.runtime.feed import due_ns
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec

LAYOUTS = {
    256: Layout(tp=8, dp=8, pp=4),
    1_024: Layout(tp=8, dp=32, pp=4),
    2_048: Layout(tp=8, dp=32, pp=8),
}
SECONDS = 60
TIMES_LONGER, ITERATION_S = 3.2, 0.49
"""So many times as long as `JobSpec`'s own, and what an iteration takes until a rank is slow: each makes 125 calls a
second."""
SLOW_RANK, START_UNIX_NS = 77, 1_800_000_000_000_000_000


def run() -> list[dict[str, Any]]:
    """One row per job and figure."""
    rows: list[dict[str, Any]] = []
    for ranks in LAYOUTS:
        rows += (of_job := followed(ranks))
        for row in of_job:  # minutes before the next ones come
            sys.stderr.write(f"{row['case']}: {row['figure']} {row['value']:,.4g} {row['unit']}\n")
    return rows


def followed(ranks: int, seconds: int = SECONDS) -> list[dict[str, Any]]:
    """One row per figure; one rank of the job is slow from its middle on."""
    iterations = round(seconds / ITERATION_S)
    spec = JobSpec(
        layout=LAYOUTS[ranks],
        iterations=iterations,
        source=DEVICE_TIMES,
        faults=(SlowCompute(ranks=(SLOW_RANK,), factor=2.0, from_step=iterations // 2),),
        job=f"all{ranks}",
        start_unix_ns=START_UNIX_NS,
    ).with_longer_iterations(TIMES_LONGER)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = folder / "messages"
        with path.open("wb") as file:
            for due in sorted(_messages(spec), key=lambda one: one.due_ns):
                pickle.dump(tuple(due), file)
        return watched(spec, [path], folder)


def _messages(spec: JobSpec) -> Iterator[Due]:
    """As the agents of its hosts send them, each when all that it tells of has ended."""
    events = together(flushed_by_agents(with_vitals(simulate(spec).events())))
    for at_once, messages in messages_of(events):
        sent_ns = max(map(due_ns, at_once)) - spec.start_unix_ns
        for topic, key, value in messages:
            yield Due(sent_ns, topic.name, key, value)
