"""Bytes <-> events, once, at the edge.

One message is an OTLP `LogsData` with one log record, so that any OpenTelemetry Collector can receive, route and
filter it. The resource carries job, attempt and host; attributes carry what routing needs; the body is an Arrow
IPC stream for columns (calls, rounds) and JSON for everything else. Several messages put end to end are one valid
message again (protobuf merges repeated fields), which is how an HTTP request carries many.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs

from pacehound.errors import InvalidEvent, MalformedMessage, RejectedMessage, UnknownSchema
from pacehound.model import column_records, events
from pacehound.model.believed import believed, check_texts
from pacehound.model.column_records import set_attribute
from pacehound.model.evidence import read_json
from pacehound.model.finite import unfit_field
from pacehound.model.message_parts import MAX_PARTS, has_too_many_parts
from pacehound.model.routing import Event

SCHEMA_VERSION = 1
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

MAX_RECORDS = 100_000
"""More records in one message than anybody sends; each that cannot be read would be a dead letter of its own."""

MAX_RESOURCE_ATTRIBUTES = 1_000
"""A Collector adds tens."""

SMALL_RESOURCE_BYTES = 512
"""Our own have 100."""

DEAD_LETTER_EVENT = "pacehound.dead_letter"

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
                    set_attribute(resource_logs.resource.attributes, key, value)
            scope = resource_logs.scope_logs.add()
        _encode_record(event, scope.log_records.add())
    encoded: bytes = data.SerializeToString(deterministic=True)
    return encoded


def _encode_record(event: Any, record: LogRecord) -> None:
    set_attribute(record.attributes, "pacehound.schema", SCHEMA_VERSION)
    if (write := column_records.WRITERS.get(type(event))) is not None:
        write(event, record)
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
    if name not in _JSON_EVENTS and name not in column_records.READERS:
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
            if name != DEAD_LETTER_EVENT:  # which holds bytes, as a string
                check_texts(name, body)
            event: Any = read_json(body, _JSON_EVENTS[name])
        else:
            resource = {kv.key: kv.value for kv in resource_logs.resource.attributes}
            event = column_records.READERS[name](resource, attributes, body)
        return believed(event)
    except RejectedMessage:
        raise
    except msgspec.ValidationError as error:
        # An event's own __post_init__ raises inside msgspec, which wraps what it raised.
        if isinstance(error.__cause__, InvalidEvent):
            raise error.__cause__ from error
        raise MalformedMessage(f"{name}: {error}") from error
    except _UNREADABLE as error:
        raise MalformedMessage(f"{name}: {type(error).__name__}: {error}") from error


assert {*_JSON_EVENTS.values(), *column_records.WRITERS} == set(get_args(Event)), "an event has no encoding"
