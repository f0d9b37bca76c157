"""A state is data: it comes back as it was, or is refused; no bytes make anything else, and none run anything."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import random
import types
import typing
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.events import PairProgress
from pacehound.model.made_of_fields import fields_of
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams.hang.rank_progress import ProgressTable
from streams.job.stage_two import StageTwo
from streams.level.changepoint import ChangepointDetector
from streams.pipeline import Pipeline
from streams.rounds.assembly import RoundGrid
from streams.snapshots import schema
from streams.snapshots.codec import MalformedState, StateCodec, UnknownState
from streams.snapshots.schema import SCHEMA_VERSION, state_codec
from tests.fakes.events import topology
from tests.fakes.examples import examples, tries
from tests.fakes.for_every import for_every
from tests.fakes.grid_rows import add

SETTINGS = Settings.load({"PACEHOUND_STORE_PASSWORD": "a secret of the store"}, ["hang.suspect_after_s=3"])
CODEC = state_codec(SETTINGS)
HEAD = f"pacehound state {SCHEMA_VERSION}\n".encode()


class Node:
    """Something that may point at itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.next: Any = None


@dataclasses.dataclass(frozen=True)
class Pair:
    left: int
    right: int = 2


NODES = StateCodec(version=1, plain={Node: ("name", "next")}, made=(Pair,))

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",))),
    st.binary(),
)
keys = st.one_of(st.integers(), st.text(max_size=3), st.tuples(st.integers(0, 9), st.text(max_size=2)))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.lists(inner).map(lambda found: deque(found, maxlen=7)),
        st.dictionaries(keys.filter(lambda key: not isinstance(key, int) or abs(key) < 2**63), inner),
        st.sets(st.integers(-9, 9)),
        st.frozensets(st.tuples(st.integers(0, 9), st.integers(0, 9))),
        st.dictionaries(st.text(max_size=3), st.integers(0, 9)).map(Counter),
    ),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of equal types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(same, a, b)) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0)
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return bool(a == b)


@examples(12, deep=1_500)
@given(values)
def test_whatever_is_made_of_plain_parts_comes_back_as_it_was(value: Any) -> None:
    assert same(NODES.decode(NODES.encode(value)), value)


