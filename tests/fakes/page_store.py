"""A history for the page: a slow job with all that can be known of it, a hung one, a clean one; names are hostile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.calls import DTYPE_CODE, OP_CODE, CallBatch, Sees
from pacehound.model.codec import encode
from pacehound.model.events import (
    Changepoint,
    Cost,
    Decision,
    Finding,
    FixPrice,
    HostEvidence,
    HostSample,
    Incident,
    Instant,
    IterationSample,
    Notification,
    ProcessState,
    RankStack,
    Topology,
    WhatIfPrice,
)
from pacehound.model.evidence.computing import OnPath, OwnTimeGrew
from pacehound.model.evidence.machines import Stack
from pacehound.model.evidence.transfers import EdgeRates
from pacehound.model.evidence.waiting import Call, Waiting
from pacehound.model.operations import OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.model.routing import Event, route
from storage.client import Store
from storage.read import ask
from tests.fakes.events import SECOND_NS, START_NS
from tests.fakes.stored import write

SLOW, HUNG, CLEAN = "<img src=x onerror=alert(1)>", "pretrain\u202e70b", "clean & tidy"
STACK = "<script>alert('stack')</script> (train.py:12)"
STEPS, SLOW_FROM, SLOW_UNTIL = 400, 200, 300
RANKS, PER_HOST = 16, 8
CULPRIT = 5
PRICED_STEPS = range(200, 301, 14)
WORLD = "c/0 & <b>"
"""A communicator's name with what an address must quote."""


class Stored:
    """What the page asks: an open store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        return ask(self._store, name, **parameters)


def fill(store: Store, now_ns: int = START_NS) -> None:
    """Write it; `now_ns` is when the slow job was last heard of, which still runs."""
    start_ns = now_ns - STEPS * SECOND_NS // 10
    events = [*_slow(start_ns), *_hung(start_ns), *_clean(start_ns)]
    messages = [
        Message(topic=route(event)[0].name, key=route(event)[1], partition=0, offset=offset, value=encode(event))
        for offset, event in enumerate(events)
    ]
    assert write(store, messages, ManualClock(now_ns)).dead_letters == ()


def waits(store: Store, now_ns: int) -> Decision:
    """A restart of the slow job that waits for somebody's yes, for an hour."""
    one = Decision(
        job=SLOW, attempt=0, time_ns=now_ns, incident="slow-incident", incident_version=1, mode="approve", number=1,
        action="checkpoint_restart", reason="the job stops, and starts again without h1 (against rank 5: computation)",
        price_s=1_200.0, loss_s=1_900.0, aimed_at=(CULPRIT,), promised_gain=0.33, until_ns=now_ns + 3_600 * SECOND_NS,
        limit="somebody has to say yes", alternatives=("adjust_microbatches at 5 s", "adjust_topology at 60 s"),
    )  # fmt: skip
    decided(store, one)
    return one


def decided(store: Store, one: Decision) -> None:
    """One more."""
    topic, key = route(one)
    message = Message(topic=topic.name, key=key, partition=0, offset=one.number, value=encode(one))
    assert write(store, [message], ManualClock(one.time_ns)).dead_letters == ()


def end_ns(start_ns: int, step: int) -> int:
    """When a step of the slow job ended: 0.1 s each, 0.15 s while it is slow."""
    slow = min(max(step + 1 - SLOW_FROM, 0), SLOW_UNTIL - SLOW_FROM)
    return start_ns + (step + 1) * SECOND_NS // 10 + slow * SECOND_NS // 20


