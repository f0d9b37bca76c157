"""Hypothesis strategies for every event of the pipeline."""

import dataclasses
import functools

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pacehound.model import events
from pacehound.model.believed import MAX_ATTEMPT
from pacehound.model.calls import DIRECTIONS, DTYPES, OPS, REDOPS, SOURCES, CallBatch, Sees
from pacehound.model.conclusions import Conclusions
from pacehound.model.digests import digests_of
from pacehound.model.events.hosts import MAX_QUIET_NS
from pacehound.model.evidence import KINDS, PARTS
from pacehound.model.flushes import Flush, Heartbeat, flushes_of
from pacehound.model.operations import LARGEST_NUMBER, OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.relayed import Relayed
from pacehound.model.rounds import Rounds
from pacehound.model.shards import Place
from streams.rounds.relay import Relay

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
NATURAL = st.integers(0, 2**62)
RANK = st.integers(0, events.MAX_WORLD_RANKS - 1)
ATTEMPT = st.integers(0, MAX_ATTEMPT)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=12)

_PLAIN = {int: INT64, float: FLOAT, str: TEXT}
for kind, strategy in _PLAIN.items():
    st.register_type_strategy(kind, strategy)
for part in PARTS:
    fields = {field.name: st.from_type(field.type) for field in msgspec.structs.fields(part)}
    st.register_type_strategy(part, st.builds(part, **fields))


def _columns_of(n, code_or_number):
    return st.lists(code_or_number, min_size=n, max_size=n)


@st.composite
def call_batches(draw):
    n = draw(st.integers(0, 8))
    columns = {"rank": draw(_columns_of(n, RANK)), "seq": draw(_columns_of(n, st.integers(0, 2**63 - 1)))}
    optional = {
        "op": st.integers(0, len(OPS) - 1),
        "dtype": st.integers(0, len(DTYPES) - 1),
        "redop": st.integers(0, len(REDOPS) - 1),
        "direction": st.integers(0, len(DIRECTIONS) - 1),
        "count": INT64,
        "peer": INT32,
        "algorithm": TEXT,
        "protocol": st.sampled_from(["", "ll", "ll128", "simple"]),
        "channels": st.integers(-(2**15), 2**15 - 1),
        "launch_ns": INT64,
        "start_ns": INT64,
        "end_ns": INT64,
        "send_count": INT64,
        "recv_count": INT64,
        "send_rate": st.floats(),
        "recv_rate": st.floats(),
        "stream": INT64,
        "group": INT64,
        "captured": st.booleans(),
    }
    for name, strategy in optional.items():
        if draw(st.booleans()):
            values = draw(_columns_of(n, strategy))
            columns[name] = np.array(values, dtype=str) if name in ("algorithm", "protocol") and not n else values
    return CallBatch.from_columns(
        columns,
        job=draw(TEXT),
        attempt=draw(ATTEMPT),
        host=draw(TEXT),
        communicator=draw(TEXT),
        source=draw(st.sampled_from(SOURCES)),
        ordinal=draw(NATURAL),
        sees=Sees(draw(st.integers(0, 7))),
        dropped=draw(NATURAL),
        within_ns=draw(NATURAL),
    )


@st.composite
def rounds(draw):
    ranks = tuple(draw(st.lists(RANK, min_size=1, max_size=4, unique=True)))
    n = draw(st.integers(0, 5))

    def grid():
        return np.array(draw(_columns_of(n * len(ranks), INT64)), np.int64).reshape(n, len(ranks))

    return Rounds(
        job=draw(TEXT),
        attempt=draw(ATTEMPT),
        communicator=draw(TEXT),
        source=draw(TEXT),
        sees=Sees(draw(st.integers(0, 7))),
        is_pair=draw(st.booleans()),
        ranks=ranks,
        seq=np.array(draw(_columns_of(n, INT64)), np.int64),
        op=np.array(draw(_columns_of(n, st.integers(0, len(OPS) - 1))), np.int8),
        size_bytes=np.array(draw(_columns_of(n, INT64)), np.int64),
        arrival_ns=grid(),
        start_ns=grid(),
        end_ns=grid(),
        send_rate=draw(st.none() | st.just(np.full((n, len(ranks)), 0.5))),
        recv_rate=draw(st.none() | st.just(np.full((n, len(ranks)), np.nan))),
        algorithm=draw(st.none() | st.just(np.ones(n, np.int8))),
    )


