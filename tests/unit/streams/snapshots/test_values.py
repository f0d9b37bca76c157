"""Values come back as they were with types that are right, whoever wrote them and whatever fields they had then."""

from __future__ import annotations

import dataclasses
import random
import weakref
from enum import Enum
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model import events
from streams.hang.shared_name import _Seen
from streams.slow.processors import _Reading
from streams.snapshots import schema
from streams.snapshots.values import Remembered, ValueCodec
from tests.fakes.event_strategies import event_of
from tests.fakes.examples import examples, tries
from tests.fakes.for_every import for_every

CODEC = ValueCodec(schema._VALUES)
ON_THE_BUS = [events.Topology, events.Markers, events.Tick, events.Progress, events.HostSample, events.HostVitals]
COUNTED = st.lists(st.integers(0, 7), max_size=3).map(
    lambda ranks: _Reading(1, 2, 3, 4, tuple(ranks), np.arange(3 * len(ranks), dtype=np.int64).tobytes())
)
PARTS = [cls for cls in schema._VALUES if cls not in ON_THE_BUS]


@pytest.mark.parametrize("cls", ON_THE_BUS)
@examples(4)
@given(st.data())
def test_whatever_a_host_may_say_comes_back_as_it_was(cls: type, data: st.DataObject) -> None:
    values = data.draw(st.lists(event_of(cls), max_size=3))
    content = CODEC.encode(cls, values)
    again = CODEC.decode(cls, CODEC.fields, content)
    assert again == values
    assert [type(value) for value in again] == [cls] * len(values)
    assert CODEC.encode(cls, again) == content


@pytest.mark.parametrize("cls", PARTS)
@examples(4)
@given(st.data())
def test_parts_come_back_as_they_were(cls: type, data: st.DataObject) -> None:
    values = data.draw(st.lists(COUNTED if cls is _Reading else st.from_type(cls), max_size=3))
    again = CODEC.decode(cls, CODEC.fields, CODEC.encode(cls, values))
    # A number that is none is not equal to itself.
    assert repr(again) == repr(values)


def test_what_follows_from_a_value_that_was_read_is_written_as_before() -> None:
    """A struct leaves out a default where it has that very object, and text that was read is another one."""
    call = events.OpenCall(seq=1, op="barrier", count=0, dtype="int8", launch_ns=5)
    rank = events.RankProgress(rank=1, open=(call, msgspec.structs.replace(call, direction="send")))
    progress = events.Progress(job="j", attempt=0, time_ns=5, host="h", communicator="c", ranks=(rank,))
    for value in (call, rank, progress):
        cls = type(value)
        (again,) = CODEC.decode(cls, CODEC.fields, CODEC.encode(cls, [value]))
        assert msgspec.json.encode(again) == msgspec.json.encode(value)


def test_damaged_values_are_refused_or_right() -> None:
    """As right as types and the events' own checks can tell."""
    rank = events.RankProgress(rank=1, open=(events.OpenCall(seq=1, op="barrier", count=0, dtype="int8", launch_ns=5),))
    progress = events.Progress(job="j", attempt=0, time_ns=5, host="h", communicator="c", ranks=(rank,) * 3)
    content = CODEC.encode(events.Progress, [progress] * 4)
    rng, n_refused = random.Random(5), 0
    n_tries = 0
    for _ in tries(200):
        flipped = bytearray(content)
        for at in rng.choices(range(len(content)), k=rng.choice((1, 1, 4))):
            flipped[at] ^= 1 << rng.randrange(8)
        for bad in (bytes(flipped), content[: rng.randrange(len(content))]):
            n_tries += 1
            try:
                found = CODEC.decode(events.Progress, CODEC.fields, bad)
            except ValueError:
                n_refused += 1
                continue
            msgspec.convert(msgspec.to_builtins(found), list[events.Progress], strict=True)
    assert n_tries / 2 < n_refused < n_tries


@dataclasses.dataclass(frozen=True)
class Before:
    one: int
    two: str


@dataclasses.dataclass(frozen=True)
class Since:
    two: str
    three: float = 2.5
    one: int = 0
    four: tuple[Before, ...] = ()


def test_a_value_may_get_fields_with_defaults_and_have_them_in_another_order() -> None:
    content = ValueCodec([Before]).encode(Before, [Before(1, "a"), Before(2, "b")])
    codec = ValueCodec([Since, Before])
    assert codec.decode(Since, {Since: ("one", "two"), Before: ("one", "two")}, content) == [
        Since("a", one=1),
        Since("b", one=2),
    ]


