"""Every event survives the wire; what does not belong there is refused with its reason."""

import dataclasses
from typing import get_args

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from event_strategies import call_batches, event_of
from hypothesis import given
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from pacehound.errors import InvalidEvent, MalformedMessage, UnknownSchema
from pacehound.model import believed
from pacehound.model.calls import CALL_SCHEMA, CallBatch, Sees
from pacehound.model.codec import MAX_MESSAGE_BYTES, decode, encode, records_of, single
from pacehound.model.events import HostSample, Progress, RankProgress, Tick, Topology
from pacehound.model.routing import Event, route
from tests.fakes.examples import examples


def batch_of(n=3, **given):
    columns = {"rank": np.arange(n), "seq": np.arange(n) + 5, "op": np.ones(n), "end_ns": np.arange(n) + 100}
    identity = {"job": "j", "attempt": 1, "host": "h", "communicator": "c", "source": "simulator"}
    return CallBatch.from_columns(columns, **{**identity, **given})


def message_with(batch, rows=None, **attributes):
    """The message of a batch with another Arrow body or other attributes."""
    data = LogsData.FromString(encode(batch))
    record = data.resource_logs[0].scope_logs[0].log_records[0]
    if rows is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        record.body.bytes_value = sink.getvalue().to_pybytes()
    for attribute in record.attributes:
        for name, value in attributes.items():
            if attribute.key == f"pacehound.{name}":
                attribute.value.int_value = value
    return data.SerializeToString()


@given(call_batches())
@examples(10, deep=1_250)
def test_any_call_batch_survives_the_round_trip(batch):
    (read,) = decode(encode(batch))
    assert encode(read) == encode(batch)
    for name in ("job", "attempt", "host", "communicator", "source", "ordinal", "sees", "dropped"):
        assert getattr(read, name) == getattr(batch, name)
    for name in CALL_SCHEMA.names:  # NaN equals nothing, so columns are compared as text
        assert repr(read.rows.column(name).to_pylist()) == repr(batch.rows.column(name).to_pylist())


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(6, deep=750)  # of each of its fields, drawn for itself: one lost or changed shows in the first few
def test_any_event_survives_the_round_trip(kind, data):
    event = data.draw(event_of(kind))
    (read,) = decode(encode(event))
    assert type(read) is kind
    assert encode(read) == encode(event)
    assert route(read) == route(event)
    if dataclasses.is_dataclass(event) and kind.__name__ not in ("CallBatch", "Flush", "Conclusions", "Rounds"):
        assert read == event
        assert read.identity() == event.identity()


def test_the_same_event_gives_the_same_bytes():
    assert encode(batch_of()) == encode(batch_of())


def test_a_slice_of_a_batch_travels_alone():
    batch = batch_of(5)
    part = dataclasses.replace(batch, rows=batch.rows.slice(2, 2))
    (read,) = decode(encode(part))
    assert read.integers("seq").tolist() == [7, 8]
    assert len(encode(dataclasses.replace(batch_of(5000), rows=batch_of(5000).rows.slice(0, 2)))) < 6000


def test_messages_put_end_to_end_are_read_in_order():
    ticks = [Tick(job="j", attempt=0, time_ns=t, stream="c") for t in range(5)]
    message = b"".join(map(encode, ticks)) + encode(batch_of())
    read = decode(message)
    assert read[:5] == ticks
    assert isinstance(read[5], CallBatch)


def test_one_record_of_many_becomes_a_message_of_its_own():
    tick = Tick(job="j", attempt=0, time_ns=3, stream="c")
    records = records_of(encode(batch_of()) + encode(tick))
    assert [len(decode(single(*record))) for record in records] == [1, 1]
    assert decode(single(*records[1])) == [tick]


def test_an_unknown_schema_version_is_named():
    with pytest.raises(UnknownSchema, match="version 7; this build reads version 1"):
        decode(message_with(batch_of(), schema=7))


def test_an_unknown_event_name_is_named():
    data = LogsData.FromString(encode(batch_of()))
    data.resource_logs[0].scope_logs[0].log_records[0].event_name = "pacehound.nonsense"
    with pytest.raises(UnknownSchema, match=r"pacehound\.nonsense"):
        decode(data.SerializeToString())


def test_nulls_in_a_column_are_refused():
    rows = batch_of().rows
    holes = pa.array([1, None, 3], pa.int64())
    index = rows.schema.get_field_index("end_ns")
    with pytest.raises(MalformedMessage, match=r"'end_ns' has 1 nulls"):
        decode(message_with(batch_of(), rows.set_column(index, "end_ns", holes)))


def test_a_foreign_order_of_the_dictionary_means_the_same_operations():
    rows = batch_of().rows
    names = pa.DictionaryArray.from_arrays(
        pa.array([2, 0, 1], pa.int8()), pa.array(["send", "an_op_of_the_future", "all_reduce"])
    )
    index = rows.schema.get_field_index("op")
    (read,) = decode(message_with(batch_of(), rows.set_column(index, rows.schema.field("op"), names)))
    assert read.codes("op").tolist() == [1, 10, 0]


def test_plain_strings_from_a_foreign_producer_are_taken():
    rows = batch_of().rows
    index = rows.schema.get_field_index("op")
    (read,) = decode(message_with(batch_of(), rows.set_column(index, "op", pa.array(["recv", "send", "recv"]))))
    assert read.codes("op").tolist() == [11, 10, 11]


