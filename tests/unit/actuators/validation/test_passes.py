"""Every link of a ring or a tree is measured once, in a number of passes that does not grow with the ranks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.validation.passes import Pass, reversed_passes, ring_passes, tree_passes
from pacehound.errors import InvalidInput


def links(passes: tuple[Pass, ...]) -> list[tuple[int, int]]:
    return sorted(link for one in passes for link in one)


def assert_nobody_is_in_two_transfers(passes: tuple[Pass, ...]) -> None:
    for one in passes:
        busy = [rank for link in one for rank in link]
        assert len(busy) == len(set(busy)), one


@given(st.integers(2, 400))
def test_a_ring_is_covered_once(n_ranks: int) -> None:
    passes = ring_passes(n_ranks)
    assert links(passes) == sorted((rank, (rank + 1) % n_ranks) for rank in range(n_ranks))
    assert_nobody_is_in_two_transfers(passes)
    assert len(passes) == 2 + n_ranks % 2
    assert links(reversed_passes(passes)) == sorted(((rank + 1) % n_ranks, rank) for rank in range(n_ranks))


def some_tree(n_ranks: int, chance: random.Random) -> list[int]:
    parents, free = [-1] * n_ranks, [0, 0]
    order = list(range(n_ranks))
    chance.shuffle(order)
    free = [order[0]] * 2
    for rank in order[1:]:
        parents[rank] = free.pop(chance.randrange(len(free)))
        free += [rank] * 2
    return parents


@given(st.integers(1, 400), st.randoms(use_true_random=False))
def test_a_binary_tree_of_any_shape_is_covered_once_in_four_passes(n_ranks: int, chance: random.Random) -> None:
    parents = some_tree(n_ranks, chance)
    passes = tree_passes(parents)
    assert links(passes) == sorted((rank, parent) for rank, parent in enumerate(parents) if parent >= 0)
    assert_nobody_is_in_two_transfers(passes)
    assert len(passes) <= 4


@pytest.mark.parametrize("n_ranks", [16, 17, 128, 1_023, 4_096, 16_384])
def test_the_passes_do_not_grow_with_the_ranks(n_ranks: int) -> None:
    assert len(ring_passes(n_ranks)) == 2 + n_ranks % 2
    heap = [-1, *((rank - 1) // 2 for rank in range(1, n_ranks))]
    assert len(tree_passes(heap)) == 4


@pytest.mark.parametrize(
    ("parents", "why"),
    [
        ([-1, 0, 0, 0], "3 children"),
        ([-1, -1], "one root, not 2"),
        ([1, 0], "one root, not 0"),
        ([-1, 2, 1], "2 ranks go in a circle"),
        ([-1, 7], "has the parent 7"),
    ],
)
def test_what_is_no_binary_tree_is_refused(parents: list[int], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        tree_passes(parents)
