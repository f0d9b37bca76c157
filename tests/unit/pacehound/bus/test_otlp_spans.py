"""Spans of any producer become calls, chosen calls become spans, and a call survives the way there and back."""

import random

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pacehound.bus.otlp_spans import SpanReader, export, spans_of_calls, spans_of_rounds
from pacehound.errors import InvalidEvent, MalformedMessage, RejectedMessage, Unavailable
from pacehound.model.calls import CALL_SCHEMA, CallBatch, Sees
from pacehound.model.codec import decode, encode
from pacehound.model.identity import round_trace_id
from pacehound.model.rounds import Rounds
from tests.fakes.examples import tries

NEEDED = {
    "pacehound.job": "j",
    "host.name": "h",
    "pacehound.communicator": "c",
    "pacehound.rank": 1,
    "pacehound.seq": 7,
    "pacehound.op": "all_reduce",
}


def set_all(pairs, attributes):
    for key, value in attributes.items():
        target = pairs.add(key=key).value
        if isinstance(value, bool):
            target.bool_value = value
        elif isinstance(value, int):
            target.int_value = value
        else:
            target.string_value = value


def message_of(*spans, resource=()):
    """An OTLP message of spans given as (attributes, begin, end)."""
    data = TracesData()
    one = data.resource_spans.add()
    set_all(one.resource.attributes, dict(resource))
    scope = one.scope_spans.add()
    for attributes, begin_ns, end_ns in spans:
        span = scope.spans.add(name="x", start_time_unix_nano=begin_ns, end_time_unix_nano=end_ns)
        set_all(span.attributes, attributes)
    return data.SerializeToString()


def otlp(readable_spans):
    """What an OTLP exporter makes of the SDK's spans."""
    data = TracesData()
    for readable in readable_spans:
        one = data.resource_spans.add()
        set_all(one.resource.attributes, dict(readable.resource.attributes))
        span = one.scope_spans.add().spans.add(
            name=readable.name,
            trace_id=readable.context.trace_id.to_bytes(16, "big"),
            span_id=readable.context.span_id.to_bytes(8, "big"),
            start_time_unix_nano=readable.start_time,
            end_time_unix_nano=readable.end_time,
        )
        set_all(span.attributes, dict(readable.attributes))
    return data.SerializeToString()


def batch_of(sees=Sees.ALL, **columns):
    given = {
        "rank": np.array([2, 3, 2, 3]),
        "seq": np.array([5, 5, 0, 0]),
        "op": np.array([1, 1, 10, 11]),
        "count": np.full(4, 64),
        "dtype": np.array([9, 9, 10, 10]),
        "redop": np.array([1, 1, 0, 0]),
        "peer": np.array([-1, -1, 3, 2]),
        "direction": np.array([0, 0, 1, 2]),
        "launch_ns": np.array([100, 110, 300, 290]),
        "start_ns": np.array([105, 111, 301, 295]),
        "end_ns": np.array([200, 201, 400, 400]),
        **columns,
    }
    return CallBatch.from_columns(given, job="j", attempt=2, host="h", communicator="c", source="simulator", sees=sees)


@pytest.mark.parametrize(
    ("sees", "unseen"),
    [
        (Sees.ALL, ()),
        (Sees.LAUNCH | Sees.END, ("start_ns",)),
        (Sees.START | Sees.END, ("launch_ns",)),
    ],
)
def test_calls_survive_the_way_out_and_in(sees, unseen):
    batch = batch_of(sees, **{name: np.zeros(4) for name in unseen})
    read = SpanReader().read(otlp(spans_of_calls(batch)))
    assert read.refused == ()
    (back,) = read.batches
    assert (back.job, back.attempt, back.host, back.communicator) == ("j", 2, "h", "c")
    assert (back.source, back.sees, back.ordinal) == ("otlp", sees, 0)
    for name in (
        "rank",
        "seq",
        "op",
        "count",
        "dtype",
        "redop",
        "peer",
        "direction",
        "launch_ns",
        "start_ns",
        "end_ns",
    ):
        assert back.rows.column(name).to_pylist() == batch.rows.column(name).to_pylist(), name
    assert back.rows.schema == CALL_SCHEMA
    assert encode(decode(encode(back))[0]) == encode(back)


def test_a_call_without_an_end_stays_open_and_a_call_never_seen_makes_no_span():
    batch = batch_of(end_ns=np.array([0, 201, 400, 400]))
    (back,) = SpanReader().read(otlp(spans_of_calls(batch))).batches
    assert back.integers("end_ns").tolist() == [0, 201, 400, 400]
    unseen = batch_of(**{name: np.zeros(4) for name in ("launch_ns", "start_ns", "end_ns")})
    assert spans_of_calls(unseen) == []


