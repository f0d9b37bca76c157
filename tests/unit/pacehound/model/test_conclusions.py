"""What stage one concludes reaches stage two as it was, whatever is in it; what contradicts itself is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from event_strategies import conclusions, digested_pairs
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pacehound.errors import InvalidEvent, MalformedMessage
from pacehound.model import codec
from pacehound.model.calls import OPS
from pacehound.model.columns import numbers
from pacehound.model.conclusions import Conclusions, head_of, read_conclusions, rounds_table, time_with
from pacehound.model.events import MAX_WORLD_RANKS, HostVitals, Watermark
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from tests.fakes.examples import examples, tries
from tests.fakes.made_pairs import drawn_pairs


def are_equal(one: object, other: object) -> bool:
    """Also where they hold arrays, and these NaN."""
    if type(one) is not type(other) or not dataclasses.is_dataclass(one):
        return one == other
    columns = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)]
    return all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a == b for a, b in columns
    )


@given(conclusions())
@examples(60)
def test_all_columns_come_as_they_were_and_in_their_order(said: Conclusions) -> None:
    (read,) = codec.decode(codec.encode(said))
    assert isinstance(read, Conclusions)
    assert len(read.said) == len(said.said)
    assert all(map(are_equal, read.said, said.said))
    assert read.identity() == said.identity()


@given(conclusions())
def test_their_time_is_the_same_with_the_table_of_their_rounds(said: Conclusions) -> None:
    assert time_with(said, rounds_table(said)) == said.time_ns


def test_the_time_of_rounds_that_have_all_ended_is_that_of_the_last_end() -> None:
    ended = dataclasses.replace(pairs(), end_ns=pairs().arrival_ns + 7, job="j", attempt=0)
    said = Conclusions(job="j", attempt=0, said=(ended, Watermark(job="j", attempt=0, time_ns=1 << 60, stream="c")))
    assert ended.arrival_ns.min() >= 0
    assert time_with(said, rounds_table(said)) == said.time_ns == int(ended.end_ns.max())


@given(st.lists(digested_pairs(), min_size=1, max_size=3), st.data())
def test_digests_may_be_cut_anywhere(several: list[PairRounds], data: st.DataObject) -> None:
    ours = [dataclasses.replace(one, job="j", attempt=0) for one in several]
    cuts = [data.draw(st.integers(0, len(one))) for one in ours]
    parts = [one.chosen(part) for one, at in zip(ours, cuts, strict=True) for part in (slice(at), slice(at, None))]
    (read,) = codec.decode(codec.encode(Conclusions(job="j", attempt=0, said=tuple(parts))))
    assert isinstance(read, Conclusions)
    assert all(map(are_equal, read.said, parts))


@given(conclusions())
def test_where_there_are_no_pairs_and_no_vitals_the_message_says_nothing_of_them(said: Conclusions) -> None:
    """Workers of before read it, and write the same."""
    since = (PairRounds, HostVitals)
    others = dataclasses.replace(said, said=tuple(one for one in said.said if not isinstance(one, since)))
    head = msgspec.json.decode(msgspec.json.encode(head_of(others)))
    assert not {"pairs", "vitals"} & head.keys()
    assert set(head["order"]) <= set(range(7))
    table = rounds_table(others)
    assert (table is not None) == any(isinstance(one, Rounds) for one in others.said)
    assert table is None or not {"communicator", "sender", "receiver"} & set(table.schema.names)


@pytest.mark.parametrize("seed", tries(5))
def test_rounds_of_pairs_travel_as_those_of_each_pair_and_are_read_as_one(seed: int) -> None:
    """Workers of before tell each pair by itself, and read it so."""
    rng = np.random.default_rng(seed)
    some, others = (drawn_pairs(rng, 30, source=source) for source in ("c10d", "shim"))
    rated = dataclasses.replace(some, send_rate=some.end_ns / 2, recv_rate=some.end_ns / 3, algorithm=some.op % 3)
    watermark = Watermark(job="j", attempt=0, time_ns=7, stream="a")
    told = (watermark, some, others, watermark, rated, drawn_pairs(rng, 9))
    by_pair: list[Any] = []
    for one in told:
        by_pair += one.by_pair() if isinstance(one, PairRounds) and not one.is_digest else [one]
    bodies = [codec.encode(Conclusions(job="j", attempt=0, said=tuple(said))) for said in (told, by_pair)]
    assert bodies[0] == bodies[1]
    (read,) = codec.decode(bodies[0])
    assert isinstance(read, Conclusions)
    assert list(map(type, read.said)) == list(map(type, told))
    assert all(map(are_equal, map(as_first_met, read.said), map(as_first_met, told)))


def as_first_met(one: object) -> object:
    """Rounds of pairs with the names of communicators in the order of their lines."""
    if not isinstance(one, PairRounds):
        return one
    names = [one.communicators[at] for at in one.communicator.tolist()]
    first_met = tuple(dict.fromkeys(names))
    numbered = np.array([first_met.index(name) for name in names], np.int64)
    return dataclasses.replace(one, communicators=first_met, communicator=numbered)


def test_a_pair_of_one_rank_stays_what_it_is() -> None:
    """It is refused where somebody works on it, as it is when it comes by itself."""
    pair = next(drawn_pairs(np.random.default_rng(5), 40, source="c10d").by_pair())
    cells = {name: getattr(pair, name)[:, :1] for name in ("arrival_ns", "start_ns", "end_ns")}
    alone = dataclasses.replace(pair, ranks=(3,), **cells)
    (read,) = codec.decode(codec.encode(Conclusions(job="j", attempt=0, said=(alone,))))
    assert isinstance(read, Conclusions)
    assert are_equal(read.said[0], alone)


@pytest.mark.parametrize(
    "said",
    [
        {"n_rounds": -1},
        {"n_rounds": 1 << 80},
        {"sees": 1 << 40},
        {"ranks": (0, MAX_WORLD_RANKS)},
        {"ranks": (-1, 0)},
        {"ranks": (0, 1, 2)},
        {"has_send_rate": True},
        {"has_algorithm": True},
    ],
)
def test_a_head_of_a_pair_that_cannot_be_true_is_refused(said: dict[str, Any]) -> None:
    whole = Conclusions(job="j", attempt=0, said=(drawn_pairs(np.random.default_rng(5), 40, source="c10d"),))
    head, table = head_of(whole), rounds_table(whole)
    lying = dataclasses.replace(head, rounds=(structs.replace(head.rounds[0], **said), *head.rounds[1:]))
    with pytest.raises((InvalidEvent, MalformedMessage, KeyError, ValueError)):
        read_conclusions(lying, table, job="j", attempt=0)
    with pytest.raises(InvalidEvent, match="other kinds"):
        read_conclusions(dataclasses.replace(head, order=(2, *head.order[1:])), table, job="j", attempt=0)


def pairs() -> PairRounds:
    return drawn_pairs(np.random.default_rng(5), 40)


def test_digests_of_pairs_are_columns_of_the_table_and_not_of_the_head() -> None:
    whole = Conclusions(job="j", attempt=0, said=(pairs(),))
    assert len(msgspec.json.encode(head_of(whole))) < 300
    table = rounds_table(whole)
    assert table is not None
    assert table.num_rows == len(pairs())


def of_column(name: str, value: int, kind: pa.DataType | None = None) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Every line has this value."""

    def changed(table: pa.RecordBatch) -> pa.RecordBatch:
        at = table.schema.get_field_index(name)
        column = numbers(np.full(table.num_rows, value), pa.int64() if kind is None else kind)
        return table.set_column(at, name, column)

    return changed


