"""One example of every event, and call batches, for tests downstream of the streams."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pacehound.model.calls import DTYPE_CODE, OP_CODE, CallBatch, Sees
from pacehound.model.events import (
    AgentCost,
    Asked,
    Changepoint,
    Command,
    CommandResult,
    Cost,
    DeadLetter,
    Decision,
    Finding,
    FixPrice,
    GpuReading,
    GroupOutlier,
    HostEvidence,
    HostProcessors,
    HostSample,
    HostVitals,
    Incident,
    Instant,
    IterationSample,
    JudgedRanks,
    LearntRounds,
    Markers,
    NicReading,
    Notification,
    OpenCall,
    ProcessState,
    Progress,
    RankAnswer,
    RankProcessors,
    RankProgress,
    RankStack,
    SocketReading,
    Tick,
    Topology,
    TrainerAnswer,
    Watermark,
    WhatIfPrice,
)
from pacehound.model.evidence.computing import OnPath
from pacehound.model.operations import OPERATION_SCHEMA, Operations

SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS


def call_batch(ordinal=0, n_calls=20, host="node0", communicator="c0", job="j", dropped=0, start_ns=START_NS):
    """A batch whose rows follow those of the batch before it; the same arguments give the same bytes."""
    index = np.arange(n_calls) + ordinal * n_calls
    launch_ns = start_ns + index * 1_000_000
    columns = {
        "rank": index % 2,
        "seq": index // 2,
        "op": np.full(n_calls, OP_CODE["all_reduce"]),
        "count": np.full(n_calls, 1 << 20),
        "dtype": np.full(n_calls, DTYPE_CODE["bfloat16"]),
        "launch_ns": launch_ns,
        "start_ns": launch_ns + 1_000,
        "end_ns": launch_ns + 400_000,
    }
    return CallBatch.from_columns(
        columns,
        job=job,
        attempt=0,
        host=host,
        communicator=communicator,
        source="c10d",
        ordinal=ordinal,
        sees=Sees.LAUNCH | Sees.END,
        dropped=dropped,
    )


def finding(**changes):
    fields = {
        "id": "f0",
        "job": "j",
        "attempt": 0,
        "kind": "slow",
        "verdict": "culprit",
        "cause": "S1",
        "culprits": (2,),
        "victims": (0, 1, 3),
        "onset": Instant(step=200, time_ns=START_NS),
        "detected": Instant(step=212, time_ns=START_NS + 12 * SECOND_NS),
        "magnitude": 0.4,
        "lasting": True,
        "pages": True,
        "evidence": (OnPath(ranks=(2,), n_on_path=12, n_iterations=12),),
        "unseen": ("device time",),
    }
    return Finding(**(fields | changes))


def incident(**changes):
    fields = {
        "id": "i0",
        "version": 0,
        "job": "j",
        "attempt": 0,
        "time_ns": START_NS + 12 * SECOND_NS,
        "state": "open",
        "opened_ns": START_NS + 12 * SECOND_NS,
        "findings": (finding(),),
        "cost": Cost(excess_s=4.5, ranks=4, gpu_hours=0.005),
    }
    return Incident(**(fields | changes))


def operations(n=3, host="node0", job="j"):
    """The first operations of a rank."""
    columns = dict.fromkeys(OPERATION_SCHEMA.names, np.zeros(n, np.int64))
    columns |= {"start_ns": START_NS + np.arange(n), "end_ns": START_NS + np.arange(n) + 1, "seq": np.arange(n)}
    rows = pa.RecordBatch.from_arrays(
        [pa.array(columns[f.name], f.type) for f in OPERATION_SCHEMA], schema=OPERATION_SCHEMA
    )
    return Operations(job=job, attempt=0, host=host, rows=rows)


def topology(communicator="world", members=(0, 1), **changes):
    """A communicator that one host announces, with all its members."""
    fields = {"time_ns": 0, "host": "h", "name": communicator, "is_world": True, "host_ranks": members}
    fields |= {"world_size": len(members), **changes}
    return Topology(job="j", attempt=0, communicator=communicator, members=members, **fields)


def without_steps(events):
    """The same job as a source sees it that knows nothing of optimizers."""
    for event in events:
        if isinstance(event, Progress):
            yield replace(event, marks_iterations=False)
        elif not isinstance(event, Markers):
            yield event


def one_of_each():
    """An example of every event that is no CallBatch, no Rounds and no Operations."""
    same = {"job": "j", "attempt": 0, "time_ns": START_NS}
    open_call = OpenCall(seq=7, op="all_reduce", count=4, dtype="float32", launch_ns=START_NS)
    return [
        Topology(
            **same,
            host="node0",
            communicator="c0",
            name="default_pg",
            is_world=True,
            members=(0, 1, 2, 3),
            host_ranks=(2, 3),
            world_size=4,
            backend="gloo",
            timeout_s=1800.0,
        ),
        Progress(
            **same, host="node0", communicator="c0", ranks=(RankProgress(rank=2, last_launched=7, open=(open_call,)),)
        ),
        Markers(
            job="j",
            attempt=0,
            host="node0",
            communicator="c0",
            ranks=(2, 3),
            names=("optimizer_step", "optimizer_step"),
            steps=(5, 5),
            times_ns=(START_NS, START_NS + 10),
        ),
        WhatIfPrice(
            **same,
            first_step=3,
            last_step=24,
            n_steps=8,
            ranks=4,
            recorded_s=1.3,
            original_s=1.3,
            ideal_s=1.0,
            slowdown=1.3,
            waste=0.23,
            discrepancy=0.01,
            fixes=(FixPrice(what="worker", name="dp 0, stage 1", ranks=(2,), step_time_s=1.1, gain=0.15),),
        ),
        Tick(**same, stream="c0"),
        HostSample(
            **same,
            host="node0",
            processes=(
                ProcessState(rank=2, pid=11, state="running", since_ns=START_NS),
                ProcessState(rank=3, pid=12, state="exited", since_ns=START_NS, signal=9, detail="killed"),
            ),
        ),
        HostVitals(
            **same,
            host="node0",
            gpus=(GpuReading(uuid="GPU-1", index=0, ranks=(2,), throttle_reasons=("sw_power_cap",), xid=79),),
            nics=(NicReading(name="mlx5_0/1", state="active", errors={"symbol_error": 3}),),
            sockets=(SocketReading(rank=2, pid=11, local="10.0.0.1:4", remote="10.0.0.2:5", acked_bytes=9),),
            processors=HostProcessors(count=64, busy_ns=7_000_000, stolen_ns=20_000),
            rank_processors=(RankProcessors(rank=2, pid=11, ran_ns=900, waited_ns=30, throttled_ns=4),),
            oom_kills=1,
            agent=AgentCost(cpu_cores=0.05, resident_bytes=1 << 27, flush_s=1.0, told_by_others=7),
        ),
        HostEvidence(
            **same,
            host="node0",
            reason="rank 2 has been in all_reduce 7 for 30 s",
            stacks=(
                RankStack(rank=2, pid=11, taken_by="py-spy", frames=("wait (a.py:1)",), doing="in_call"),
                RankStack(rank=3, pid=12, taken_by="proc", doing="storage", libraries=("mpi",)),
            ),
            kernel_log=("+12 s: NVRM: Xid (PCI:0000:c3:00): 79",),
        ),
        Watermark(**same, stream="c0"),
        IterationSample(
            **same,
            communicator="c0",
            step=5,
            ranks=(0, 1),
            ends_ns=(START_NS, START_NS + 1),
            step_time_s=0.25,
            boundary="optimizer_step",
        ),
        Changepoint(
            job="j",
            attempt=0,
            series="iteration",
            at=Instant(step=200, time_ns=START_NS),
            detected=Instant(step=None, time_ns=START_NS + 1),
            before_s=0.25,
            after_s=0.35,
            probability=0.99,
        ),
        GroupOutlier(**same, communicator="c1", peers=4, transfer_s=0.2, median_s=0.1),
        LearntRounds(
            **same,
            op="all_reduce",
            size_bytes=1024,
            source="gloo",
            n_ranks=4,
            n_hosts=2,
            host_kind="2 processors",
            longest_s=0.01,
        ),
        finding(),
        finding(id="f1", kind="hang", verdict="unknown", cause=None, culprits=(), candidates=(0, 1), magnitude=None),
        finding(id="f2", verdict="suspected", cause="S2", culprits=(), links=((2, 3), (3, 0))),
        incident(),
        Decision(
            **same,
            incident="i0",
            incident_version=0,
            mode="observe",
            action="ignore",
            reason="cheap",
            price_s=0.0,
            loss_s=4.5,
        ),
        Notification(**same, incident="i0", state="open", idempotency_key="k"),
        Asked(**same, incident="i0", decision="d0", outcome="told", sink="slack"),
        Command(**same, order=b"{}", key="k", signature=b"s"),
        CommandResult(
            **same,
            host="h",
            number=1,
            order="o",
            what="prepare",
            ranks=(RankAnswer(rank=2, state="held", launched=7),),
            judged=(
                JudgedRanks(
                    ranks=(2,), hosts=("h",), verdict="culprit", measured="memory", ratio=1.5, reason="1.5 times"
                ),
            ),
        ),
        CommandResult(
            **same,
            host="h",
            number=2,
            order="o2",
            what="offer",
            ticket=7,
            trainers=(TrainerAnswer(rank=2, state="unable", step=5, per_s=0.5, why="no"),),
        ),
        DeadLetter(
            source_topic="calls",
            partition=3,
            offset=8,
            time_ns=START_NS,
            error="MalformedMessage",
            reason="no",
            payload=b"\xff\x00",
        ),
    ]