def test_all_ranks_of_a_round_share_a_trace_and_both_sides_of_a_send_another():
    one, other, sender, receiver = spans_of_calls(batch_of())
    assert one.context.trace_id == other.context.trace_id == int.from_bytes(round_trace_id("c", 5), "big")
    assert sender.context.trace_id == receiver.context.trace_id == int.from_bytes(round_trace_id("c", 0, 2, 3), "big")
    assert len({span.context.span_id for span in (one, other, sender, receiver)}) == 4
    assert {span.parent for span in (one, other)} == {None}
    again = spans_of_calls(batch_of())
    assert [span.context for span in again] == [span.context for span in (one, other, sender, receiver)]


@pytest.mark.parametrize("is_pair", [False, True])
def test_rounds_make_the_spans_of_their_calls(is_pair):
    grid = np.array([[100, 110], [0, 310]])
    rounds = Rounds(
        job="j",
        attempt=2,
        communicator="c",
        source="simulator",
        sees=Sees.ALL,
        is_pair=is_pair,
        ranks=(2, 3),
        seq=np.array([5, 6]),
        op=np.array([10 if is_pair else 1] * 2, np.int8),
        size_bytes=np.array([128, 128]),
        arrival_ns=grid,
        start_ns=grid,
        end_ns=np.where(grid > 0, grid + 50, 0),
    )
    spans = spans_of_rounds(rounds)
    assert [(s.attributes["pacehound.rank"], s.attributes["pacehound.seq"]) for s in spans] == [(2, 5), (3, 5), (3, 6)]
    assert [(s.start_time, s.end_time) for s in spans] == [(100, 150), (110, 160), (310, 360)]
    assert [s.attributes["pacehound.op"] for s in spans[:2]] == (["send", "recv"] if is_pair else ["all_reduce"] * 2)
    expected = round_trace_id("c", 5, 2, 3) if is_pair else round_trace_id("c", 5)
    assert {s.context.trace_id for s in spans[:2]} == {int.from_bytes(expected, "big")}
    assert spans[2].context.trace_id != spans[0].context.trace_id


def test_a_round_of_calls_and_of_rounds_is_the_same_trace():
    (from_calls, *_) = spans_of_calls(batch_of())
    grid = np.array([[100, 110]])
    rounds = Rounds(
        job="j", attempt=2, communicator="c", source="simulator", sees=Sees.ALL, ranks=(2, 3), seq=np.array([5]),
        op=np.array([1], np.int8), size_bytes=np.array([128]), arrival_ns=grid, start_ns=grid, end_ns=grid,
    )  # fmt: skip
    assert spans_of_rounds(rounds)[0].context == from_calls.context


def test_the_least_that_a_foreign_producer_must_say():
    (batch,) = SpanReader().read(message_of((NEEDED, 10, 30))).batches
    (row,) = batch.rows.to_pylist()
    assert (batch.attempt, batch.sees) == (0, Sees.LAUNCH | Sees.END)
    assert (row["launch_ns"], row["start_ns"], row["end_ns"]) == (10, 0, 30)
    assert (row["count"], row["dtype"], row["peer"], row["direction"]) == (-1, "unknown", -1, "none")


def test_constants_may_stand_on_the_resource():
    resource = {"pacehound.job": "j", "host.name": "h", "pacehound.attempt": 3}
    rest = {key: value for key, value in NEEDED.items() if key not in resource}
    (batch,) = SpanReader().read(message_of((rest, 10, 30), resource=resource)).batches
    assert (batch.job, batch.host, batch.attempt) == ("j", "h", 3)


def test_an_operation_of_the_future_is_kept_as_unknown():
    (batch,) = SpanReader().read(message_of(({**NEEDED, "pacehound.op": "all_to_some"}, 10, 30))).batches
    assert batch.codes("op").tolist() == [0]


def test_batches_are_cut_by_host_communicator_and_what_was_seen_and_are_numbered():
    reader = SpanReader()
    message = message_of(
        (NEEDED, 10, 30),
        ({**NEEDED, "host.name": "g"}, 10, 30),
        ({**NEEDED, "pacehound.seq": 8}, 40, 60),
        ({**NEEDED, "pacehound.seq": 9, "pacehound.start_ns": 75}, 70, 90),
    )
    first, second = reader.read(message).batches, reader.read(message).batches
    assert [(b.host, len(b), b.ordinal) for b in first] == [("h", 2, 0), ("g", 1, 0), ("h", 1, 1)]
    assert [b.sees for b in first] == [Sees.LAUNCH | Sees.END, Sees.LAUNCH | Sees.END, Sees.ALL]
    assert [b.ordinal for b in second] == [2, 1, 3]


