"""The bridge to ordinary OpenTelemetry traces: spans of any producer become calls, chosen calls become spans.

One span is one rank's part in one operation. What a span says:

============================  =========  ==============================================================
attribute                     needed     meaning
============================  =========  ==============================================================
`pacehound.job`               yes        the job (here or on the resource)
`pacehound.attempt`           no (0)     which elastic restart of it (here or on the resource)
`host.name`                   yes        the host (here or on the resource)
`pacehound.communicator`      yes        id of the communicator, the same on all members
`pacehound.rank`              yes        world rank
`pacehound.seq`               yes        number of the call on its communicator (p2p: per peer and direction)
`pacehound.op`                yes        a name of `pacehound.calls.OPS`; others are kept as `unknown`
`pacehound.peer`              p2p only   world rank of the peer (rooted operations: the root)
`pacehound.count`, `.dtype`,  no         as in a CallBatch
`.redop`
`pacehound.start_ns`          no         when the device started; without it only launch and end were seen
`pacehound.is_device_span`    no         true: the span begins at the device's start, and no launch was seen
`pacehound.incomplete`        no         true: the call never completed, and the end of the span means nothing
============================  =========  ==============================================================

A span begins when the host enters the call and ends when the call is complete. All ranks' spans of one round share
the trace id of `pacehound.model.identity.round_trace_id`, so that the round opens as one trace. That id is derived anew
from the attributes; the trace id of an incoming span is not needed, for a Collector may change it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, TracesData

from pacehound.errors import InvalidEvent, MalformedMessage, RejectedMessage, Unavailable
from pacehound.model.believed import MAX_ATTEMPT, MAX_NAME_CHARS
from pacehound.model.calls import DIRECTIONS, DTYPES, FIRST_PLACE, NO_PEER, OPS, REDOPS, UNKNOWN_COUNT, CallBatch, Sees
from pacehound.model.codec import MAX_MESSAGE_BYTES, check_count
from pacehound.model.events import MAX_WORLD_RANKS
from pacehound.model.identity import digest, round_trace_id
from pacehound.model.message_parts import MAX_PARTS, has_too_many_parts
from pacehound.model.rounds import Rounds

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Link, SpanContext

SOURCE = "otlp"
SPAN_ID_BYTES = 8
_OF_A_CALL = frozenset(
    {"host.name"}
    | {
        f"pacehound.{name}"
        for name in (
            "job", "attempt", "communicator", "rank", "seq", "op", "peer", "count", "dtype", "redop", "start_ns",
            "is_device_span", "incomplete",
        )
    }
)  # fmt: skip
_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedSpans:
    """Spans that are no calls, of one kind of error: why the first is none, and a trace message of them all."""

    error: RejectedMessage
    n_spans: int
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpansRead:
    """What one trace message held: every span of it is in one of the batches or among the refused."""

    batches: tuple[CallBatch, ...]
    refused: tuple[RefusedSpans, ...]


class _Stream(NamedTuple):
    """What is constant in a batch."""

    job: str
    attempt: int
    host: str
    communicator: str
    sees: Sees


class SpanReader:
    """Reads OTLP traces as CallBatches; it numbers the batches of each host and communicator.

    >>> SpanReader().read(TracesData().SerializeToString())
    SpansRead(batches=(), refused=())
    """

    def __init__(self) -> None:
        self._ordinals: dict[tuple[str, int, str, str], int] = {}

    def read(self, message: bytes) -> SpansRead:
        """The calls of one OTLP `TracesData` message (an `ExportTraceServiceRequest` has the same bytes).

        One bad span does not take the good ones with it.

        Raises
        ------
        MalformedMessage
            The bytes are no OTLP traces.

        """
        if len(message) > MAX_MESSAGE_BYTES:
            raise MalformedMessage(f"a message of {len(message)} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
        if has_too_many_parts(message, TracesData.DESCRIPTOR):
            raise MalformedMessage(f"a message of {len(message)} bytes in more than {MAX_PARTS} parts")
        try:
            data = TracesData.FromString(message)
        except DecodeError as error:
            raise MalformedMessage(f"not an OTLP traces message ({len(message)} bytes): {error}") from error
        check_count(len(data.resource_spans), "resources")
        check_count(sum(len(r.scope_spans) for r in data.resource_spans), "scopes")
        check_count(sum(len(scope.spans) for r in data.resource_spans for scope in r.scope_spans), "spans")
        rows: dict[_Stream, list[dict[str, int]]] = {}
        refused: dict[str, tuple[RejectedMessage, list[tuple[ResourceSpans, Span]]]] = {}
        for resource_spans in data.resource_spans:
            # Merged with those of each span: what else a resource says is not looked at so often.
            resource = {a.key: a.value for a in resource_spans.resource.attributes if a.key in _OF_A_CALL}
            for span in (span for scope in resource_spans.scope_spans for span in scope.spans):
                try:
                    stream, row = _call_of(resource, span)
                except RejectedMessage as error:
                    refused.setdefault(type(error).__name__, (error, []))[1].append((resource_spans, span))
                else:
                    rows.setdefault(stream, []).append(row)
        batches = tuple(self._batch(stream, found) for stream, found in rows.items())
        return SpansRead(
            batches=batches,
            refused=tuple(
                RefusedSpans(error=error, n_spans=len(spans), message=_together(spans))
                for error, spans in refused.values()
            ),
        )

    def _batch(self, stream: _Stream, rows: list[dict[str, int]]) -> CallBatch:
        counted = (stream.job, stream.attempt, stream.host, stream.communicator)
        ordinal = self._ordinals.get(counted, 0)
        self._ordinals[counted] = ordinal + 1
        return CallBatch.from_columns(
            {name: np.array([row[name] for row in rows], np.int64) for name in rows[0]},
            job=stream.job,
            attempt=stream.attempt,
            host=stream.host,
            communicator=stream.communicator,
            source=SOURCE,
            ordinal=ordinal,
            sees=stream.sees,
        )


def spans_of_calls(batch: CallBatch) -> list[ReadableSpan]:
    """Each call of a batch as a plain span, one per row; rows without any instant are left out.

    So are sends and receives of whose peer the place alone is known: the rank names the trace. Needs opentelemetry-sdk
    (`pacehound[embedded]`).
    """
    codes = {name: batch.codes(name).tolist() for name in ("op", "dtype", "redop", "direction")}
    names = ("rank", "seq", "peer", "count", "launch_ns", "start_ns", "end_ns")
    columns = {name: batch.integers(name).tolist() for name in names}
    spans = []
    for i in range(len(batch)):
        call = {name: values[i] for name, values in columns.items()}
        direction = DIRECTIONS[codes["direction"][i]]
        if direction != "none" and call["peer"] <= FIRST_PLACE:
            continue
        op, dtype, redop = OPS[codes["op"][i]], DTYPES[codes["dtype"][i]], REDOPS[codes["redop"][i]]
        details = {"pacehound.count": call["count"], "pacehound.dtype": dtype, "pacehound.redop": redop}
        spans += _span(
            batch.job,
            batch.attempt,
            batch.communicator,
            batch.host,
            rank=call["rank"],
            seq=call["seq"],
            op=op,
            peer=call["peer"],
            direction=direction,
            instants_ns=(call["launch_ns"], call["start_ns"], call["end_ns"]),
            details={**details, "pacehound.source": batch.source},
        )
    return spans


def spans_of_rounds(
    rounds: Rounds, rows: Iterable[int] | None = None, culprits: Container[int] = (), links: Sequence[Link] = ()
) -> list[ReadableSpan]:
    """Each rank's part in each round as a plain span; ranks whose row is missing are left out.

    The host is not known any more; the size in bytes stands for count and dtype. Needs opentelemetry-sdk.

    Parameters
    ----------
    rounds, rows
        The rounds, and which of them; all where no rows are given.
    culprits
        World ranks whose spans have the status `ERROR` and `pacehound.culprit`.
    links
        What every span points to, such as the incident.

    """
    spans = []
    for i in range(len(rounds)) if rows is None else rows:
        seq = int(rounds.seq[i])
        for j, rank in enumerate(rounds.ranks):
            op, peer, direction = OPS[rounds.op[i]], NO_PEER, "none"
            if rounds.is_pair:
                peer, direction = rounds.ranks[1 - j], DIRECTIONS[1 + j]
                op = direction
            instants_ns = (int(rounds.arrival_ns[i, j]), int(rounds.start_ns[i, j]), int(rounds.end_ns[i, j]))
            spans += _span(
                rounds.job,
                rounds.attempt,
                rounds.communicator,
                "",
                rank=rank,
                seq=seq,
                op=op,
                peer=peer,
                direction=direction,
                instants_ns=instants_ns,
                details={"pacehound.size_bytes": int(rounds.size_bytes[i]), "pacehound.source": rounds.source},
                is_culprit=rank in culprits,
                links=links,
            )
    return spans


def export(spans: Sequence[ReadableSpan], exporter: SpanExporter) -> None:
    """Hand spans to any exporter of opentelemetry-sdk.

    Raises
    ------
    Unavailable
        The exporter did not take them.

    """
    from opentelemetry.sdk.trace.export import SpanExportResult

    if exporter.export(spans) is not SpanExportResult.SUCCESS:
        raise Unavailable(f"{type(exporter).__name__} did not take {len(spans)} spans; export them again later")


def span_context(trace_id: bytes, span_id: bytes) -> SpanContext:
    """The ids of a span that is kept."""
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        trace_id=int.from_bytes(trace_id, "big"),
        span_id=int.from_bytes(span_id, "big"),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _span(
    job: str,
    attempt: int,
    communicator: str,
    host: str,
    *,
    rank: int,
    seq: int,
    op: str,
    peer: int,
    direction: str,
    instants_ns: tuple[int, int, int],
    details: dict[str, str | int],
    is_culprit: bool = False,
    links: Sequence[Link] = (),
) -> list[ReadableSpan]:
    """One span, or none where no instant of the call is known."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Status, StatusCode

    launch_ns, start_ns, end_ns = instants_ns
    begin_ns = launch_ns or start_ns
    if not begin_ns:
        return []
    pair = {"send": (rank, peer), "recv": (peer, rank)}.get(direction, (NO_PEER, NO_PEER))
    span_id = digest("span", job, attempt, communicator, rank, seq, peer, direction)[:SPAN_ID_BYTES]
    attributes: dict[str, str | int | bool] = {
        "pacehound.communicator": communicator,
        "pacehound.rank": rank,
        "pacehound.seq": seq,
        "pacehound.op": op,
        **details,
    }
    if peer != NO_PEER:
        attributes["pacehound.peer"] = peer
    if not launch_ns:
        attributes["pacehound.is_device_span"] = True
    elif start_ns:
        attributes["pacehound.start_ns"] = start_ns
    if not end_ns:
        attributes["pacehound.incomplete"] = True
    if is_culprit:
        attributes["pacehound.culprit"] = True
    resource: dict[str, str | int] = {"service.name": job, "pacehound.job": job, "pacehound.attempt": attempt}
    if host:
        resource["host.name"] = host
    return [
        ReadableSpan(
            name=f"{op} #{seq} rank {rank}",
            context=span_context(round_trace_id(communicator, seq, *pair), span_id),
            links=links,
            status=Status(StatusCode.ERROR, "named as a culprit") if is_culprit else Status(),
            resource=Resource(resource),
            attributes=attributes,
            start_time=begin_ns,
            end_time=max(end_ns, begin_ns),
        )
    ]