def test_unknown_columns_are_ignored_and_their_order_does_not_matter():
    rows = batch_of().rows.append_column("temperature", pa.array([1.0, 2.0, 3.0]))
    rows = rows.select(list(reversed(rows.schema.names)))
    (read,) = decode(message_with(batch_of(), rows))
    assert encode(read) == encode(batch_of())


def test_an_unknown_field_of_a_json_event_is_ignored():
    data = LogsData.FromString(encode(Tick(job="j", attempt=0, time_ns=3, stream="c")))
    record = data.resource_logs[0].scope_logs[0].log_records[0]
    record.body.bytes_value = record.body.bytes_value[:-1] + b',"of_the_future":[1]}'
    assert decode(data.SerializeToString()) == [Tick(job="j", attempt=0, time_ns=3, stream="c")]


def test_a_missing_column_is_named():
    with pytest.raises(MalformedMessage, match="'seq'"):
        decode(message_with(batch_of(), batch_of().rows.drop_columns(["seq"])))


def test_a_batch_that_contradicts_its_envelope_is_refused():
    with pytest.raises(InvalidEvent, match="says it has 9 rows and has 3"):
        decode(message_with(batch_of(), count=9))
    for name in ("job", "communicator", "source"):
        with pytest.raises(InvalidEvent, match=f"batch of {name}"):
            decode(message_with(batch_of(), batch_of(**{name: "other"}).rows))
    with pytest.raises(InvalidEvent, match="rows of another attempt"):
        decode(message_with(batch_of(), batch_of(attempt=2).rows))


@pytest.mark.parametrize("name", ["rank", "seq"])
def test_a_negative_rank_or_number_is_refused(name):
    rows = batch_of().rows
    index = rows.schema.get_field_index(name)
    negative = pa.array([0, -1, 2], rows.schema.field(name).type)
    with pytest.raises(InvalidEvent, match="negative rank or sequence number"):
        decode(message_with(batch_of(), rows.set_column(index, name, negative)))


def test_a_dictionary_index_out_of_range_is_refused():
    rows = batch_of().rows
    indices = pa.array([0, 1, 2], pa.int8())
    # The library refuses to build such an array, so the bytes of the indices are changed on their way.
    names = pa.DictionaryArray.from_arrays(indices, pa.array(["send", "recv", "barrier"]))
    index = rows.schema.get_field_index("op")
    message = message_with(batch_of(), rows.set_column(index, rows.schema.field("op"), names))
    at = message.rindex(b"\x00\x01\x02\x00\x00\x00\x00\x00")
    for value in (b"\x03", b"\x7f", b"\xff"):
        with pytest.raises(MalformedMessage):
            decode(message[: at + 2] + value + message[at + 3 :])


def test_an_event_that_contradicts_itself_is_refused_as_such():
    topology = Topology(
        job="j", attempt=0, time_ns=1, host="h", communicator="c", name="n", is_world=True, members=(0, 1),
        host_ranks=(0,), world_size=2,
    )  # fmt: skip
    data = LogsData.FromString(encode(topology))
    record = data.resource_logs[0].scope_logs[0].log_records[0]
    record.body.bytes_value = record.body.bytes_value.replace(b'"members":[0,1]', b'"members":[0,9]')
    with pytest.raises(InvalidEvent, match=r"members \[9\] are outside the world of 2 ranks"):
        decode(data.SerializeToString())


def test_two_record_batches_in_one_body_are_refused():
    rows = batch_of().rows
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
        writer.write_batch(rows)
    data = LogsData.FromString(encode(batch_of()))
    data.resource_logs[0].scope_logs[0].log_records[0].body.bytes_value = sink.getvalue().to_pybytes()
    with pytest.raises(MalformedMessage, match="2 record batches"):
        decode(data.SerializeToString())


def test_an_empty_or_oversized_message_is_refused():
    with pytest.raises(MalformedMessage, match="without any log record"):
        decode(b"")
    with pytest.raises(MalformedMessage, match="larger than the limit"):
        decode(bytes(MAX_MESSAGE_BYTES + 1))


def test_times_before_1970_do_not_stop_the_envelope():
    for event in (
        Tick(job="j", attempt=0, time_ns=-5, stream="c"),
        HostSample(job="j", attempt=0, time_ns=-5, host="h", processes=()),
        Progress(job="j", attempt=0, time_ns=-5, host="h", communicator="c", ranks=(RankProgress(rank=0),)),
    ):
        assert decode(encode(event)) == [event]


def test_what_a_source_sees_travels_with_the_batch():
    for sees in (Sees.NOTHING, Sees.LAUNCH, Sees.LAUNCH | Sees.END, Sees.ALL):
        assert decode(encode(batch_of(sees=sees)))[0].sees == sees


@examples(80)
@given(st.text('aaaaaaaaa"\\', min_size=0, max_size=60))
def test_a_long_string_is_found_wherever_it_stands(text):
    """Whether a text is taken to pieces is decided by how far quotes lie apart, and must never hide one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(believed, "MAX_TEXT_BYTES", 8)
        strings = text.replace("\\\\", "..").replace('\\"', "..").split('"')[1::2]
        is_long = max(map(len, strings), default=0) > 8
        try:
            believed.check_texts("pacehound.progress", text.encode())
        except InvalidEvent:
            assert is_long
        else:
            assert not is_long
