"""Every kind of message that must not stop a partition, for tests of whatever consumes a topic.

Each topic gets poison made from an event that belongs there, so that only the one thing is wrong that its name says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from events import START_NS, call_batch, finding, incident, one_of_each, operations
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData

from pacehound.model import codec, topics
from pacehound.model.calls import CallBatch
from pacehound.model.operations import Operations
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic

NOISE_BYTES = 5_000_000


@dataclass(frozen=True)
class Poison:
    """One message; `value` is `None` for a Kafka record without one. `error` is how it is to be set aside."""

    name: str
    value: bytes | None
    error: str

    @property
    def payload(self) -> bytes:
        """What a dead letter of it holds."""
        return self.value or b""


def event_for(topic: Topic) -> Event:
    """A good event of a topic."""
    if topic is topics.CALLS:
        return call_batch()
    if topic is topics.OPS:
        return operations()
    if topic is topics.TOPOLOGY:
        return next(event for event in one_of_each() if type(event).__name__ == "Topology")
    return next(event for event in one_of_each() if route(event)[0] is topic)


def every_poison(topic: Topic, seed: int = 0) -> list[Poison]:
    """Every kind of poison for a topic; the same seed gives the same bytes."""
    return list(_poisons(topic, random.Random(seed)))


def _poisons(topic: Topic, random: random.Random) -> Iterator[Poison]:
    good = codec.encode(event_for(topic))
    noise = b"\xff" + random.randbytes(199)
    yield Poison("no protobuf", noise, "MalformedMessage")
    yield Poison("text", b"GET / HTTP/1.1\r\n\r\n", "MalformedMessage")
    yield Poison("cut short", good[:-7], "MalformedMessage")
    yield Poison("protobuf without records", _without_records(good), "MalformedMessage")
    yield Poison("unknown event name", _changed(good, event_name="pacehound.nonsense"), "UnknownSchema")
    yield Poison("no event name", _changed(good, event_name=""), "UnknownSchema")
    yield Poison("schema version of the future", _schema(good, 99), "UnknownSchema")
    yield Poison("no schema version", _schema(good, None), "UnknownSchema")
    yield Poison("broken Arrow body", _broken_arrow(), "MalformedMessage")
    yield Poison("Arrow stream of other columns", _other_columns(), "MalformedMessage")
    yield Poison("JSON that does not fit", _changed(_json_of(topic), body=b'{"job": 7}'), "MalformedMessage")
    yield Poison("no JSON", _changed(_json_of(topic), body=b"\x00\xfe{"), "MalformedMessage")
    yield Poison("no body", _changed(_json_of(topic), body=b""), "MalformedMessage")
    yield from _contradictions(topic)
    brackets = b'{"x":' + 100_000 * b"["
    yield Poison("brackets in brackets", _changed(_json_of(topic), body=brackets), "MalformedMessage")
    yield from _amplifiers()
    yield Poison("empty value", b"", "MalformedMessage")
    yield Poison("null value", None, "MalformedMessage")
    yield Poison("5 MB of noise", b"\xff" + random.randbytes(NOISE_BYTES), "MalformedMessage")


def _contradictions(topic: Topic) -> Iterator[Poison]:
    batch = codec.encode(call_batch())
    yield Poison("batch that miscounts itself", _integer(batch, "pacehound.count", 7), "InvalidEvent")
    unknown = finding(verdict="suspected")
    lie = codec.encode(incident(findings=(unknown,)))
    if topic is topics.FINDINGS:
        lie = codec.encode(unknown)
    yield Poison(
        "finding that names a culprit and knows nobody", lie.replace(b'"suspected"', b'"unknown"  '), "InvalidEvent"
    )


@cache
def _amplifiers() -> tuple[Poison, ...]:
    """Small messages that would become a large trouble, the same for each topic; megabytes, so they are made once."""
    return tuple(_large_troubles())


def _large_troubles() -> Iterator[Poison]:
    """Of memory, of dead letters, of keys."""
    yield Poison("columns that unpack to more than they are", _packed_columns(), "MalformedMessage")
    yield Poison("columns of nulls", _columns_of_nulls(), "MalformedMessage")
    yield Poison("more records than anybody sends", _many_records(), "MalformedMessage")
    told = {type(event).__name__: codec.encode(event) for event in one_of_each()}
    lone = _body_changed(_body_changed(told["Topology"], b"[0,1,2,3]", b"[4294967]"), b"[2,3]", b"[]")
    huge = _body_changed(lone, b'"world_size":4', b'"world_size":4294968')
    yield Poison("a world of millions of ranks", huge, "InvalidEvent")
    nobody = _body_changed(told["Topology"], b"[0,1,2,3]", b"[]")
    yield Poison("a communicator without members", _body_changed(nobody, b"[2,3]", b"[]"), "InvalidEvent")
    long_name = _body_changed(told["Tick"], b'"job":"j"', b'"job":"' + 5_000 * b"j" + b'"')
    yield Poison("a name too long for a key", long_name, "InvalidEvent")
    restarted = _body_changed(told["Tick"], b'"attempt":0', b'"attempt":4611686018427387904')
    yield Poison("an attempt that nobody made", restarted, "InvalidEvent")
    endless = _body_changed(told["Topology"], b'"default_pg"', b'"' + 6_000_000 * b"n" + b'"')
    yield Poison("a string of megabytes", endless, "InvalidEvent")
    quotes = _body_changed(told["Topology"], b'"default_pg"', b'"' + 10_000 * b'\\"\\\\' + b'"')
    yield Poison("a string of quotes and backslashes", quotes, "InvalidEvent")
    yield Poison("a column with a name of megabytes", codec.encode(_batch(algorithm=["a" * 6_000_000])), "InvalidEvent")
    yield Poison("a rank beyond every world", codec.encode(_batch(rank=[1 << 20])), "InvalidEvent")
    yield Poison("a million empty resources", 1_100_000 * b"\x0a\x00", "MalformedMessage")
    yield Poison("a resource of a thousand attributes", _with_attributes(told["Tick"], 1_000), "MalformedMessage")
    yield Poison("a hundred thousand empty resources", 100_001 * b"\x0a\x00", "MalformedMessage")
    yield Poison("a hundred thousand empty scopes", _in_resource(100_001 * b"\x12\x00"), "MalformedMessage")
    late = _body_changed(told["Tick"], f'"time_ns":{START_NS}'.encode(), b'"time_ns":' + 30 * b"9")
    yield Poison("a time that is no 64-bit integer", late, "MalformedMessage")
    far = _body_changed(told["Progress"], b'"last_launched":', b'"last_launched":' + 21 * b"9")
    yield Poison("calls that are no 64-bit integer", far, "MalformedMessage")


def _read(message: bytes) -> tuple[LogsData, LogRecord]:
    data = LogsData.FromString(message)
    return data, data.resource_logs[0].scope_logs[0].log_records[0]


def _written(data: LogsData) -> bytes:
    return bytes(data.SerializeToString(deterministic=True))


def _changed(message: bytes, event_name: str | None = None, body: bytes | None = None) -> bytes:
    data, record = _read(message)
    if event_name is not None:
        record.event_name = event_name
    if body is not None:
        record.body.bytes_value = body
    return _written(data)


def _without_records(message: bytes) -> bytes:
    data, _ = _read(message)
    del data.resource_logs[0].scope_logs[0].log_records[:]
    return _written(data)


def _integer(message: bytes, name: str, value: int) -> bytes:
    data, record = _read(message)
    for attribute in record.attributes:
        if attribute.key == name:
            attribute.value.int_value = value
    return _written(data)


def _schema(message: bytes, version: int | None) -> bytes:
    if version is not None:
        return _integer(message, "pacehound.schema", version)
    data, record = _read(message)
    kept = [attribute for attribute in record.attributes if attribute.key != "pacehound.schema"]
    del record.attributes[:]
    record.attributes.extend(kept)
    return _written(data)


def _body_changed(message: bytes, old: bytes, new: bytes) -> bytes:
    body = _read(message)[1].body.bytes_value
    assert old in body
    return _changed(message, body=body.replace(old, new))


def _batch(**columns: object) -> CallBatch:
    """A batch of one call, with these columns."""
    given = {"rank": [0], "seq": [0], **columns}
    return CallBatch.from_columns(given, job="j", attempt=0, host="h", communicator="c", source="c10d")


def _in_resource(content: bytes) -> bytes:
    n_bytes, length = len(content), bytearray()
    while n_bytes >= 0x80:
        length.append(n_bytes & 0x7F | 0x80)
        n_bytes >>= 7
    return bytes([0x0A, *length, n_bytes]) + content


def _with_attributes(message: bytes, n: int) -> bytes:
    data, _ = _read(message)
    for _ in range(n):
        data.resource_logs[0].resource.attributes.add()
    return _written(data)


@cache
def _many_records() -> bytes:
    data = LogsData()
    data.resource_logs.add().scope_logs.add().log_records.extend(LogRecord() for _ in range(codec.MAX_RECORDS + 1))
    return _written(data)


@cache
def _packed_columns() -> bytes:
    rows = call_batch(n_calls=10_000).rows
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(rows)
    return _changed(_integer(codec.encode(call_batch()), "pacehound.count", 10_000), body=sink.getvalue().to_pybytes())


@cache
def _columns_of_nulls() -> bytes:
    names = call_batch().rows.schema.names
    rows = pa.RecordBatch.from_arrays([pa.nulls((1 << 31) - 1)] * len(names), names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return _changed(codec.encode(call_batch()), body=sink.getvalue().to_pybytes())


def _broken_arrow() -> bytes:
    data, record = _read(codec.encode(call_batch()))
    record.body.bytes_value = record.body.bytes_value[: len(record.body.bytes_value) // 2]
    return _written(data)


def _other_columns() -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.record_batch([pa.nulls(1, pa.string())], names=["colour"])  # of a list, pandas would be loaded to see it
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return _changed(codec.encode(call_batch()), body=sink.getvalue().to_pybytes())


def _json_of(topic: Topic) -> bytes:
    """A good message of the topic whose body is JSON."""
    event = event_for(topic)
    if isinstance(event, CallBatch | Operations):
        event = next(one for one in one_of_each() if type(one).__name__ == "Progress")
    return codec.encode(event)
