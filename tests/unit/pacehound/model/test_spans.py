"""Members that are evenly spaced travel as three numbers, and come out as they were."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.errors import InvalidEvent
from pacehound.model import codec
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import MAX_WORLD_RANKS, UNKNOWN_MEMBER, Topology
from pacehound.model.flushes import Flush
from pacehound.model.spans import LEAST, MAX_AT_ONCE, in_full, in_short

WORLD = 4_096
SAME = {"job": "j", "attempt": 2, "host": "h", "time_ns": 7, "world_size": WORLD}


def topology(number: int, members: tuple[int, ...]) -> Topology:
    return Topology(
        **SAME, communicator=f"c{number}", name="dp", is_world=False, members=members, host_ranks=members[:1]
    )


def evenly(first: int, step: int, n_members: int) -> tuple[int, ...]:
    return tuple(rank for rank in range(first, first + step * n_members, step) if rank < WORLD)


MEMBERS = st.one_of(
    st.builds(evenly, st.integers(0, WORLD - 1), st.integers(1, 300), st.integers(1, 64)),
    st.lists(st.integers(0, WORLD - 1), min_size=1, max_size=12, unique=True).map(tuple),
    st.permutations(range(12)).map(tuple),
)


@given(st.lists(MEMBERS, max_size=8))
def test_what_a_host_announces_comes_as_it_was_and_in_its_order(members: list[tuple[int, ...]]) -> None:
    said = tuple(topology(number, one) for number, one in enumerate(members))
    full, short = in_short(said)
    assert in_full(full, short, job="j", attempt=2) == said
    flush = Flush(job="j", attempt=2, host="h", shard=0, topologies=said)
    conclusions = Conclusions(job="j", attempt=2, said=said)
    for event in (flush, conclusions):
        assert codec.decode(codec.encode(event)) == [event]


def test_a_large_world_is_short_and_all_who_read_it_share_its_ranks() -> None:
    world = replace(topology(0, tuple(range(WORLD))), is_world=True)
    flush = Flush(job="j", attempt=2, host="h", shard=0, topologies=(world,))
    content = codec.encode(flush)
    assert len(content) < 1_000
    (one,), (other,) = codec.decode(content), codec.decode(content)
    assert isinstance(one, Flush)
    assert isinstance(other, Flush)
    assert one.topologies[0].members is other.topologies[0].members


@pytest.mark.parametrize("first", [0, 16])
def test_members_that_are_shared_are_asked_for_what_others_are(first: int) -> None:
    """They are not looked at one by one."""
    (shared,) = in_full(*in_short([topology(0, tuple(range(first, first + 64)))]), job="j", attempt=2)
    own = replace(shared, members=tuple(range(first, first + 64)))
    assert shared == own
    assert shared.is_partial is own.is_partial is False
    for wrong in ({"world_size": first + 32}, {"host_ranks": (first, 80)}, {"host_ranks": (first - 1,)}):
        with pytest.raises(InvalidEvent) as of_shared:
            replace(shared, **wrong)
        with pytest.raises(InvalidEvent) as of_own:
            replace(own, **wrong)
        assert str(of_shared.value).split("[")[0] == str(of_own.value).split("[")[0]


def test_a_member_that_is_not_known_is_none_of_a_span() -> None:
    """Its place holds -1, which others may follow evenly."""
    said = (replace(topology(0, (0,)), members=(UNKNOWN_MEMBER, *range(LEAST))),)
    full, short = in_short(said)
    assert (full, short) == (said, ())
    flush = Flush(job="j", attempt=2, host="h", shard=0, topologies=said)
    assert codec.decode(codec.encode(flush)) == [flush]


@pytest.mark.parametrize(
    "said",
    [
        {"first": -1},
        {"step": 0},
        {"step": -1},
        {"n_members": 0},
        {"n_members": WORLD // 8 + 1},
        {"n_members": 10**12},
        {"world_size": 10**12, "n_members": MAX_WORLD_RANKS, "step": 2},
        {"at": 1},
        {"at": -1},
    ],
)
def test_a_span_that_cannot_be_true_is_refused_before_ranks_are_made_of_it(said: dict[str, int]) -> None:
    _, (span,) = in_short([topology(0, evenly(0, 8, WORLD // 8))])
    assert span.n_members >= LEAST
    with pytest.raises(InvalidEvent):
        in_full((), (replace(span, **said),), job="j", attempt=2)


def test_spans_of_one_message_stand_for_no_more_than_the_largest_world() -> None:
    _, (span,) = in_short([topology(0, evenly(0, 1, WORLD))])
    many = tuple(replace(span, at=at) for at in range(MAX_AT_ONCE // WORLD + 1))
    with pytest.raises(InvalidEvent, match="at most"):
        in_full((), many, job="j", attempt=2)


def test_two_spans_have_two_places() -> None:
    _, (span,) = in_short([topology(0, evenly(0, 1, WORLD))])
    with pytest.raises(InvalidEvent, match="places"):
        in_full((), (span, span), job="j", attempt=2)
    assert msgspec.json.decode(msgspec.json.encode(span), type=type(span)) == span