def _call_of(resource: dict[str, AnyValue], span: Span) -> tuple[_Stream, dict[str, int]]:
    """One span as the constants and the columns of its call."""
    attributes = {**resource, **_attributes(span.attributes)}
    op = _text(attributes, "pacehound.op")
    direction = op if op in ("send", "recv") else "none"
    peer = _integer(attributes, "pacehound.peer", NO_PEER, highest=_MAX_INT32)
    if direction != "none" and peer < 0:
        raise MalformedMessage(f"a {op} span needs the attribute 'pacehound.peer', the world rank of its peer")
    begin_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
    if not 0 < begin_ns <= _MAX_INT64 or end_ns > _MAX_INT64:
        raise InvalidEvent(f"a span from {begin_ns} to {end_ns} ns has no time that can be used")
    is_complete = not _flag(attributes, "pacehound.incomplete")
    if is_complete and end_ns < begin_ns:
        raise InvalidEvent(f"a span ends {begin_ns - end_ns} ns before it begins; set 'pacehound.incomplete' if open")
    is_device_span = _flag(attributes, "pacehound.is_device_span")
    device_start_ns = _integer(attributes, "pacehound.start_ns", 0, highest=_MAX_INT64)
    sees = Sees.START | Sees.END if is_device_span else Sees.LAUNCH | Sees.END
    if device_start_ns:
        sees |= Sees.START
    stream = _Stream(
        job=_text(attributes, "pacehound.job"),
        attempt=_integer(attributes, "pacehound.attempt", 0, lowest=0, highest=MAX_ATTEMPT),
        host=_text(attributes, "host.name"),
        communicator=_text(attributes, "pacehound.communicator"),
        sees=sees,
    )
    return stream, {
        "rank": _integer(attributes, "pacehound.rank", lowest=0, highest=MAX_WORLD_RANKS - 1),
        "seq": _integer(attributes, "pacehound.seq", lowest=0, highest=_MAX_INT64),
        "op": _code(op, OPS),
        "count": _integer(attributes, "pacehound.count", UNKNOWN_COUNT, highest=_MAX_INT64),
        "dtype": _code(_text(attributes, "pacehound.dtype", ""), DTYPES),
        "redop": _code(_text(attributes, "pacehound.redop", ""), REDOPS),
        "peer": peer,
        "direction": DIRECTIONS.index(direction),
        "launch_ns": 0 if is_device_span else begin_ns,
        "start_ns": begin_ns if is_device_span else device_start_ns,
        "end_ns": end_ns if is_complete else 0,
    }


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, AnyValue]:
    return {pair.key: pair.value for pair in pairs}


