"""Bytes <-> events, once, at the edge.

One message is an OTLP `LogsData` with one log record, so that any OpenTelemetry Collector can receive, route and
filter it. The resource carries job, attempt and host; attributes carry what routing needs; the body is an Arrow
IPC stream for columns (calls, rounds) and JSON for everything else. Several messages put end to end are one valid
message again (protobuf merges repeated fields), which is how an HTTP request carries many.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import astuple, fields
from functools import cache
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs

from pacehound.errors import InvalidEvent, MalformedMessage, RejectedMessage, UnknownSchema
from pacehound.model import events
from pacehound.model.arrow_body import is_compressed
from pacehound.model.calls import CALL_SCHEMA, CallBatch, Sees
from pacehound.model.columns import numbers, values_of
from pacehound.model.conclusions import Conclusions, ConclusionsHead, read_conclusions, rounds_table
from pacehound.model.conclusions import head_of as head_of_conclusions
from pacehound.model.evidence import read_json
from pacehound.model.finite import unfit_field
from pacehound.model.flushes import Flush, FlushHead, arrow_rows, head_of, read_flush
from pacehound.model.message_parts import MAX_PARTS, has_too_many_parts
from pacehound.model.operations import OPERATION_SCHEMA, Operations
from pacehound.model.representative import RepresentedRank
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event

SCHEMA_VERSION = 1
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

MAX_RECORDS = 100_000
"""More records in one message than anybody sends; each that cannot be read would be a dead letter of its own."""

MAX_RESOURCE_ATTRIBUTES = 1_000
"""A Collector adds tens."""

SMALL_RESOURCE_BYTES = 512
"""Our own have 100."""

MAX_NAME_CHARS = 1_024
"""Names become keys of messages, and of what is kept about them."""

MAX_TEXT_BYTES = 16 * 1024
"""Of one string in an event, or of the names in a column: frames, reasons and lines of a log are shorter."""

MAX_ATTEMPT = 1 << 30
"""A run that nobody has told which it is takes the time for it, in seconds (pacehound/runtime/head/attempts.py)."""

ROW_BYTES = 112
"""What the columns of a call take on the way."""

MIN_ROW_BYTES = 16
"""No row of calls or rounds takes less: columns that stand for more rows than they hold are not unpacked."""

_REPRESENTED, _WITHIN = "pacehound.alike", "pacehound.within_ns"

CALLS_EVENT = "pacehound.calls"
FLUSH_EVENT = "pacehound.flush"
ROUNDS_EVENT = "pacehound.rounds"
CONCLUSIONS_EVENT = "pacehound.conclusions"
OPERATIONS_EVENT = "pacehound.operations"
DEAD_LETTER_EVENT = "pacehound.dead_letter"
_ARROW_EVENTS = (CALLS_EVENT, FLUSH_EVENT, ROUNDS_EVENT, CONCLUSIONS_EVENT, OPERATIONS_EVENT)
_HEAD, SHARD = "pacehound.said", "pacehound.shard"
"""Of a flush: all but its columns, as JSON; and which part of its job it is of."""

_JSON_EVENTS: dict[str, type] = {
    "pacehound.topology": events.Topology,
    "pacehound.progress": events.Progress,
    "pacehound.markers": events.Markers,
    "pacehound.tick": events.Tick,
    "pacehound.host": events.HostSample,
    "pacehound.vitals": events.HostVitals,
    "pacehound.evidence": events.HostEvidence,
    "pacehound.mismatch": events.SignatureMismatch,
    "pacehound.history": events.JobHistory,
    "pacehound.watermark": events.Watermark,
    "pacehound.iteration": events.IterationSample,
    "pacehound.changepoint": events.Changepoint,
    "pacehound.group_outlier": events.GroupOutlier,
    "pacehound.learnt_rounds": events.LearntRounds,
    "pacehound.finding": events.Finding,
    "pacehound.what_if": events.WhatIfPrice,
    "pacehound.incident": events.Incident,
    "pacehound.decision": events.Decision,
    "pacehound.notification": events.Notification,
    "pacehound.asked": events.Asked,
    "pacehound.command": events.Command,
    "pacehound.command_result": events.CommandResult,
    DEAD_LETTER_EVENT: events.DeadLetter,
}
_NAMES = ("job", "host", "communicator", "stream", "source_topic", "source")
_RESOURCE_KEYS = ("pacehound.job", "pacehound.attempt", "host.name")
_NAME_OF = {kind: name for name, kind in _JSON_EVENTS.items()}

# What reading a hostile body can raise in the libraries below. Arrow reports most of a broken IPC stream as OSError.
_UNREADABLE = (
    msgspec.DecodeError,
    pa.ArrowException,
    OSError,
    MemoryError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    struct.error,
    RecursionError,  # brackets within brackets
)

# A body written by these settings is the same on every machine and Arrow version that reads it.
_IPC_OPTIONS = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)


def encode(*events: Event) -> bytes:
    """Events as one OTLP `LogsData` message, in order, of one source each resource once; the same give the same bytes.

    Raises
    ------
    ValueError
        A number of a JSON event is NaN or infinite: no reader would take it.

    Examples
    --------
    >>> from pacehound.model.events import Tick
    >>> tick = Tick(job="j", attempt=0, time_ns=5, stream="c")
    >>> decode(encode(tick, tick)) == [tick, tick]
    True

    """
    data = LogsData()
    last: tuple[str, int, str | None] | None = None
    for event in events:
        source = (event.job, event.attempt, getattr(event, "host", None))
        if source != last:
            last, resource_logs = source, data.resource_logs.add()
            for key, value in zip(_RESOURCE_KEYS, source, strict=True):
                if value is not None:
                    _set(resource_logs.resource.attributes, key, value)
            scope = resource_logs.scope_logs.add()
        _encode_record(event, scope.log_records.add())
    encoded: bytes = data.SerializeToString(deterministic=True)
    return encoded


def _encode_record(event: Event, record: LogRecord) -> None:
    _set(record.attributes, "pacehound.schema", SCHEMA_VERSION)
    if isinstance(event, CallBatch):
        _encode_calls(event, record)
    elif isinstance(event, Flush):
        _encode_flush(event, record)
    elif isinstance(event, Conclusions):
        _encode_conclusions(event, record)
    elif isinstance(event, Rounds):
        _encode_rounds(event, record)
    elif isinstance(event, Operations):
        record.event_name = OPERATIONS_EVENT
        record.time_unix_nano = max(event.time_ns, 0)
        record.body.bytes_value = _write_arrow(event.rows)
    else:
        if unfit := unfit_field(event):
            raise ValueError(f"{type(event).__name__} of job {event.job!r}: {unfit} is no finite number")
        record.event_name = _NAME_OF[type(event)]
        record.time_unix_nano = max(event.time_ns, 0)
        record.body.bytes_value = msgspec.json.encode(event)


def decode(message: bytes) -> list[Event]:
    """The events of a message, in order; calls have a row for every rank, however they were sent (representative.py).

    Raises
    ------
    MalformedMessage
        The bytes are no OTLP logs, or a body is not what its event name says.
    UnknownSchema
        The event name or the schema version is not known to this build.
    InvalidEvent
        An event contradicts itself.

    """
    events_read = []
    for resource_logs, record in records_of(message):
        events_read.append(decode_record(resource_logs, record))
    return events_read


def records_of(message: bytes) -> list[tuple[ResourceLogs, LogRecord]]:
    """The log records of a message with the resource of each, not yet decoded.

    A receiver that takes many records at once decodes them one by one, so that one bad record does not take the good
    ones with it.
    """
    if len(message) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"a message of {len(message)} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
    if has_too_many_parts(message, LogsData.DESCRIPTOR):
        raise MalformedMessage(f"a message of {len(message)} bytes in more than {MAX_PARTS} parts")
    try:
        data = LogsData.FromString(message)
    except DecodeError as error:
        raise MalformedMessage(f"not an OTLP logs message ({len(message)} bytes): {error}") from error
    if len(message) > 2 * MAX_RECORDS:  # in fewer bytes there are not so many
        check_count(len(data.resource_logs), "resources")
        check_count(sum(len(r.scope_logs) for r in data.resource_logs), "scopes")
        check_count(sum(len(scope.log_records) for r in data.resource_logs for scope in r.scope_logs), "log records")
    found = [(r, record) for r in data.resource_logs for scope in r.scope_logs for record in scope.log_records]
    if not found:
        raise MalformedMessage(f"an OTLP message of {len(message)} bytes without any log record")
    return found


def check_count(n: int, what: str) -> None:
    """No message has more resources, scopes or records than `MAX_RECORDS`, or it is refused (`MalformedMessage`)."""
    if n > MAX_RECORDS:
        raise MalformedMessage(f"a message of {n} {what}; at most {MAX_RECORDS} are taken")


def single(resource_logs: ResourceLogs, record: LogRecord) -> bytes:
    """One record as a message of its own; of a large resource, which others may share, with what is read of it."""
    data = LogsData()
    alone = data.resource_logs.add()
    if resource_logs.resource.ByteSize() <= SMALL_RESOURCE_BYTES:
        alone.resource.CopyFrom(resource_logs.resource)
    else:
        kept = [attribute for attribute in resource_logs.resource.attributes if attribute.key in _RESOURCE_KEYS]
        alone.resource.attributes.extend(kept)
    alone.scope_logs.add().log_records.add().CopyFrom(record)
    encoded: bytes = data.SerializeToString(deterministic=True)
    return encoded


def together(records: Sequence[tuple[ResourceLogs, LogRecord]]) -> bytes:
    """Records of one message as a message, those of one resource beneath it: no larger than what they came in."""
    data = LogsData()
    last: ResourceLogs | None = None
    for resource_logs, record in records:
        if resource_logs is not last:
            last, part = resource_logs, data.resource_logs.add()
            part.resource.CopyFrom(resource_logs.resource)
            scope = part.scope_logs.add()
        scope.log_records.add().CopyFrom(record)
    encoded: bytes = data.SerializeToString(deterministic=True)
    return encoded


def decode_record(resource_logs: ResourceLogs, record: LogRecord) -> Event:
    """One log record as an event; errors as in `decode`."""
    name = record.event_name
    if name not in _JSON_EVENTS and name not in _ARROW_EVENTS:
        raise UnknownSchema(f"event name {name!r} is not one of Pacehound's")
    if len(resource_logs.resource.attributes) > MAX_RESOURCE_ATTRIBUTES:  # they are looked through for each record
        n_attributes = len(resource_logs.resource.attributes)
        raise MalformedMessage(f"a resource of {n_attributes} attributes; at most {MAX_RESOURCE_ATTRIBUTES} are taken")
    attributes = {kv.key: kv.value for kv in record.attributes}
    version = attributes.get("pacehound.schema", AnyValue()).int_value
    if version != SCHEMA_VERSION:
        raise UnknownSchema(f"{name} has schema version {version}; this build reads version {SCHEMA_VERSION}")
    body = record.body.bytes_value
    try:
        if name in _JSON_EVENTS:
            if len(body) > MAX_TEXT_BYTES and name != DEAD_LETTER_EVENT:  # which holds bytes, as a string
                _check_texts(name, body)
            event: Any = read_json(body, _JSON_EVENTS[name])
            if not -(1 << 63) <= event.time_ns < 1 << 63:  # JSON has no largest number; what passes the event on has
                raise InvalidEvent(f"time_ns is {event.time_ns}, which is no 64-bit integer")
            return _believed(event)
        resource = {kv.key: kv.value for kv in resource_logs.resource.attributes}
        if name == FLUSH_EVENT:
            return _decode_flush(resource, attributes, body)
        if name == CONCLUSIONS_EVENT:
            return _believed(_decode_conclusions(resource, attributes, body))
        table = _read_arrow(body)
        if name == CALLS_EVENT:
            if len(body) > MAX_TEXT_BYTES + table.num_rows * ROW_BYTES:
                _check_words(table)
            return _believed(_decode_calls(resource, attributes, table))
        if name == OPERATIONS_EVENT:
            return _believed(_decode_operations(resource, table))
        return _believed(_decode_rounds(resource, attributes, table))
    except RejectedMessage:
        raise
    except msgspec.ValidationError as error:
        # An event's own __post_init__ raises inside msgspec, which wraps what it raised.
        if isinstance(error.__cause__, InvalidEvent):
            raise error.__cause__ from error
        raise MalformedMessage(f"{name}: {error}") from error
    except _UNREADABLE as error:
        raise MalformedMessage(f"{name}: {type(error).__name__}: {error}") from error


def _believed(event: Event) -> Event:
    """The event, if it claims nothing that cannot be.

    Raises
    ------
    InvalidEvent
        A name is too long for a key, or there was no such attempt.

    """
    kind: Any = type(event)
    for name in _names_of(kind):
        value = getattr(event, name)
        if len(value) > MAX_NAME_CHARS:
            raise InvalidEvent(f"the {name} has {len(value)} characters; at most {MAX_NAME_CHARS} are taken")
    if not 0 <= event.attempt <= MAX_ATTEMPT:
        raise InvalidEvent(f"attempt is {event.attempt}; it must be in 0..{MAX_ATTEMPT}")
    return event


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    fields_of_kind = {one.name for one in fields(kind)}
    return tuple(name for name in _NAMES if name in fields_of_kind)


def _check_texts(name: str, body: bytes) -> None:
    """No string of a JSON body is longer than anybody writes."""
    unescaped = body.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in body else body
    if not _has_stretch(unescaped):
        return
    longest = max(map(len, unescaped.split(b'"')[1::2]), default=0)
    if longest > MAX_TEXT_BYTES:
        raise InvalidEvent(f"{name} has a string of {longest} bytes; at most {MAX_TEXT_BYTES} are taken")


def _has_stretch(text: bytes) -> bool:
    """Somewhere there is no quote for longer than a string may be: looked for from quote to quote, as far as can be.

    Only then is it worth while to take the text to pieces.
    """
    at = -1
    while len(text) - at > MAX_TEXT_BYTES + 1:
        at = text.rfind(b'"', at + 1, at + MAX_TEXT_BYTES + 2)
        if at < 0:
            return True
    return False


def _encode_calls(batch: CallBatch, record: LogRecord) -> None:
    record.event_name = CALLS_EVENT
    seq = batch.integers("seq")
    ends = batch.integers("end_ns")
    launches = batch.integers("launch_ns")
    record.time_unix_nano = max(int(ends.max(initial=0)), int(launches.max(initial=0)), 0)
    for key, value in (
        ("pacehound.communicator", batch.communicator),
        ("pacehound.source", batch.source),
        ("pacehound.ordinal", batch.ordinal),
        ("pacehound.sees", batch.sees.value),
        ("pacehound.seq.first", int(seq.min()) if len(batch) else 0),
        ("pacehound.seq.last", int(seq.max()) if len(batch) else 0),
        ("pacehound.count", len(batch)),
        ("pacehound.dropped", batch.dropped),
    ):
        _set(record.attributes, key, value)
    if batch.within_ns:
        _set(record.attributes, _WITHIN, batch.within_ns)
    if batch.represented:
        _set(record.attributes, _REPRESENTED, msgspec.json.encode([astuple(one) for one in batch.represented]).decode())
    record.body.bytes_value = _write_arrow(batch.rows)


def _decode_calls(resource: dict[str, AnyValue], attributes: dict[str, AnyValue], rows: pa.RecordBatch) -> CallBatch:
    rows = _conform(rows)
    batch = CallBatch(
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        host=_text(resource, "host.name"),
        communicator=_text(attributes, "pacehound.communicator"),
        source=_text(attributes, "pacehound.source"),
        ordinal=_integer(attributes, "pacehound.ordinal"),
        sees=Sees(_integer(attributes, "pacehound.sees")),
        dropped=_integer(attributes, "pacehound.dropped"),
        within_ns=_integer(attributes, _WITHIN) if _WITHIN in attributes else 0,
        represented=_represented(attributes) if _REPRESENTED in attributes else (),
        rows=rows,
    )
    count = _integer(attributes, "pacehound.count")
    if count != len(batch):
        raise InvalidEvent(f"calls batch says it has {count} rows and has {len(batch)}")
    for name, constant in (("job", batch.job), ("communicator", batch.communicator), ("source", batch.source)):
        column = rows.column(name)
        if len(column.dictionary) == 1 and column.dictionary[0].as_py() == constant:
            continue
        used = set(column.dictionary.take(column.indices.unique()).to_pylist()) if len(batch) else set()
        if used - {constant}:
            raise InvalidEvent(f"calls batch of {name} {constant!r} has rows of {sorted(used - {constant})}")
    if len(batch) and (batch.integers("attempt") != batch.attempt).any():
        raise InvalidEvent(f"calls batch of attempt {batch.attempt} has rows of another attempt")
    if len(batch):
        ranks = batch.column("rank")
        if ranks.min() < 0 or batch.integers("seq").min() < 0:
            raise InvalidEvent("calls batch has a negative rank or sequence number")
        highest = max(int(ranks.max()), max((one.rank for one in batch.represented), default=0))
        if highest >= events.MAX_WORLD_RANKS:
            raise InvalidEvent(f"calls batch has rank {highest}; at most {events.MAX_WORLD_RANKS} can be watched")
    return batch.whole()


def _encode_flush(flush: Flush, record: LogRecord) -> None:
    record.event_name = FLUSH_EVENT
    record.time_unix_nano = max(flush.time_ns, 0)
    _set(record.attributes, SHARD, flush.shard)
    record.attributes.add(key=_HEAD).value.bytes_value = msgspec.json.encode(head_of(flush))
    record.body.bytes_value = _write_arrow(arrow_rows(flush)) if len(flush) else b""


def _decode_flush(resource: dict[str, AnyValue], attributes: dict[str, AnyValue], body: bytes) -> Flush:
    said = attributes.get(_HEAD, AnyValue()).bytes_value
    if len(said) > MAX_TEXT_BYTES:
        _check_texts(FLUSH_EVENT, said)
    flush = read_flush(
        read_json(said, FlushHead),
        _read_arrow(body) if body else None,
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        host=_text(resource, "host.name"),
        shard=_integer(attributes, SHARD),
    )
    _believed(flush)
    names = (("communicator", flush.communicators), ("source", [part.source for part in flush.parts]))
    for name, values in names:
        if (longest := max(map(len, values), default=0)) > MAX_NAME_CHARS:
            raise InvalidEvent(f"a {name} has {longest} characters; at most {MAX_NAME_CHARS} are taken")
    beat_ns = 0 if flush.heartbeat is None else flush.heartbeat.time_ns
    for time_ns in (flush.time_ns, beat_ns):
        if not -(1 << 63) <= time_ns < 1 << 63:
            raise InvalidEvent(f"time_ns is {time_ns}, which is no 64-bit integer")
    return flush


def _encode_conclusions(conclusions: Conclusions, record: LogRecord) -> None:
    record.event_name = CONCLUSIONS_EVENT
    record.time_unix_nano = max(conclusions.time_ns, 0)
    record.attributes.add(key=_HEAD).value.bytes_value = msgspec.json.encode(head_of_conclusions(conclusions))
    table = rounds_table(conclusions)
    record.body.bytes_value = b"" if table is None else _write_arrow(table)


def _decode_conclusions(resource: dict[str, AnyValue], attributes: dict[str, AnyValue], body: bytes) -> Conclusions:
    return read_conclusions(
        read_json(attributes.get(_HEAD, AnyValue()).bytes_value, ConclusionsHead),
        _read_arrow(body) if body else None,
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
    )


def _check_words(rows: pa.RecordBatch) -> None:
    """No column holds more in names than anybody writes; asked only where there are more bytes than rows need."""
    for spec in CALL_SCHEMA:
        if pa.types.is_dictionary(spec.type) and spec.name in rows.schema.names:
            column = rows.column(spec.name)
            names = column.dictionary if pa.types.is_dictionary(column.type) else column.unique()
            if names.nbytes > MAX_TEXT_BYTES:
                raise InvalidEvent(
                    f"call column {spec.name!r} has {names.nbytes} bytes of names; at most {MAX_TEXT_BYTES} are taken"
                )


def _represented(attributes: dict[str, AnyValue]) -> tuple[RepresentedRank, ...]:
    listed = msgspec.json.decode(_text(attributes, _REPRESENTED), type=list[tuple[int, int, int, int]])
    return tuple(RepresentedRank(*numbers) for numbers in listed)


def _decode_operations(resource: dict[str, AnyValue], rows: pa.RecordBatch) -> Operations:
    return Operations(
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        host=_text(resource, "host.name"),
        rows=_conform(rows, OPERATION_SCHEMA, "operation"),
    )


def _conform(rows: pa.RecordBatch, schema: pa.Schema = CALL_SCHEMA, what: str = "call") -> pa.RecordBatch:
    """Columns in the order of this version; unknown ones are ignored, nulls and missing ones refused."""
    if rows.schema.equals(schema) and not any(column.null_count for column in rows.columns):
        return rows
    names = set(rows.schema.names)
    missing = [spec.name for spec in schema if spec.name not in names]
    if missing:
        raise MalformedMessage(f"{what} columns {missing} are missing")
    arrays = []
    for spec in schema:
        array = rows.column(spec.name)
        if array.null_count:  # before the cast: a column of nulls takes no bytes, however long it is
            raise MalformedMessage(f"{what} column {spec.name!r} has {array.null_count} nulls")
        if array.type != spec.type:
            array = array.cast(spec.type)
        arrays.append(array)
    conformed = pa.RecordBatch.from_arrays(arrays, schema=schema)
    conformed.validate(full=True)  # dictionary indices out of range would read foreign memory later
    return conformed


_ROUND_RATES = ("send_rate", "recv_rate")


def _encode_rounds(rounds: Rounds, record: LogRecord) -> None:
    record.event_name = ROUNDS_EVENT
    record.time_unix_nano = max(rounds.time_ns, 0)
    _set(record.attributes, "pacehound.communicator", rounds.communicator)
    _set(record.attributes, "pacehound.source", rounds.source)
    _set(record.attributes, "pacehound.sees", rounds.sees.value)
    _set(record.attributes, "pacehound.pair", rounds.is_pair)
    ranks = record.attributes.add(key="pacehound.ranks").value.array_value
    for rank in rounds.ranks:
        ranks.values.add(int_value=rank)
    n_ranks = len(rounds.ranks)
    grid = [
        pa.FixedSizeListArray.from_arrays(numbers(np.ascontiguousarray(values).ravel(), pa.int64()), n_ranks)
        for values in (rounds.arrival_ns, rounds.start_ns, rounds.end_ns)
    ]
    kinds = {"seq": pa.int64(), "op": pa.int8(), "size_bytes": pa.int64()}
    columns = [numbers(getattr(rounds, name), kind) for name, kind in kinds.items()]
    names = [*kinds, "arrival_ns", "start_ns", "end_ns"]
    for name in _ROUND_RATES:  # few sources see them: no column where there is none
        rates = getattr(rounds, name)
        if rates is not None:
            flat = numbers(np.ascontiguousarray(rates).ravel(), pa.float64())
            grid.append(pa.FixedSizeListArray.from_arrays(flat, n_ranks))
            names.append(name)
    if rounds.algorithm is not None:
        grid.append(numbers(rounds.algorithm, pa.int8()))
        names.append("algorithm")
    record.body.bytes_value = _write_arrow(pa.RecordBatch.from_arrays([*columns, *grid], names=names))


def _decode_rounds(resource: dict[str, AnyValue], attributes: dict[str, AnyValue], rows: pa.RecordBatch) -> Rounds:
    ranks = tuple(v.int_value for v in attributes["pacehound.ranks"].array_value.values)

    def grid(name: str, kind: type[np.generic] = np.int64) -> Any:
        column = rows.column(name)
        if not pa.types.is_fixed_size_list(column.type) or not pa.types.is_primitive(column.type.value_type):
            raise MalformedMessage(f"rounds column {name!r} holds {column.type}, not as many numbers for each round")
        flat = values_of(column.flatten()).astype(kind, copy=False)
        return flat.reshape(rows.num_rows, len(ranks))

    def algorithm() -> Any:
        return values_of(rows.column("algorithm")).astype(np.int8, copy=False)

    return Rounds(
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        communicator=_text(attributes, "pacehound.communicator"),
        source=_text(attributes, "pacehound.source"),
        sees=Sees(_integer(attributes, "pacehound.sees")),
        is_pair=attributes["pacehound.pair"].bool_value,
        ranks=ranks,
        seq=values_of(rows.column("seq")).astype(np.int64, copy=False),
        op=values_of(rows.column("op")).astype(np.int8, copy=False),
        size_bytes=values_of(rows.column("size_bytes")).astype(np.int64, copy=False),
        arrival_ns=grid("arrival_ns"),
        start_ns=grid("start_ns"),
        end_ns=grid("end_ns"),
        send_rate=grid("send_rate", np.float64) if "send_rate" in rows.schema.names else None,
        recv_rate=grid("recv_rate", np.float64) if "recv_rate" in rows.schema.names else None,
        algorithm=algorithm() if "algorithm" in rows.schema.names else None,
    )


def _write_arrow(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_IPC_OPTIONS) as writer:
        writer.write_batch(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _read_arrow(body: bytes) -> pa.RecordBatch:
    if is_compressed(body):
        raise MalformedMessage("an Arrow body is compressed; send it plain, the bus compresses it")
    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
    if len(batches) != 1:
        raise MalformedMessage(f"an Arrow body holds {len(batches)} record batches, not one")
    batch: pa.RecordBatch = batches[0]
    if batch.num_rows * MIN_ROW_BYTES > len(body):
        raise MalformedMessage(f"an Arrow body of {len(body)} bytes says it has {batch.num_rows} rows")
    batch.validate(full=True)
    return batch


def _set(attributes: Any, key: str, value: str | int | bool) -> None:
    attribute: KeyValue = attributes.add(key=key)
    if isinstance(value, bool):
        attribute.value.bool_value = value
    elif isinstance(value, int):
        attribute.value.int_value = value
    else:
        attribute.value.string_value = value


def _text(attributes: dict[str, AnyValue], key: str) -> str:
    value = attributes.get(key)
    if value is None or value.WhichOneof("value") != "string_value":
        raise MalformedMessage(f"attribute {key!r} is missing or not a string")
    text: str = value.string_value
    return text


def _integer(attributes: dict[str, AnyValue], key: str) -> int:
    value = attributes.get(key)
    if value is None or value.WhichOneof("value") != "int_value":
        raise MalformedMessage(f"attribute {key!r} is missing or not an integer")
    number: int = value.int_value
    return number


_WITH_COLUMNS = {CallBatch, Conclusions, Flush, Operations, Rounds}
assert set(_JSON_EVENTS.values()) | _WITH_COLUMNS == set(get_args(Event)), "an event has no encoding"