@st.composite
def digested_pairs(draw):
    communicators = tuple(draw(st.lists(TEXT, min_size=1, max_size=3, unique=True)))
    n = draw(st.integers(0, 5))

    def cells(of=INT64, kind=np.int64):
        return np.array(draw(_columns_of(2 * n, of)), kind).reshape(n, 2)

    return PairRounds(
        job=draw(TEXT),
        attempt=draw(ATTEMPT),
        source=digests_of(draw(TEXT)),
        sees=Sees(draw(st.integers(0, 7))),
        communicators=communicators,
        communicator=np.array(draw(_columns_of(n, st.integers(0, len(communicators) - 1))), np.int64),
        ranks=cells(RANK),
        seq=np.array(draw(_columns_of(n, INT64)), np.int64),
        op=np.array(draw(_columns_of(n, st.integers(0, len(OPS) - 1))), np.int8),
        size_bytes=np.array(draw(_columns_of(n, INT64)), np.int64),
        arrival_ns=cells(),
        start_ns=cells(),
        end_ns=cells(),
        send_rate=draw(st.none() | st.just(cells(st.floats(), np.float64))),
        recv_rate=draw(st.none() | st.just(cells(st.floats(), np.float64))),
        algorithm=draw(st.none() | st.just(np.ones(n, np.int8))),
    )


@st.composite
def operations(draw):
    natural = st.integers(0, 2**31 - 1)
    columns = {"optype": st.integers(0, len(OPTYPES) - 1), "start_ns": INT64, "end_ns": INT64}
    columns |= dict.fromkeys(("stage", "chunk", "seq"), st.integers(0, LARGEST_NUMBER - 1))
    columns["micro_batch"] = st.integers(-1, LARGEST_NUMBER - 1)
    n = draw(st.integers(1, 5))
    arrays = [pa.array(draw(_columns_of(n, columns.get(f.name, natural))), f.type) for f in OPERATION_SCHEMA]
    rows = pa.RecordBatch.from_arrays(arrays, schema=OPERATION_SCHEMA)
    return Operations(job=draw(TEXT), attempt=draw(ATTEMPT), host=draw(TEXT), rows=rows)


@st.composite
def topologies(draw):
    world_size = draw(st.integers(1, 64))
    members = draw(st.lists(st.integers(0, world_size - 1), min_size=1, unique=True))
    n_here = draw(st.integers(0, len(members)))
    return draw(
        st.builds(
            events.Topology,
            members=st.just(tuple(members)),
            host_ranks=st.just(tuple(members[:n_here])),
            world_size=st.just(world_size),
            timeout_s=st.none() | FLOAT,
        )
    )


@st.composite
def markers(draw):
    rows = draw(st.lists(st.tuples(RANK, st.sampled_from(events.MARKER_NAMES), NATURAL, INT64), max_size=5))
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return draw(
        st.builds(
            events.Markers,
            ranks=st.just(columns[0]),
            names=st.just(columns[1]),
            steps=st.just(columns[2]),
            times_ns=st.just(columns[3]),
        )
    )


def pieces_of(kind):
    """Pieces of evidence of one kind."""
    return st.builds(kind, **{field.name: st.from_type(field.type) for field in msgspec.structs.fields(kind)})


PIECES = st.one_of([pieces_of(kind) for kind in KINDS])
"""Pieces of evidence of every kind."""


@st.composite
def findings(draw):
    verdict = draw(st.sampled_from(["culprit", "suspected", "unknown"]))
    named = st.lists(RANK, min_size=1, max_size=3).map(tuple)
    culprits = st.just(()) if verdict == "unknown" else named
    return draw(
        st.builds(
            events.Finding,
            verdict=st.just(verdict),
            culprits=culprits,
            links=st.lists(st.tuples(RANK, RANK), max_size=2).map(tuple),
            magnitude=st.none() | FLOAT,
            relief=st.none() | st.builds(events.Instant),
            evidence=st.lists(PIECES, max_size=2).map(tuple),
        )
    )


