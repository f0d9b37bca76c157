"""What must not get past the codec, at little cost: each kind of poison is refused for what is wrong with it."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest
from events import call_batch
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from poison import Poison, every_poison

from pacehound.errors import MalformedMessage, RejectedMessage
from pacehound.model import codec, topics
from pacehound.model.arrow_body import is_compressed
from pacehound.model.topics import Topic
from tests.fakes.for_every import for_every

WHY = {
    "brackets in brackets": "RecursionError",
    "columns that unpack to more than they are": "compressed",
    "columns of nulls": "2147483647 rows",
    "more records than anybody sends": "100001 log records",
    "a world of millions of ranks": "world of 4294968 ranks",
    "a communicator without members": "has no members",
    "a name too long for a key": "5000 characters",
    "a time that is no 64-bit integer": "<= 9223372036854775807 - at `$.time_ns`",
    "calls that are no 64-bit integer": "<= 9223372036854775807 - at `$.ranks[0].last_launched`",
    "an attempt that nobody made": "attempt is 4611686018427387904",
    "a string of megabytes": "a string of 6000000 bytes",
    "a string of quotes and backslashes": "a string of 40000 bytes",
    "a column with a name of megabytes": "'algorithm' has 6000",
    "a rank beyond every world": "has rank 1048576",
    "a million empty resources": "in more than 1048576 parts",
    "a resource of a thousand attributes": "a resource of 1002 attributes",
    "a hundred thousand empty resources": "100001 resources",
    "a hundred thousand empty scopes": "100001 scopes",
}
"""What is said of small messages that would become large, before they do."""


@cache
def poisons(topic: Topic) -> dict[str, Poison]:
    return {poison.name: poison for poison in every_poison(topic)}


def is_refused(poison: Poison) -> None:
    with pytest.raises(RejectedMessage) as error:
        codec.decode(poison.payload)
    assert type(error.value).__name__ == poison.error
    assert WHY.get(poison.name, "") in str(error.value)


def test_every_poison_is_refused_for_its_reason() -> None:
    """Those that are the same bytes on each topic once: a message is read without its topic."""
    cases = {
        poison.payload: (f"{topic.name}: {name}", poison)
        for topic in (topics.CALLS, topics.HOSTS, topics.INCIDENTS)
        for name, poison in poisons(topic).items()
    }
    assert len(cases) > 50
    assert set(WHY) <= set(poisons(topics.CALLS))
    for_every(dict(cases.values()))(is_refused)()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("values", [[0] * 10_000, ["one name"] * 10_000], ids=["numbers", "names"])
def test_compressed_columns_and_dictionaries_are_seen_and_plain_ones_with_the_same_bytes_are_not(
    compression: str, values: list[object]
) -> None:
    def body(column: pa.Array, options: pa.ipc.IpcWriteOptions) -> bytes:
        rows = pa.record_batch({"n": column})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_batch(rows)
        found: bytes = sink.getvalue().to_pybytes()
        return found

    column = pa.array(values)
    column = column.dictionary_encode() if column.type == pa.string() else column
    packed, plain = pa.ipc.IpcWriteOptions(compression=compression), pa.ipc.IpcWriteOptions()
    assert is_compressed(body(column, packed))
    assert not is_compressed(body(column, plain))
    looks_packed = pa.array([b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"])
    assert not is_compressed(body(looks_packed, plain))
    assert not is_compressed(body(looks_packed.dictionary_encode(), plain))


@for_every({f"cut at {at}": at for at in range(0, 400, 7)})
def test_a_stream_that_is_cut_or_turned_over_is_no_columns_whatever_it_looks_like(cut_at: int) -> None:
    data = LogsData.FromString(codec.encode(call_batch()))
    record = data.resource_logs[0].scope_logs[0].log_records[0]
    body = record.body.bytes_value
    record.body.bytes_value = body[:cut_at] + bytes(255 - byte for byte in body[cut_at:]) + b"\x28\xb5\x2f\xfd"
    with pytest.raises(MalformedMessage):
        codec.decode(data.SerializeToString())


def test_records_together_are_no_larger_than_what_they_came_in_and_one_alone_has_what_is_read_of_its_resource() -> None:
    data = LogsData.FromString(codec.encode(call_batch()))
    data.resource_logs[0].resource.attributes.add(key="k8s.pod").value.string_value = 5_000 * "p"
    for _ in range(1_000):
        data.resource_logs[0].scope_logs[0].log_records.add(event_name="no event of ours")
    message = data.SerializeToString(deterministic=True)
    records = codec.records_of(message)
    assert codec.together(records) == message
    (read,) = codec.decode(codec.single(*records[0]))
    assert codec.encode(read) == codec.encode(call_batch())
    assert len(codec.single(*records[1])) < 200