def _together(spans: Sequence[tuple[ResourceSpans, Span]]) -> bytes:
    """Spans of one message as a message, those of one resource beneath it: no larger than what they came in."""
    data = TracesData()
    last: ResourceSpans | None = None
    for resource_spans, span in spans:
        if resource_spans is not last:
            last, part = resource_spans, data.resource_spans.add()
            part.resource.CopyFrom(resource_spans.resource)
            scope = part.scope_spans.add()
        scope.spans.add().CopyFrom(span)
    encoded: bytes = data.SerializeToString(deterministic=True)
    return encoded


def _code(name: str, names: tuple[str, ...]) -> int:
    return names.index(name) if name in names else 0


def _value(attributes: dict[str, AnyValue], key: str, kind: str, default: Any) -> Any:
    value = attributes.get(key)
    if value is None:
        if default is None:
            raise MalformedMessage(f"a span needs the attribute {key!r} to be a call, and has none")
        return default
    if value.WhichOneof("value") != kind:
        raise MalformedMessage(f"the span attribute {key!r} is a {value.WhichOneof('value')}, not a {kind}")
    return getattr(value, kind)


def _text(attributes: dict[str, AnyValue], key: str, default: str | None = None) -> str:
    text = str(_value(attributes, key, "string_value", default))
    if len(text) > MAX_NAME_CHARS:
        raise InvalidEvent(f"the span attribute {key!r} has {len(text)} characters; at most {MAX_NAME_CHARS} are taken")
    return text


def _flag(attributes: dict[str, AnyValue], key: str) -> bool:
    return bool(_value(attributes, key, "bool_value", False))


def _integer(
    attributes: dict[str, AnyValue], key: str, default: int | None = None, *, lowest: int = -1, highest: int
) -> int:
    number = int(_value(attributes, key, "int_value", default))
    if not lowest <= number <= highest:
        raise InvalidEvent(f"the span attribute {key!r} is {number}; it must be in {lowest}..{highest}")
    return number
