"""Events that have columns as log records: what routing needs as attributes, the columns as an Arrow IPC stream.

Of a flush and of conclusions all but the columns is JSON, in an attribute of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from pacehound.errors import InvalidEvent, MalformedMessage
from pacehound.model.arrow_body import read_arrow, write_arrow
from pacehound.model.believed import MAX_NAME_CHARS, MAX_TEXT_BYTES, check_texts
from pacehound.model.calls import CALL_SCHEMA, CallBatch, Sees
from pacehound.model.columns import numbers, values_of
from pacehound.model.conclusions import Conclusions, ConclusionsHead, read_conclusions, rounds_table, time_with
from pacehound.model.conclusions import head_of as head_of_conclusions
from pacehound.model.events import MAX_WORLD_RANKS
from pacehound.model.evidence import read_json
from pacehound.model.flushes import Flush, FlushHead, arrow_rows, head_of, read_flush
from pacehound.model.operations import OPERATION_SCHEMA, Operations
from pacehound.model.relayed import Relayed, RelayedHead, read_relayed
from pacehound.model.relayed import head_of as head_of_relayed
from pacehound.model.representative import RepresentedRank
from pacehound.model.rounds import Rounds
from pacehound.model.shards import Place

CALLS_EVENT = "pacehound.calls"
FLUSH_EVENT = "pacehound.flush"
RELAYED_EVENT = "pacehound.relayed"
ROUNDS_EVENT = "pacehound.rounds"
CONCLUSIONS_EVENT = "pacehound.conclusions"
OPERATIONS_EVENT = "pacehound.operations"

ROW_BYTES = 112
"""What the columns of a call take on the way."""

_HEAD, SHARD, HOME = "pacehound.said", "pacehound.shard", "pacehound.home"
"""Of a flush: all but its columns, as JSON; which part of its job it is of; and that this is its host's home, where it
is."""

_REPRESENTED, _WITHIN = "pacehound.alike", "pacehound.within_ns"

Attributes = dict[str, AnyValue]
"""Of a record or of its resource, by key."""


def set_attribute(attributes: Any, key: str, value: str | int | bool) -> None:
    """Add one to those of a record or a resource."""
    attribute: KeyValue = attributes.add(key=key)
    if isinstance(value, bool):
        attribute.value.bool_value = value
    elif isinstance(value, int):
        attribute.value.int_value = value
    else:
        attribute.value.string_value = value


def _text(attributes: Attributes, key: str) -> str:
    text: str = _value(attributes, key, "string_value", "a string")
    return text


def _integer(attributes: Attributes, key: str) -> int:
    number: int = _value(attributes, key, "int_value", "an integer")
    return number


def _value(attributes: Attributes, key: str, kind: str, in_words: str) -> Any:
    value = attributes.get(key)
    if value is None or value.WhichOneof("value") != kind:
        raise MalformedMessage(f"attribute {key!r} is missing or not {in_words}")
    return getattr(value, kind)


def _write_calls(batch: CallBatch, record: LogRecord) -> None:
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
        set_attribute(record.attributes, key, value)
    if batch.within_ns:
        set_attribute(record.attributes, _WITHIN, batch.within_ns)
    if batch.represented:
        represented = msgspec.json.encode([astuple(one) for one in batch.represented]).decode()
        set_attribute(record.attributes, _REPRESENTED, represented)
    record.body.bytes_value = write_arrow(batch.rows)


def _read_calls(resource: Attributes, attributes: Attributes, body: bytes) -> CallBatch:
    rows = read_arrow(body)
    if len(body) > MAX_TEXT_BYTES + rows.num_rows * ROW_BYTES:
        _check_words(rows)
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
        if highest >= MAX_WORLD_RANKS:
            raise InvalidEvent(f"calls batch has rank {highest}; at most {MAX_WORLD_RANKS} can be watched")
    return batch.whole()


def _write_flush(flush: Flush, record: LogRecord) -> None:
    record.event_name = FLUSH_EVENT
    if flush.is_home:
        set_attribute(record.attributes, HOME, value=True)
    _write_said(flush, head_of(flush), record)


def _read_flush(resource: Attributes, attributes: Attributes, body: bytes) -> Flush:
    said = attributes.get(_HEAD, AnyValue()).bytes_value
    check_texts(FLUSH_EVENT, said)
    flush = read_flush(
        read_json(said, FlushHead),
        read_arrow(body) if body else None,
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        host=_text(resource, "host.name"),
        place=Place(_integer(attributes, SHARD), HOME in attributes and attributes[HOME].bool_value),
    )
    _check_names("communicator", flush.communicators)
    _check_names("source", [part.source for part in flush.parts])
    return flush


def _write_relayed(relayed: Relayed, record: LogRecord) -> None:
    record.event_name = RELAYED_EVENT
    _write_said(relayed, head_of_relayed(relayed), record)


def _write_said(said: Flush | Relayed, head: FlushHead | RelayedHead, record: LogRecord) -> None:
    """Which shard it is of, its head and its columns."""
    record.time_unix_nano = max(said.time_ns, 0)
    set_attribute(record.attributes, SHARD, said.shard)
    record.attributes.add(key=_HEAD).value.bytes_value = msgspec.json.encode(head)
    record.body.bytes_value = write_arrow(arrow_rows(said.columns)) if len(said) else b""


def _read_relayed(resource: Attributes, attributes: Attributes, body: bytes) -> Relayed:
    said = attributes.get(_HEAD, AnyValue()).bytes_value
    check_texts(RELAYED_EVENT, said)
    relayed = read_relayed(
        read_json(said, RelayedHead),
        read_arrow(body) if body else None,
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        shard=_integer(attributes, SHARD),
    )
    _check_names("communicator", relayed.communicators)
    _check_names("source", [part.source for part in relayed.parts])
    return relayed


def _check_names(name: str, values: Iterable[str]) -> None:
    if (longest := max(map(len, values), default=0)) > MAX_NAME_CHARS:
        raise InvalidEvent(f"a {name} has {longest} characters; at most {MAX_NAME_CHARS} are taken")


def _write_conclusions(conclusions: Conclusions, record: LogRecord) -> None:
    record.event_name = CONCLUSIONS_EVENT
    record.attributes.add(key=_HEAD).value.bytes_value = msgspec.json.encode(head_of_conclusions(conclusions))
    table = rounds_table(conclusions)
    record.time_unix_nano = max(time_with(conclusions, table), 0)
    record.body.bytes_value = b"" if table is None else write_arrow(table)


def _read_conclusions(resource: Attributes, attributes: Attributes, body: bytes) -> Conclusions:
    return read_conclusions(
        read_json(attributes.get(_HEAD, AnyValue()).bytes_value, ConclusionsHead),
        read_arrow(body) if body else None,
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
    )


def _write_operations(operations: Operations, record: LogRecord) -> None:
    record.event_name = OPERATIONS_EVENT
    record.time_unix_nano = max(operations.time_ns, 0)
    record.body.bytes_value = write_arrow(operations.rows)


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


def _represented(attributes: Attributes) -> tuple[RepresentedRank, ...]:
    listed = msgspec.json.decode(_text(attributes, _REPRESENTED), type=list[tuple[int, int, int, int]])
    return tuple(RepresentedRank(*numbers) for numbers in listed)


def _read_operations(resource: Attributes, attributes: Attributes, body: bytes) -> Operations:
    return Operations(
        job=_text(resource, "pacehound.job"),
        attempt=_integer(resource, "pacehound.attempt"),
        host=_text(resource, "host.name"),
        rows=_conform(read_arrow(body), OPERATION_SCHEMA, "operation"),
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


def _write_rounds(rounds: Rounds, record: LogRecord) -> None:
    record.event_name = ROUNDS_EVENT
    record.time_unix_nano = max(rounds.time_ns, 0)
    set_attribute(record.attributes, "pacehound.communicator", rounds.communicator)
    set_attribute(record.attributes, "pacehound.source", rounds.source)
    set_attribute(record.attributes, "pacehound.sees", rounds.sees.value)
    set_attribute(record.attributes, "pacehound.pair", rounds.is_pair)
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
    record.body.bytes_value = write_arrow(pa.RecordBatch.from_arrays([*columns, *grid], names=names))


def _read_rounds(resource: Attributes, attributes: Attributes, body: bytes) -> Rounds:
    rows = read_arrow(body)
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


WRITERS: dict[type, Callable[[Any, LogRecord], None]] = {
    CallBatch: _write_calls,
    Flush: _write_flush,
    Relayed: _write_relayed,
    Rounds: _write_rounds,
    Conclusions: _write_conclusions,
    Operations: _write_operations,
}
"""By the kind of an event, what writes it into an empty record."""

WithColumns = CallBatch | Flush | Relayed | Rounds | Conclusions | Operations

READERS: dict[str, Callable[[Attributes, Attributes, bytes], WithColumns]] = {
    CALLS_EVENT: _read_calls,
    FLUSH_EVENT: _read_flush,
    RELAYED_EVENT: _read_relayed,
    ROUNDS_EVENT: _read_rounds,
    CONCLUSIONS_EVENT: _read_conclusions,
    OPERATIONS_EVENT: _read_operations,
}
"""By the name of an event, what makes it of the attributes of its resource, its own, and its body."""