def test_a_value_may_be_a_part_of_another_one_that_has_changed() -> None:
    later = ValueCodec([Since, Before])
    written = later.encode(Since, [Since("a", four=(Before(1, "b"),))])
    fields = {**later.fields, Since: ("two", "three", "one", "four")}
    assert later.decode(Since, fields, written) == [Since("a", four=(Before(1, "b"),))]
    with pytest.raises(ValueError, match="length"):
        later.decode(Since, {**fields, Before: ("one",)}, written)


class Colour(Enum):
    RED = 1


def holding(hint: Any) -> type:
    return dataclasses.make_dataclass("Holding", [("one", hint)])


NO_VALUES = {
    "no dataclass": int,
    "a list": holding(list[int]),
    "a set": holding(frozenset[int]),
    "a dict of anything": holding(dict[str, object]),
    "anything": holding(Any),
    "an enum": holding(Colour),
    "a class that is not among them": holding(Before),
    "one of two": holding(int | Before),
}


@for_every(NO_VALUES)
def test_a_class_of_values_holds_values_alone(cls: type) -> None:
    with pytest.raises(ValueError, match=r"no value|neither a dataclass nor a struct"):
        ValueCodec([cls])


def test_what_values_may_hold_is_looked_at_with_their_parts() -> None:
    codec = ValueCodec([holding(Literal["a", "b"] | None), Before, Since])
    assert codec.parts[Since] == (Before,)
    assert codec.parts[Before] == ()


def progress_at(time_ns: int) -> events.Progress:
    ranks = (events.RankProgress(rank=1, last_launched=time_ns),)
    return events.Progress(job="j", attempt=0, time_ns=time_ns, host="h", communicator="c", ranks=ranks)


@examples(20)
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=6))
def test_what_is_remembered_of_the_last_snapshot_changes_no_byte_of_the_next(snapshots: list[list[int]]) -> None:
    codec, remembered = ValueCodec(schema._VALUES, schema._LASTING), Remembered()
    known = [progress_at(number) for number in range(10)]
    for numbers in snapshots:
        values = [known[number] for number in dict.fromkeys(numbers)]
        assert codec.encode(events.Progress, values, remembered) == codec.encode(events.Progress, values)
        assert remembered.of[events.Progress].keys() == set(map(id, values))


def test_what_was_written_before_is_not_looked_at_again() -> None:
    codec, remembered = ValueCodec(schema._VALUES, schema._LASTING), Remembered()
    old, new = progress_at(1), progress_at(2)
    codec.encode(events.Progress, [old], remembered)
    written = remembered.of[events.Progress]
    written[id(old)] = written[id(old)]._replace(content=msgspec.msgpack.encode("as it was"))
    assert msgspec.msgpack.decode(codec.encode(events.Progress, [new, old], remembered))[1] == "as it was"
    assert len(remembered.of[events.Progress]) == 2
    codec.encode(events.Progress, [new], remembered)
    assert list(remembered.of[events.Progress]) == [id(new)]


def test_what_is_gone_is_not_kept_and_not_mistaken_for_what_came_in_its_place() -> None:
    codec, remembered = ValueCodec(schema._VALUES, schema._LASTING), Remembered()
    old, new = progress_at(1), progress_at(2)
    codec.encode(events.Progress, [old], remembered)
    gone = weakref.ref(old)
    written = remembered.of[events.Progress]
    written[id(new)] = written.pop(id(old))  # as if it stood where the old one did
    del old
    assert gone() is None
    assert codec.encode(events.Progress, [new], remembered) == codec.encode(events.Progress, [new])


@dataclasses.dataclass(frozen=True)
class Named:
    """Frozen, and still nobody can tell what stands in it later."""

    numbers: dict[str, int]


def test_a_class_of_which_nobody_sees_when_a_value_is_gone_cannot_be_lasting() -> None:
    with pytest.raises(ValueError, match="a Markers lasts, and nobody sees when it is gone"):
        ValueCodec(schema._VALUES, [events.Markers])


@pytest.mark.parametrize(("cls", "parts"), [(events.HostVitals, "NicReading"), (_Seen, "_Seen"), (Named, "Named")])
def test_only_what_nobody_changes_can_be_lasting(cls: type, parts: str) -> None:
    with pytest.raises(ValueError, match=f"what it holds may change: {parts}"):
        ValueCodec([*schema._VALUES, Named], [cls])