def of_three(table: pa.RecordBatch) -> pa.RecordBatch:
    """Each line has a place more."""
    at = table.schema.get_field_index("end_ns")
    return table.set_column(at, "end_ns", pa.array([[1, 2, 3]] * table.num_rows, pa.list_(pa.int64())))


@pytest.mark.parametrize(
    "changed",
    [
        of_column("communicator", 3),
        of_column("communicator", -1),
        of_column("sender", -1),
        of_column("sender", MAX_WORLD_RANKS),
        of_column("receiver", 1 << 62),
        of_column("op", len(OPS)),
        of_column("arrival_ns", 7),
        of_three,
        lambda table: table.drop_columns(["receiver"]),
        lambda table: table.drop_columns(["seq"]),
        lambda table: table.drop_columns(["start_ns"]),
        lambda table: table.slice(1),
        lambda table: table.set_column(0, "seq", pa.array([None] * table.num_rows, pa.int64())),
        lambda table: table.set_column(0, "seq", pa.array(["x"] * table.num_rows)),
    ],
)
def test_a_table_that_cannot_be_true_is_refused(changed: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    whole = Conclusions(job="j", attempt=0, said=(pairs(),))
    table = rounds_table(whole)
    assert table is not None
    assert are_equal(read_conclusions(head_of(whole), table, job="j", attempt=0).said[0], pairs())
    # What is no event raises what the codec makes `MalformedMessage` of.
    with pytest.raises((InvalidEvent, MalformedMessage, KeyError, ValueError)):
        read_conclusions(head_of(whole), changed(table), job="j", attempt=0)


@pytest.mark.parametrize(
    "said",
    [
        {"n_lines": -1},
        {"n_lines": 1},
        {"n_lines": 1 << 80},
        {"source": "c10d"},
        {"sees": 1 << 40},
        {"communicators": ("a",)},
        {"has_send_rate": True},
        {"has_algorithm": True},
    ],
)
def test_a_head_that_cannot_be_true_is_refused(said: dict[str, Any]) -> None:
    whole = Conclusions(job="j", attempt=0, said=(pairs(),))
    head, table = head_of(whole), rounds_table(whole)
    assert isinstance(head.pairs, tuple)
    lying = dataclasses.replace(head, pairs=(structs.replace(head.pairs[0], **said),))
    with pytest.raises((InvalidEvent, MalformedMessage, KeyError, ValueError)):
        read_conclusions(lying, table, job="j", attempt=0)
    with pytest.raises(InvalidEvent, match="no table"):
        read_conclusions(head, None, job="j", attempt=0)
    with pytest.raises(InvalidEvent, match="and are 1"):
        read_conclusions(dataclasses.replace(head, order=()), table, job="j", attempt=0)
