"""What an agent has before it says anything of calls: ring records and communicators, made of simulated events."""

from __future__ import annotations

import numpy as np

from collector.calls.communicators import BACKENDS, Communicator
from collector.calls.rings import CALL, Records
from pacehound.model.calls import SOURCES, CallBatch
from pacehound.model.codes import ALGORITHMS
from pacehound.model.events import Topology


def records_of(batch: CallBatch) -> Records:
    """The ring records from which an agent would have made it."""
    records = np.zeros(len(batch), CALL)
    for name in ("rank", "seq", "count", "peer", "channels", "launch_ns", "start_ns", "end_ns"):
        records[name] = batch.integers(name)
    for name in ("send_count", "recv_count"):
        records[name] = -1  # where transfers are counted nothing is left out
    for name in ("op", "dtype", "redop", "direction"):
        records[name] = batch.codes(name)
    records["source"] = SOURCES.index("c10d")
    rates = [batch.column(name) for name in ("send_rate", "recv_rate")]
    if any(np.isfinite(rate).any() for rate in rates):  # of which the profiler alone tells
        records["source"] = SOURCES.index("profiler")
        records["send_rate"], records["recv_rate"] = rates
        records["algorithm"] = [ALGORITHMS.index(str(name)) for name in batch.rows.column("algorithm").to_pylist()]
    return records


def communicator_of(topology: Topology) -> Communicator:
    """As an agent knows it."""
    return Communicator(
        handle=bytes.fromhex(topology.communicator),
        attempt=topology.attempt,
        name=topology.name,
        is_world=topology.is_world,
        members=topology.members,
        world_size=topology.world_size,
        generation=0,
        backend=BACKENDS.index("gloo"),
        timeout_ms=0,
        created_ns=topology.time_ns,
        host_ranks=list(topology.host_ranks),
    )
