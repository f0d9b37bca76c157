"""A row that stands for several ranks becomes a row for each of them where it is read, and nowhere else."""

from __future__ import annotations

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from pacehound.errors import InvalidEvent, MalformedMessage
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.representative import MAX_APART_NS, MAX_ROWS, RepresentedRank

THREE = (RepresentedRank(0, -30, -20, 5), RepresentedRank(4, 0, 0, 0), RepresentedRank(7, -10, -1, 2))


def batch(represented: tuple[RepresentedRank, ...] = THREE, **columns: list[int]) -> CallBatch:
    return CallBatch.from_columns(
        {
            "rank": [4, 7], "seq": [9, 10], "op": [1, 1], "count": [8, 8], "dtype": [10, 10],
            "launch_ns": [1_000, 2_000], "start_ns": [1_100, 2_100], "end_ns": [1_200, 0], "stream": [55, 66],
            "group": [1, 2],
        }
        | columns,
        job="j",
        attempt=0,
        host="h",
        communicator="c",
        source="c10d",
        within_ns=400,
        represented=represented,
    )  # fmt: skip


def read(sent: CallBatch) -> CallBatch:
    (event,) = codec.decode(codec.encode(sent))
    assert isinstance(event, CallBatch)
    return event


def test_who_reads_it_gets_a_row_for_every_rank_its_own_exact_and_the_others_shifted():
    found = read(batch())
    assert (len(found), found.n_calls, found.represented, found.within_ns) == (6, 6, (), 400)
    columns = ("rank", "seq", "launch_ns", "start_ns", "end_ns")
    assert [tuple(row[name] for name in columns) for row in found.rows.to_pylist()] == [
        (0, 9, 970, 1_080, 1_205),
        (4, 9, 1_000, 1_100, 1_200),
        (7, 9, 990, 1_099, 1_202),
        (0, 10, 1_970, 2_080, 0),
        (4, 10, 2_000, 2_100, 0),
        (7, 10, 2_000, 2_100, 0),
    ]


def test_what_means_something_in_one_process_alone_is_not_said_of_others():
    found = read(batch())
    assert found.integers("stream").tolist() == [0, 55, 0, 0, 0, 66]
    assert found.integers("group").tolist() == [0, 1, 0, 0, 0, 2]


def test_the_batch_counts_every_call_before_it_is_read_too():
    assert (len(batch()), batch().n_calls) == (2, 6)


def test_a_batch_that_stands_for_nobody_else_has_the_bytes_it_always_had():
    plain = CallBatch.from_columns(
        {"rank": [4], "seq": [9]}, job="j", attempt=0, host="h", communicator="c", source="c10d"
    )
    assert plain.whole() is plain
    assert b"alike" not in codec.encode(plain)
    assert b"within" not in codec.encode(plain)


def test_what_has_been_read_can_be_sent_on():
    found = read(batch())
    assert codec.encode(read(found)) == codec.encode(found)


@pytest.mark.parametrize(
    ("represented", "what"),
    [
        (THREE[:2], "not among them"),
        ((*THREE, THREE[0]), "there twice"),
        ((*THREE, RepresentedRank(-1)), "cannot be"),
        ((*THREE, RepresentedRank(8, end_ns=MAX_APART_NS + 1)), "cannot be"),
    ],
    ids=["a row of another rank", "a rank twice", "no rank", "far apart"],
)
def test_a_batch_that_cannot_be_is_refused(represented, what):
    with pytest.raises(InvalidEvent, match=what):
        batch(represented).whole()


def test_a_batch_of_more_rows_than_memory_is_refused():
    with pytest.raises(InvalidEvent, match="at most"):
        batch((RepresentedRank(4),) * MAX_ROWS).whole()


@pytest.mark.parametrize(
    "text", ["", "[", "[[1,2,3]]", '[["a",0,0,0]]', "[[0,0,0,0.5]]", f"[[4,{1 << 70},0,0],[7,0,0,0]]"]
)
def test_an_attribute_that_says_nothing_is_refused_with_its_message(text):
    data = LogsData.FromString(codec.encode(batch()))
    for attribute in data.resource_logs[0].scope_logs[0].log_records[0].attributes:
        if attribute.key == "pacehound.alike":
            attribute.value.string_value = text
    with pytest.raises((MalformedMessage, InvalidEvent)):
        codec.decode(data.SerializeToString())