def _topology(job: str, start_ns: int, communicator: str, members: tuple[int, ...], backend: str) -> list[Event]:
    hosts = sorted({rank // PER_HOST for rank in members})
    return [
        Topology(
            job=job,
            attempt=0,
            time_ns=start_ns,
            host=f"node{host:02}",
            communicator=communicator,
            name=f"group {communicator}",
            is_world=len(members) == RANKS,
            members=members,
            host_ranks=tuple(rank for rank in members if rank // PER_HOST == host),
            world_size=RANKS,
            backend=backend,
        )
        for host in hosts
    ]


def _steps(job: str, start_ns: int, n: int, is_slow: bool) -> list[Event]:
    ends = [end_ns(start_ns, step) if is_slow else start_ns + (step + 1) * SECOND_NS // 10 for step in range(n)]
    return [
        IterationSample(
            job=job,
            attempt=0,
            communicator=WORLD,
            step=step,
            ranks=(0,),
            ends_ns=(ends[step],),
            step_time_s=0.0 if step == 0 else (ends[step] - ends[step - 1]) / SECOND_NS,
            boundary="optimizer_step",
            planned="checkpoint" if step == 100 else "",
            time_ns=ends[step],
        )
        for step in range(n)
    ]


def _calls(start_ns: int) -> list[Event]:
    """An all-reduce at the end of each step around the onset: everybody waits in it for the culprit."""
    rounds = np.arange(SLOW_FROM - 40, SLOW_FROM + 60)
    ends = np.array([end_ns(start_ns, int(step)) for step in rounds])
    batches: list[Event] = []
    for host in range(RANKS // PER_HOST):
        ranks = np.arange(host * PER_HOST, (host + 1) * PER_HOST)
        rank, seq = np.tile(ranks, len(rounds)), np.repeat(rounds, PER_HOST)
        end = np.repeat(ends, PER_HOST)
        wait = np.where(np.repeat(rounds >= SLOW_FROM, PER_HOST), SECOND_NS * 6 // 100, SECOND_NS // 100)
        launch = end - np.where(rank == CULPRIT, SECOND_NS // 200, wait)
        columns = {
            "rank": rank,
            "seq": seq,
            "op": np.full(len(rank), OP_CODE["all_reduce"]),
            "count": np.full(len(rank), 1 << 20),
            "dtype": np.full(len(rank), DTYPE_CODE["bfloat16"]),
            "launch_ns": launch,
            "end_ns": end,
        }
        batches.append(
            CallBatch.from_columns(
                columns,
                job=SLOW,
                attempt=0,
                host=f"node{host:02}",
                communicator=WORLD,
                source="c10d",
                ordinal=0,
                sees=Sees.LAUNCH | Sees.END,
                dropped=0,
            )
        )
    return batches


def _incident(job: str, found: Finding, time_ns: int, **changes: object) -> Incident:
    fields: dict[str, object] = {
        "id": f"{found.id}-incident",
        "version": 0,
        "job": job,
        "attempt": 0,
        "time_ns": time_ns,
        "state": "open",
        "opened_ns": time_ns,
        "findings": (found,),
        "cost": Cost(excess_s=5.0, ranks=RANKS, gpu_hours=5.0 * RANKS / 3600),
    }
    return Incident(**(fields | changes))  # type: ignore[arg-type]


def _slow(start_ns: int) -> list[Event]:
    onset = Instant(step=SLOW_FROM, time_ns=end_ns(start_ns, SLOW_FROM))
    relief = Instant(step=SLOW_UNTIL, time_ns=end_ns(start_ns, SLOW_UNTIL))
    detected = Instant(step=SLOW_FROM + 9, time_ns=end_ns(start_ns, SLOW_FROM + 9))
    found = Finding(
        id="slow",
        job=SLOW,
        attempt=0,
        kind="slow",
        verdict="culprit",
        cause="S1",
        culprits=(CULPRIT,),
        victims=tuple(rank for rank in range(RANKS) if rank != CULPRIT),
        onset=onset,
        detected=detected,
        relief=relief,
        magnitude=0.5,
        lasting=True,
        pages=True,
        evidence=(
            OwnTimeGrew(
                ranks=(CULPRIT,),
                own_s=0.05,
                peers_s=0.0004,
                iteration_s=0.05,
                spread_s=0.0003,
                rank_s=tuple((rank, 0.05 if rank == CULPRIT else rank * 1e-4) for rank in range(RANKS)),
            ),
            OnPath(ranks=(CULPRIT,), n_on_path=9, n_iterations=9),
            Stack(
                rank=CULPRIT,
                doing="computing",
                taken_by="py-spy",
                frames=(STACK, "main (train.py:40)"),
                shown_as="named",
            ),
        ),
        unseen=("device times",),
    )
    incident = _incident(SLOW, found, detected.time_ns)
    relieved = _incident(SLOW, found, relief.time_ns, version=1, state="relieved", opened_ns=detected.time_ns)
    stack = RankStack(rank=CULPRIT, pid=11, taken_by="py-spy", frames=(STACK,), doing="in_call")
    return [
        *_topology(SLOW, start_ns, WORLD, tuple(range(RANKS)), "gloo"),
        *_topology(SLOW, start_ns, "pair", (4, 5), "gloo"),
        *_steps(SLOW, start_ns, STEPS, is_slow=True),
        *_calls(start_ns),
        *_operations(start_ns),
        Changepoint(
            job=SLOW, attempt=0, series="iteration", at=onset, detected=detected, before_s=0.1, after_s=0.15,
            probability=0.99,
        ),
        HostEvidence(
            job=SLOW, attempt=0, time_ns=detected.time_ns, host="node00", reason="rank 5 is slow", stacks=(stack,),
            kernel_log=("+1 s: NVRM: Xid <79>",),
        ),
        found,
        incident,
        relieved,
        Decision(
            job=SLOW, attempt=0, time_ns=detected.time_ns, incident=incident.id, incident_version=0, mode="observe",
            action="ignore", reason="it may pass", price_s=0.0, loss_s=1.0,
        ),
        Notification(
            job=SLOW, attempt=0, time_ns=detected.time_ns, incident=incident.id, state="open", idempotency_key="k"
        ),
        WhatIfPrice(
            job=SLOW, attempt=0, time_ns=relief.time_ns, first_step=200, last_step=300, n_steps=8, ranks=RANKS,
            recorded_s=0.15, original_s=0.15, ideal_s=0.1, slowdown=1.5, waste=0.33, discrepancy=0.01,
            fixes=tuple(
                FixPrice(what="worker", name=f"dp {dp}, stage {stage}", ranks=(2 * dp + stage,), step_time_s=0.14,
                         gain=0.3 if 2 * dp + stage == CULPRIT else 0.01)
                for dp in range(RANKS // 2)
                for stage in range(2)
            ),
            patterns=("worker",),
        ),
    ]  # fmt: skip


def _operations(start_ns: int) -> list[Event]:
    """Of the steps of the window that is priced: the culprit computes half as long again in each."""
    made: list[Event] = []
    for host in range(RANKS // PER_HOST):
        rows: dict[str, list[int]] = {name: [] for name in OPERATION_SCHEMA.names}
        for rank in range(host * PER_HOST, (host + 1) * PER_HOST):
            for step in PRICED_STEPS:
                begun_ns = end_ns(start_ns, step - 1)
                takes_ns = SECOND_NS // 20 * (3 if rank == CULPRIT else 2) // 2
                told = {"rank": rank, "step": step, "optype": OPTYPES.index("forward-compute"), "stage": rank % 2}
                told |= {"start_ns": begun_ns, "end_ns": begun_ns + takes_ns, "pipeline": rank - rank % 2}
                for name, column in rows.items():
                    column.append(told.get(name, 0))
        arrays = [pa.array(rows[one.name], one.type) for one in OPERATION_SCHEMA]
        columns = pa.RecordBatch.from_arrays(arrays, schema=OPERATION_SCHEMA)
        made.append(Operations(job=SLOW, attempt=0, host=f"node{host:02d}", rows=columns))
    return made


def _hung(start_ns: int) -> list[Event]:
    onset = Instant(step=50, time_ns=start_ns + 5 * SECOND_NS)
    found = Finding(
        id="hang", job=HUNG, attempt=0, kind="hang", verdict="suspected", cause="H3", links=((7, 8),), onset=onset,
        detected=Instant(step=None, time_ns=onset.time_ns + 12 * SECOND_NS), lasting=True, pages=True,
        victims=tuple(range(RANKS)),
        evidence=(
            Waiting(
                ranks=tuple(range(RANKS)), call=Call(op="all_reduce", seq=51, communicator=WORLD), longest_s=12.0,
                waits=tuple((rank, 7, WORLD) for rank in range(RANKS) if rank != 7),
            ),
            EdgeRates(sender=7, receiver=8, op="all_reduce", send_share=0.1, receive_share=0.12, reference="earlier"),
        ),
    )  # fmt: skip
    return [
        *_topology(HUNG, start_ns, "world", tuple(range(RANKS)), "nccl"),
        *_steps(HUNG, start_ns, 50, is_slow=False),
        _incident(HUNG, found, onset.time_ns + 12 * SECOND_NS, cost=Cost()),
    ]


def _clean(start_ns: int) -> list[Event]:
    over = tuple(ProcessState(rank=rank, pid=rank + 1, state="exited", since_ns=start_ns) for rank in range(PER_HOST))
    return [
        *_topology(CLEAN, start_ns, "world", tuple(range(RANKS)), "gloo"),
        *_steps(CLEAN, start_ns, 60, is_slow=False),
        *(
            HostSample(job=CLEAN, attempt=0, time_ns=start_ns + 9 * SECOND_NS, host=f"node{host:02}", processes=over,
                       closed=True, closed_why="job ended")
            for host in range(RANKS // PER_HOST)
        ),
    ]  # fmt: skip
