"""Where hosts say what they have to say of a communicator: what all of them must know alike."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.events import Topology
from pacehound.model.shards import NEIGHBOURS, RANKS_PER_SHARD, has_one_home, home_of, place_of
from streams.rounds.relay import Relay, is_passed_on, joined_by

WORLDS = st.integers(1_025, 20_000)


@st.composite
def communicators(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """Members that lie anywhere, or evenly spaced, and the size of their world."""
    world_size = draw(WORLDS)
    if draw(st.booleans()):
        return tuple(draw(st.lists(st.integers(0, world_size - 1), min_size=1, max_size=20, unique=True))), world_size
    first, step = draw(st.integers(0, world_size - 1)), draw(st.sampled_from([1, 2, 8, 16, 64, 128, 1_024]))
    return tuple(range(first, world_size, step)[:40]), world_size


@given(communicators())
def test_all_hosts_of_a_communicator_that_is_joined_at_home_have_that_home(drawn: tuple[Sequence[int], int]) -> None:
    members, world_size = drawn
    places = {place_of("c", members, rank, world_size) for rank in members}
    assert all(place.is_home for place in places)
    assert has_one_home(members, world_size) == (len(places) == 1)
    assert all(0 <= place.shard < -(-world_size // RANKS_PER_SHARD) for place in places)


@given(communicators(), st.data())
def test_whoever_announces_a_communicator_to_its_home_has_it_joined_by_the_same_shard(
    drawn: tuple[tuple[int, ...], int], data: st.DataObject
) -> None:
    members, world_size = drawn
    shuffled = tuple(data.draw(st.permutations(members)))
    said = [announced(ranks, world_size) for ranks in (members, shuffled)]
    assert len({is_passed_on(one) for one in said}) == 1
    assert len({joined_by(one) for one in said}) == 1
    assert Relay().announce([said[0]]) == ([] if is_passed_on(said[0]) else [said[0]])


def announced(members: tuple[int, ...], world_size: int) -> Topology:
    return Topology(
        job="j", attempt=0, time_ns=5, host="h", communicator="c", name="dp", is_world=False,
        members=members, host_ranks=members[:1], world_size=world_size,
    )  # fmt: skip


@given(WORLDS)
def test_homes_have_as_many_hosts_each_as_can_be(world_size: int) -> None:
    hosts = range(0, world_size, NEIGHBOURS)
    n_of_home = [0] * -(-world_size // RANKS_PER_SHARD)
    for rank in hosts:
        n_of_home[home_of(rank, world_size)] += 1
    assert max(n_of_home) - min(n_of_home) <= 1


def test_a_place_that_a_host_does_not_know_is_joined_elsewhere() -> None:
    assert not has_one_home((-1, 3), 4_096)
    assert place_of("c", (), 9, 4_096) == place_of("tp", range(8, 16), 8, 4_096)


def test_no_home_where_jobs_are_small_are_told_of_in_iterations_or_began_without() -> None:
    assert not place_of("c", range(8), 0, 1_024).is_home
    assert not place_of("c", range(8), 0, 16_384, 512).is_home
    assert not place_of("c", range(8), 0, 40_000, 512).is_home
    assert not place_of("c", range(8), 0, 16_384, has_homes=False).is_home
    assert place_of("c", range(8), 0, 16_384, 20_000).is_home, "a job below the size from which digests are told"