@st.composite
def flushes(draw):
    """Of what simulated hosts cannot say, too: any columns, of some communicators."""
    job, host, attempt = draw(TEXT), draw(TEXT), draw(ATTEMPT)
    same = {"job": job, "host": host, "attempt": attempt}
    said = [
        *draw(st.lists(topologies(), max_size=2)),
        *draw(st.lists(call_batches(), max_size=3)),
        *draw(st.lists(markers(), max_size=1)),
        *draw(st.lists(_any_event_of(events.Progress), max_size=2)),
    ]
    ours = [
        batch_of_host(one, **same) if isinstance(one, CallBatch) else dataclasses.replace(one, **same) for one in said
    ]
    place = draw(st.builds(Place, st.integers(0, 7), st.booleans()))
    found = list(flushes_of(ours, {one.communicator: place for one in ours if hasattr(one, "communicator")}))
    # Of numbers that a store can hold: it takes what a host says at once whole, or not at all.
    number = st.integers(0, 1 << 53)
    nics = st.lists(st.builds(events.NicReading, errors=st.dictionaries(TEXT, number, max_size=2)), max_size=2)
    seen = draw(st.lists(st.builds(events.HostVitals, nics=nics.map(tuple), oom_kills=number), max_size=2))
    vitals = [dataclasses.replace(one, **same) for one in seen]
    flush = found[0] if found else Flush(**same, shard=place.shard, is_home=place.is_home)
    return dataclasses.replace(flush, vitals=tuple(vitals), heartbeat=draw(st.none() | heartbeats()))


@st.composite
def relayed(draw):
    """What simulated hosts have said, put together: any columns, of some communicators, of some hosts."""
    same = {"job": draw(TEXT), "attempt": draw(ATTEMPT)}
    said = draw(st.lists(topologies() | call_batches() | markers() | _any_event_of(events.Progress), max_size=6))
    hosts = draw(st.lists(TEXT, min_size=len(said), max_size=len(said)))
    topology = functools.partial(events.Topology, **same, is_world=False, world_size=2_048)
    relay = Relay()
    for one, host in zip(said, hosts, strict=True):
        whose = {**same, "host": host, "communicator": one.communicator}
        ours = (
            batch_of_host(one, **same, host=host) if isinstance(one, CallBatch) else dataclasses.replace(one, **whose)
        )
        known = topology(time_ns=5, host=host, communicator=one.communicator, name="", members=(0, 9), host_ranks=())
        relay.announce([known])
        for flush in flushes_of([ours], {one.communicator: Place(1, is_home=True)}):
            relay.take(dataclasses.replace(flush, heartbeat=draw(st.none() | heartbeats())))
    ticks = [Relayed(**same, shard=draw(st.integers(0, 7)), silent=tuple(hosts), tick_ns=draw(INT64))]
    return draw(st.sampled_from(relay.pass_on() or ticks))


def heartbeats():
    return st.builds(
        Heartbeat,
        time_ns=INT64,
        communicators=st.lists(TEXT, max_size=3).map(tuple),
        quiet_ns=st.integers(0, MAX_QUIET_NS),
        is_of_processes=st.booleans(),
    )


def batch_of_host(batch, **same):
    columns = {
        name: batch.column(name) for name in ("rank", "seq", "count", "peer", "launch_ns", "end_ns", "send_rate")
    }
    columns |= {name: batch.codes(name) for name in ("op", "dtype", "redop", "direction")}
    names = ("communicator", "source", "ordinal", "sees", "dropped", "within_ns")
    return CallBatch.from_columns(columns, **same, **{name: getattr(batch, name) for name in names})