@pytest.mark.parametrize("missing", NEEDED)
def test_a_span_without_a_needed_attribute_is_refused_with_its_name(missing):
    attributes = {key: value for key, value in NEEDED.items() if key != missing}
    read = SpanReader().read(message_of((NEEDED, 10, 30), (attributes, 10, 30)))
    assert [len(batch) for batch in read.batches] == [1]
    (refused,) = read.refused
    assert isinstance(refused.error, MalformedMessage)
    assert repr(missing) in str(refused.error)
    assert len(SpanReader().read(refused.message).refused) == 1


@pytest.mark.parametrize(
    ("change", "begin_ns", "end_ns", "kind", "complaint"),
    [
        ({"pacehound.rank": "one"}, 10, 30, MalformedMessage, "is a string_value, not a int_value"),
        ({"pacehound.rank": -1}, 10, 30, InvalidEvent, "'pacehound.rank' is -1"),
        ({"pacehound.rank": 2**31}, 10, 30, InvalidEvent, "is 2147483648"),
        ({"pacehound.seq": -4}, 10, 30, InvalidEvent, "'pacehound.seq' is -4"),
        ({"pacehound.op": "send"}, 10, 30, MalformedMessage, "needs the attribute 'pacehound.peer'"),
        ({"pacehound.incomplete": 1}, 10, 30, MalformedMessage, "not a bool_value"),
        ({}, 30, 10, InvalidEvent, "ends 20 ns before it begins"),
        ({}, 0, 10, InvalidEvent, "no time that can be used"),
        ({}, 2**63, 2**63, InvalidEvent, "no time that can be used"),
    ],
)
def test_a_span_that_cannot_be_true_is_refused_with_the_reason(change, begin_ns, end_ns, kind, complaint):
    (refused,) = SpanReader().read(message_of(({**NEEDED, **change}, begin_ns, end_ns))).refused
    assert type(refused.error) is kind
    assert complaint in str(refused.error)


def test_bytes_that_are_no_traces_are_refused_and_hostile_ones_never_crash():
    with pytest.raises(MalformedMessage, match="not an OTLP traces message"):
        SpanReader().read(b"\xff\xff")
    message, rng = otlp(spans_of_calls(batch_of())), random.Random(5)
    n_refused, turns = 0, tries(400, deep=15_000)
    for _ in turns:
        data = bytearray(message)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read = SpanReader().read(bytes(data))
        except RejectedMessage:
            n_refused += 1
            continue
        n_refused += len(read.refused)
        for batch in read.batches:
            decode(encode(batch))
    assert n_refused > len(turns) / 15


def test_an_exporter_takes_the_spans_or_the_caller_learns_that_it_did_not():
    exporter = InMemorySpanExporter()
    spans = spans_of_calls(batch_of())
    export(spans, exporter)
    assert list(exporter.get_finished_spans()) == spans
    exporter.shutdown()
    assert exporter.export(spans) is SpanExportResult.FAILURE
    with pytest.raises(Unavailable, match="did not take 4 spans"):
        export(spans, exporter)


def test_spans_that_are_no_calls_are_kept_together_and_no_larger_than_they_came():
    data = TracesData()
    resource = data.resource_spans.add()
    resource.resource.attributes.add(key="k8s.pod").value.string_value = 50_000 * "p"
    resource.scope_spans.add().spans.extend(Span(name="no call") for _ in range(1_000))
    message = data.SerializeToString(deterministic=True)
    (refused,) = SpanReader().read(message).refused
    assert (refused.n_spans, refused.message) == (1_000, message)


@pytest.mark.parametrize("message", [b"\x0a\x00" * 1_100_000, b"\x0a\x00" * 100_001], ids=["parts", "resources"])
def test_a_message_of_more_parts_than_anybody_sends_is_refused(message):
    with pytest.raises(MalformedMessage, match=r"parts|resources"):
        SpanReader().read(message)


@pytest.mark.parametrize(
    "change", [{"pacehound.attempt": 2**62}, {"pacehound.rank": 1 << 20}, {"pacehound.job": "j" * 5_000}]
)
def test_a_span_that_claims_what_cannot_be_is_refused(change):
    (refused,) = SpanReader().read(message_of(({**NEEDED, **change}, 1, 2))).refused
    assert isinstance(refused.error, InvalidEvent)
