"""Flushes: what they hold, and what is refused of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from pacehound.errors import InvalidEvent, RejectedMessage
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostSample, Progress, RankProgress
from pacehound.model.events.hosts import MAX_QUIET_NS
from pacehound.model.flushes import MAX_FLUSH_ROWS, Flush, Heartbeat, flushes_of
from pacehound.model.representative import RepresentedRank
from pacehound.model.shards import RANKS_PER_SHARD, Place, shard_of
from tests.fakes.events import call_batch


def flush_of(*batches: CallBatch) -> Flush:
    (flush,) = flushes_of(batches, {batch.communicator: Place(0) for batch in batches})
    return flush


def test_a_flush_holds_what_its_batches_do() -> None:
    batches = [call_batch(communicator=name, dropped=n) for n, name in enumerate(("a", "b", "c"))]
    (read,) = codec.decode(codec.encode(flush_of(*batches)))
    assert isinstance(read, Flush)
    assert [codec.encode(one) for one in read.events() if isinstance(one, CallBatch)] == list(
        map(codec.encode, batches)
    )
    assert len(codec.encode(read)) < sum(len(codec.encode(batch)) for batch in batches) / 2


def test_rows_of_one_rank_that_stands_for_others_are_those_of_all_of_them() -> None:
    both = (RepresentedRank(0), RepresentedRank(1, 5, 6, 7))
    stands_for = CallBatch.from_columns(
        {"rank": [0, 0], "seq": [1, 2], "launch_ns": [100, 200], "start_ns": [110, 0], "end_ns": [120, 220]},
        job="j",
        attempt=0,
        host="node0",
        communicator="a",
        source="c10d",
        within_ns=9,
        represented=both,
    )
    (read,) = codec.decode(codec.encode(flush_of(stands_for, call_batch(communicator="b"))))
    assert isinstance(read, Flush)
    first, second = (one for one in read.events() if isinstance(one, CallBatch))
    wanted = stands_for.whole()
    assert str(first.rows.to_pylist()) == str(wanted.rows.to_pylist())
    assert first.within_ns == 9
    assert str(second.rows.to_pylist()) == str(call_batch(communicator="b").rows.to_pylist())


def test_no_flush_is_larger_than_a_message_may_be() -> None:
    batches = [call_batch(ordinal=n, n_calls=1_450) for n in range(12)]
    found = list(flushes_of(batches, {"c0": Place(0)}))
    assert max(map(len, found)) <= MAX_FLUSH_ROWS
    assert [part.ordinal for flush in found for part in flush.parts] == list(range(12))
    assert max(len(codec.encode(flush)) for flush in found) < 512 * 1024


def changed(change: Callable[[LogsData], None]) -> bytes:
    data = LogsData.FromString(codec.encode(flush_of(call_batch())))
    change(data)
    return bytes(data.SerializeToString())


def head(data: LogsData) -> bytes:
    return next(one for one in _record(data).attributes if one.key == "pacehound.said").value.bytes_value


def _record(data: LogsData):  # type: ignore[no-untyped-def]
    return data.resource_logs[0].scope_logs[0].log_records[0]


def with_part(**fields: object) -> bytes:
    def change(data: LogsData) -> None:
        said = msgspec.json.decode(head(data))
        said["parts"][0] |= fields
        next(o for o in _record(data).attributes if o.key == "pacehound.said").value.bytes_value = msgspec.json.encode(
            said
        )

    return changed(change)


def with_heartbeat(time_ns: int, *communicators: str) -> bytes:
    return codec.encode(
        replace(flush_of(call_batch()), heartbeat=Heartbeat(time_ns=time_ns, communicators=communicators))
    )


MANY = [{"rank": rank} for rank in range(100_000)]


@pytest.mark.parametrize(
    "message",
    [
        with_part(n_rows=19),
        with_part(n_rows=-20),
        with_part(dropped=-1),
        with_part(within_ns=-1),
        with_part(sees=64),
        with_part(communicator="c" * 2_000),
        with_part(communicator="c" * 100_000),
        with_part(represented=MANY),
        with_part(represented=[{"rank": 7}]),
        with_part(represented=[{"rank": 0}, {"rank": 0}]),
        changed(lambda data: setattr(_record(data).body, "bytes_value", b"no Arrow")),
        changed(lambda data: setattr(_record(data).body, "bytes_value", b"")),
        changed(lambda data: _record(data).attributes.pop()),
        codec.encode(replace(flush_of(call_batch()), shard=-1)),
        with_heartbeat(1 << 63, "c"),
        with_heartbeat(-(1 << 63) - 1, "c"),
        with_heartbeat(5, "c" * 2_000),
    ],
)
def test_what_cannot_be_is_refused(message: bytes) -> None:
    with pytest.raises(RejectedMessage):
        codec.decode(message)


@pytest.mark.parametrize(("name", "value"), [("rank", -1), ("rank", 1 << 20), ("seq", -1)])
def test_rows_that_cannot_be_are_refused(name: str, value: int) -> None:
    flush = flush_of(call_batch())
    column = flush.columns[name].copy()
    column[3] = value
    with pytest.raises(RejectedMessage):
        codec.decode(codec.encode(replace(flush, columns={**flush.columns, name: column})))


def test_a_code_of_a_newer_agent_stands_for_what_is_not_known() -> None:
    flush = flush_of(call_batch())
    op = np.full(len(flush), 100, np.int8)
    (read,) = codec.decode(codec.encode(replace(flush, columns={**flush.columns, "op": op})))
    assert isinstance(read, Flush)
    assert not read.columns["op"].any()


def test_it_speaks_of_one_host_of_one_attempt() -> None:
    promise = Progress(job="j", attempt=1, time_ns=5, host="node0", communicator="a", ranks=(RankProgress(rank=0),))
    lying = codec.encode(next(flushes_of([promise], {"a": Place(0)}))).replace(b'"attempt":1', b'"attempt":0')
    with pytest.raises(RejectedMessage):
        codec.decode(lying)


def test_all_hosts_find_the_same_shard_and_small_jobs_have_one() -> None:
    assert {shard_of(str(name), (name,), RANKS_PER_SHARD) for name in range(1_000)} == {0}
    world = 16 * RANKS_PER_SHARD
    found = {shard_of(str(lowest), range(lowest, world, 4_096), world) for lowest in range(4_096)}
    assert found == set(range(16))
    of_a_host = {shard_of(str(lowest), (lowest, lowest + 8), world) for lowest in range(64, 72)}
    assert len(of_a_host) == 1
    assert shard_of("a", (-1, 5), world) == shard_of("a", (3, -1), world) == shard_of("a", (), world)


@pytest.mark.parametrize("quiet_ns", [-1, MAX_QUIET_NS + 1, 1 << 70])
def test_nobody_may_be_quiet_without_end(quiet_ns: int) -> None:
    with pytest.raises(InvalidEvent, match="may be quiet"):
        Heartbeat(time_ns=5, communicators=("c",), quiet_ns=quiet_ns)
    with pytest.raises(InvalidEvent, match="may be quiet"):
        HostSample(job="j", attempt=0, time_ns=5, host="h", processes=(), quiet_ns=quiet_ns)
