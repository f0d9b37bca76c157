"""Who is measured beside a few ranks: enough to judge them by, and never the whole of a large job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.validation.peers import with_peers
from actuators.validation.thresholds import LEAST_PEERS, PEERS_EACH_SIDE
from pacehound.errors import InvalidInput


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]], list[int]]:
    """A world, rows and columns of it as communicators, and some ranks."""
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(3, 40))
    world = range(rows * columns)
    groups = [tuple(world[row * columns : (row + 1) * columns]) for row in range(rows)]
    groups += [tuple(world[column::columns]) for column in range(columns)]
    known = draw(st.lists(st.sampled_from(groups), max_size=len(groups)))
    return len(world), known, draw(st.lists(st.sampled_from(world), min_size=1, max_size=3))


@given(jobs())
def test_everybody_asked_for_has_peers_and_they_are_few(job: tuple[int, list[tuple[int, ...]], list[int]]) -> None:
    world_size, groups, asked = job
    found = with_peers(asked, groups, world_size)
    assert set(asked) <= set(found) <= set(range(world_size))
    assert list(found) == sorted(set(found))
    assert len(found) > LEAST_PEERS
    in_groups = sum(rank in group for rank in asked for group in groups)
    assert len(found) <= len(asked) + 2 * PEERS_EACH_SIDE * (in_groups + len(asked))


def test_peers_are_those_of_its_communicators_and_not_the_whole_job() -> None:
    tensor, data = [(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert with_peers([5], [range(8), *tensor, *data], 8) == (1, 4, 5, 6, 7)


def test_a_communicator_whose_other_members_are_not_known_is_no_peer() -> None:
    assert with_peers([5], [(5, -1, -1)], 100) == tuple(range(1, 10))


def test_a_rank_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="there is no rank 9: the job has ranks 0 to 7"):
        with_peers([1, 9], [], 8)