@pytest.mark.parametrize("name", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_an_array_comes_back_with_its_type_and_its_shape_and_can_be_written_to(name: str) -> None:
    for shape in ((0,), (3,), (2, 3), (0, 4), ()):
        array = np.asarray(np.random.default_rng(1).integers(0, 2, shape)).astype(name)
        again = CODEC.decode(CODEC.encode([array, array.T]))
        for x, y in zip(again, [array, array.T], strict=True):
            assert (x.dtype, x.shape) == (array.dtype, y.shape)
            assert (x == y).all(), shape
        assert again[0].flags.writeable, shape


def test_what_is_reached_twice_is_one_thing_also_where_it_holds_itself() -> None:
    node, shared = Node("a"), [1, [2]]
    node.next = {"self": node, "twice": (shared, shared)}
    again = NODES.decode(NODES.encode(node))
    assert again.next["self"] is again
    assert again.next["twice"][0] is again.next["twice"][1] == shared


def test_a_dataclass_may_get_a_field_with_a_default_and_a_plain_class_may_not() -> None:
    fewer = (
        NODES.encode(Pair(1))
        .replace(b"\x92\xa4left\xa5right", b"\x91\xa4left")
        .replace(b"\x94\x0b\x00\x01\x02", b"\x93\x0b\x00\x01")
    )
    assert NODES.decode(fewer) == Pair(1, 2)
    before = StateCodec(version=1, plain={Node: ("name",)}, made=())
    node = Node("a")
    del node.next
    with pytest.raises(MalformedState, match="a Node of other fields than here: next"):
        NODES.decode(before.encode(node))
    node.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(UnknownState, match="differ in the fields extra, next"):
        NODES.encode(node)


@pytest.mark.parametrize(
    "value", [object(), print, np.zeros(2, object), np.zeros(1, "M8[s]"), np.float64(1), 1 << 70, "\ud800", [{1: Node}]]
)
def test_what_the_schema_does_not_name_is_not_written(value: Any) -> None:
    with pytest.raises(UnknownState):
        CODEC.encode(value)


def deep(n: int) -> bytes:
    return b"\x92\x03" * n + b"\x91\x03"


def body(root: Any, table: Sequence[Any] = (), values: Sequence[tuple[int, bytes]] = ()) -> bytes:
    return HEAD + msgspec.msgpack.encode([table, values, root])


packed = msgspec.msgpack.encode
PAIR = [1, "send", 2, 3]
PAIRS = [("PairProgress", ["peer", "direction", "last_launched", "last_completed"])]
MARKERS = [("Markers", ["job", "attempt", "host", "communicator", "ranks", "names", "steps", "times_ns"])]

HOSTILE = {
    "nothing": b"",
    "a pickle": pickle.dumps(Pair(1)),
    "another schema": HEAD.replace(f" {SCHEMA_VERSION}\n".encode(), b" 77\n") + b"\x93\x90\x90\xc0",
    "no table": HEAD + b"\xc0",
    "a list of 4 G": HEAD + b"\x93\x90\x90\xdd\xff\xff\xff\xff",
    "text of 4 G": HEAD + b"\x93\x90\x90\xdb\xff\xff\xff\xff",
    "deeper than a stack": HEAD + b"\x93\x90\x90" + deep(100_000),
    "deeper than ours": HEAD + b"\x93\x90\x90" + deep(400),
    "a map": body({"a": 1}),
    "a timestamp": HEAD + b"\x93\x90\x90\xd6\xff\x00\x00\x00\x01",
    "an unknown tag": body([99]),
    "a tag from the end": body([-1]),
    "no tag": body([]),
    "text as a tag": body(["system"]),
    "a class that is not there": body([11, 0, "x"], [("Popen", ["args"])]),
    "a class by its module": body([11, 0, "x"], [("os.system", ["args"])]),
    "a field that is none": body([11, 0, 1], [("StageOne", ["__class__"])]),
    "a field too few": body([11, 0, 1, None, False], [("StageOne", ["_lateness_ns", "communicator", "is_closed"])]),
    "a class from the end": body([11, -7, 1]),
    "an array of objects": body([9, "|O", [1], b"\0" * 8]),
    "an array longer than its bytes": body([9, "<i8", [1 << 40], b"\0" * 8]),
    "an array of less than nothing": body([9, "<i8", [-1, -1], b"\0" * 8]),
    "an array of many dimensions": body([9, "<i8", [1] * 99, b"\0" * 8]),
    "a pointer ahead": body([3, [0, 1]]),
    "a pointer from the end": body([3, [0, -1]]),
    "a tuple that holds itself": body([2, [0, 0]]),
    "a set of lists": body([4, [3]]),
    "a dict of lists": body([7, [[3]], [1]]),
    "a dict without values": body([7, [1, 2], [1]]),
    "a queue of less than nothing": body([6, -4, 1]),
    "an event that is none": body([12, b"no event"]),
    "settings of ours that are none": body([13, "KafkaSettings"]),
    "a value of no class": body([14, 0, 0], [], [(0, b"\x90")]),
    "a value ahead": body([14, 0, 1], PAIRS, [(0, packed([PAIR]))]),
    "a value from the end": body([14, 0, -1], PAIRS, [(0, packed([PAIR]))]),
    "values that were not written": body([14, 0, 0], PAIRS),
    "values of another class": body([14, 0, 0], [("StageOne", [])], [(0, packed([PAIR]))]),
    "a value as an object": body([11, 0, *PAIR], PAIRS),
    "a value of a field too few": body([14, 0, 0], PAIRS, [(0, packed([PAIR[:-1]]))]),
    "a value of a field too many": body([14, 0, 0], PAIRS, [(0, packed([[*PAIR, 1]]))]),
    "a value of other fields": body([14, 0, 0], [("PairProgress", ["peer", "odd"])], [(0, packed([PAIR[:2]]))]),
    "a value of too few fields": body([14, 0, 0], [("PairProgress", ["peer"])], [(0, packed([PAIR[:1]]))]),
    "a value of another type": body([14, 0, 0], PAIRS, [(0, packed([[1, "send", 2, "3"]]))]),
    "a value that no event may be": body([14, 0, 0], MARKERS, [(0, packed([["j", 0, "h", "c", [1], [], [1], [1]]]))]),
    "a part that has no fields": body([14, 0, 0], [("RankProgress", ["rank", "pairs"])], [(0, packed([[1, ()]]))]),
    "values that are no list": body([14, 0, 0], PAIRS, [(0, packed({"a": 1}))]),
    "a list of 4 G values": body([14, 0, 0], PAIRS, [(0, b"\xdd\xff\xff\xff\xff")]),
    "values and more": body([14, 0, 0], PAIRS, [(0, packed([PAIR]) + b"\x00")]),
    "values as text": body([14, 0, 0], PAIRS, [(0, "values")]),
}  # fmt: skip


@for_every(HOSTILE)
def test_bytes_that_are_no_state_are_refused(content: bytes) -> None:
    with pytest.raises(MalformedState):
        CODEC.decode(content)


@cache
def in_mid_job() -> Pipeline:
    """Two stages of a job that has become slow."""
    fault = SlowCompute(ranks=(3,), factor=1.4, from_step=60)
    spec = JobSpec(layout=Layout(tp=2, dp=2, pp=2), iterations=120, source=DEVICE_TIMES, faults=(fault,))
    pipeline = Pipeline(SETTINGS)
    recorded = list(simulate(spec).events())
    for event in recorded[: len(recorded) * 3 // 4]:
        pipeline.on_event(event)
    return pipeline


def test_of_a_value_that_is_reached_twice_there_is_one() -> None:
    pair = PairProgress(peer=1, direction="send")
    again = CODEC.decode(CODEC.encode([pair, pair, PairProgress(peer=1, direction="send")]))
    assert again == [pair] * 3
    assert again[0] is again[1]


def test_a_value_that_holds_what_its_class_does_not_declare_is_not_written() -> None:
    for peer in ("1", None, 1.5, np.int64(1), 1 << 70):
        with pytest.raises(UnknownState):
            CODEC.encode(PairProgress(peer=peer, direction="send"))  # type: ignore[arg-type]


def test_python_looks_for_cycles_again_when_a_state_is_read_or_refused() -> None:
    CODEC.decode(CODEC.encode([1]))
    with pytest.raises(MalformedState):
        CODEC.decode(body([99]))
    with pytest.raises(UnknownState):
        CODEC.encode(object())
    assert gc.isenabled()


def damaged(content: bytes, rng: random.Random) -> Iterator[bytes]:
    for _ in tries(10):
        yield content[: rng.randrange(len(content))]
        flipped = bytearray(content)
        for at in rng.choices(range(len(content)), k=rng.choice((1, 1, 4, 40))):
            flipped[at] ^= 1 << rng.randrange(8)
        yield bytes(flipped)
        begin, end = sorted(rng.choices(range(len(content)), k=2))
        yield content[:begin] + content[end:]


def test_a_damaged_state_is_refused_or_read_and_nothing_else_happens() -> None:
    """Of a whole job; `tests/contract/test_hostile_input.py` damages more of them."""
    content = in_mid_job().snapshot()
    reasons = []
    tried = list(damaged(content, random.Random(7)))
    for bad in tried:
        try:
            CODEC.decode(bad)
        except MalformedState as error:
            reasons.append(str(error))
    assert len(reasons) > len(tried) / 2.2
    assert max(map(len, reasons)) < 300


def test_the_state_of_a_job_is_written_the_same_again_and_holds_no_secret() -> None:
    content = in_mid_job().snapshot()
    again = Pipeline.restore(content, SETTINGS)
    assert again.snapshot() == content
    assert b"a secret of the store" not in content
    assert any(stage._settings is SETTINGS for stage in again._jobs.values())


def test_settings_are_those_of_whoever_reads() -> None:
    other = Settings.load({}, ["hang.suspect_after_s=11"])
    stage = state_codec(other).decode(CODEC.encode(StageTwo("j", SETTINGS)))
    assert stage._settings is other


def test_what_compiled_loops_rely_on_is_looked_at() -> None:
    """They do not look themselves: with these they would write where nothing of theirs is."""
    for has_transfers in (False, True):
        grid = grid_with_rows(has_transfers=has_transfers)
        lines = grid.__getstate__()["_lines"]
        others = [[*lines[:at], other, *lines[at + 1 :]] for at in range(len(lines)) for other in not_like(lines[at])]
        contradictions = [("_length", 5), ("_length", -1), ("_length", 1.0), ("n_ranks", 9), ("n_ranks", -2)]
        contradictions += [
            ("n_ranks", True),
            ("_base", None),
            ("_lines", None),
            *(("_lines", tuple(o)) for o in others),
        ]
        for name, value in (*contradictions, ("_lines", lines[:-1]), ("_lines", (*lines, lines[-1]))):
            with pytest.raises(MalformedState, match=r"a grid|zip\(\)"):
                CODEC.decode(writing(RoundGrid, {**grid.__getstate__(), name: value}))
    for name, value in (("_length", 5), ("n_ranks", -1), ("n_ranks", "2"), ("n_ranks", None)):
        with pytest.raises(MalformedState, match="a grid"):
            CODEC.decode(writing(RoundGrid, {**RoundGrid(2).__getstate__(), name: value}))
    for field, value in (("n_rows", 10**6), ("n_held", -2), ("state", 3), ("n_reference", -1)):
        detector = ChangepointDetector()
        detector._record[field] = value
        with pytest.raises(MalformedState, match="contradicts itself"):
            CODEC.decode(CODEC.encode(detector))


def grid_with_rows(*, has_transfers: bool) -> RoundGrid:
    """One whose first round is open, between two ranks of which one has come."""
    grid = RoundGrid(2)
    assert add(grid, [0], [3], has_rates=has_transfers)
    return grid


def not_like(array: np.ndarray) -> list[np.ndarray]:
    """Of another type, length, or number of axes; truth values that are neither true nor false."""
    untrue = [np.full(array.shape, 17, np.uint8).view(np.bool_)] if array.dtype == np.bool_ else []
    return [np.zeros(array.shape, np.uint16), array[:-1], array[None], *untrue]


def writing(cls: type, state: dict[str, Any]) -> bytes:
    """The bytes of an object whose own `__getstate__` would mend it."""
    names = sorted(state)
    return body([11, 0, *(array(state[name]) for name in names)], ((cls.__name__, names),))


def array(value: Any) -> Any:
    if isinstance(value, tuple):
        return [2, *map(array, value)]
    return [9, value.dtype.str, list(value.shape), value.tobytes()] if isinstance(value, np.ndarray) else value


def test_all_parts_of_what_the_schema_names_are_in_it() -> None:
    """What no test happens to reach would else be found when a job has it."""
    named = {*schema._PLAIN, *schema._MADE, *schema._VALUES}
    waiting, seen = [cls for cls in (*schema._MADE, *schema._VALUES) if fields_of(cls) is not None], set()
    while waiting:
        for hint in typing.get_type_hints(waiting.pop()).values():
            for part in parts_of(hint):
                if part not in seen and (fields_of(part) is not None or issubclass(part, Enum)):
                    seen.add(part)
                    waiting += [part] if fields_of(part) is not None else []
    assert seen - named == set()


def parts_of(hint: Any) -> Iterator[type]:
    arguments = typing.get_args(hint)
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        yield hint
    for argument in arguments if typing.get_origin(hint) is not typing.Literal else ():
        yield from parts_of(argument)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("rank", 1_006_632_963, "rank 1006632963"), ("rank", -2, "rank -2"), ("sequence", 1, "sequence 1")],
)
def test_progress_of_a_rank_or_sequence_that_cannot_be_is_refused(column: str, value: int, said: str) -> None:
    """The question who waits for whom made arrays of 8 GiB for such a rank."""
    table = ProgressTable()
    table.on_topology(topology())
    table.column(column)[0] = value
    with pytest.raises(MalformedState, match=said):
        CODEC.decode(CODEC.encode(table))