@st.composite
def conclusions(draw):
    same = {"job": draw(TEXT), "attempt": draw(ATTEMPT)}
    watermark = st.builds(events.Watermark)
    others = map(_any_event_of, (events.Progress, events.HostVitals))
    collectives = rounds().map(lambda one: dataclasses.replace(one, is_pair=False))
    kinds = (collectives, digested_pairs(), watermark, topologies(), *others)
    said = draw(st.lists(st.one_of(kinds), max_size=5))
    return Conclusions(**same, said=tuple(dataclasses.replace(one, **same) for one in said))


st.register_type_strategy(CallBatch, call_batches())
st.register_type_strategy(Flush, flushes())
st.register_type_strategy(Relayed, relayed())
st.register_type_strategy(Heartbeat, heartbeats())
st.register_type_strategy(Conclusions, conclusions())
st.register_type_strategy(Rounds, rounds())
st.register_type_strategy(Operations, operations())
st.register_type_strategy(events.Topology, topologies())
st.register_type_strategy(events.Markers, markers())
st.register_type_strategy(events.Finding, findings())


def event_of(kind):
    """A strategy for one kind of event, with every field of it drawn."""
    return st.builds(_with_attempt, _any_event_of(kind), ATTEMPT)


def _with_attempt(event, attempt):
    return (
        event
        if isinstance(event, (CallBatch, Flush, Relayed, Conclusions))
        else dataclasses.replace(event, attempt=attempt)
    )


def _any_event_of(kind):
    with_columns = (CallBatch, Flush, Relayed, Conclusions, Operations, Rounds)
    if kind in (*with_columns, events.Topology, events.Markers, events.Finding):
        return st.from_type(kind)
    if kind is events.Progress:
        rate = st.none() | st.floats(0, 1e6)
        channels = st.builds(events.ChannelTransfers, send_rate=rate, recv_rate=rate, still_since_ns=INT64)
        open_call = st.builds(events.OpenCall, channels=st.lists(channels, max_size=2).map(tuple))
        open_calls = st.lists(open_call, max_size=2).map(tuple)
        rank = st.builds(events.RankProgress, rank=RANK, last_launched=INT64, last_completed=INT64, open=open_calls)
        return st.builds(
            kind,
            ranks=st.lists(rank, max_size=3).map(tuple),
            announced=st.lists(TEXT, max_size=2).map(tuple),
            dropped_total=NATURAL,
            closed=st.booleans(),
        )
    if kind is events.HostSample:
        process = st.builds(events.ProcessState, exit_code=st.none() | INT32, signal=st.none() | INT32, detail=TEXT)
        return st.builds(kind, processes=st.lists(process, max_size=3).map(tuple), closed_why=TEXT)
    if kind is events.HostVitals:
        nic = st.builds(events.NicReading, errors=st.dictionaries(TEXT, NATURAL, max_size=2))
        gpu = st.builds(events.GpuReading, power_w=FLOAT)
        return st.builds(
            kind,
            gpus=st.lists(gpu, max_size=2).map(tuple),
            nics=st.lists(nic, max_size=2).map(tuple),
            sockets=st.lists(st.builds(events.SocketReading), max_size=2).map(tuple),
            oom_kills=NATURAL,
            agent=st.none() | st.builds(events.AgentCost, cpu_cores=FLOAT, flush_s=FLOAT),
        )
    if kind is events.HostEvidence:
        stack = st.builds(events.RankStack, frames=st.lists(TEXT, max_size=2).map(tuple), doing=st.just("lock"))
        return st.builds(
            kind, stacks=st.lists(stack, max_size=2).map(tuple), kernel_log=st.lists(TEXT, max_size=2).map(tuple)
        )
    if kind is events.Incident:
        return st.builds(
            kind,
            closed_ns=st.none() | INT64,
            closed_why=st.none() | TEXT,
            findings=st.lists(findings(), max_size=2).map(tuple),
            cost=st.builds(events.Cost, excess_s=FLOAT, ranks=NATURAL, gpu_hours=FLOAT),
        )
    if kind is events.DeadLetter:
        return st.builds(kind, payload=st.binary(max_size=40), job=TEXT, attempt=ATTEMPT)
    return st.builds(kind)
