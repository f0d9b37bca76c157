"""Rounds of pairs as one table hold what they hold pair by pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.calls import OPS
from pacehound.model.digests import digests_of
from pacehound.model.pair_rounds import joined_pairs
from tests.fakes.examples import tries
from tests.fakes.made_pairs import drawn_pairs, pairs_of


@pytest.mark.parametrize("source", ["c10d", digests_of("c10d")])
@pytest.mark.parametrize("seed", tries(5))
def test_pair_by_pair_they_are_the_same(seed: int, source: str) -> None:
    whole = drawn_pairs(np.random.default_rng(seed), 60, source=source)
    blocks = list(whole.by_pair())
    assert len(blocks) == len(whole.begins) == len({(one.communicator, one.ranks) for one in blocks})
    assert all(one.is_pair and one.is_digest is whole.is_digest is (source != "c10d") for one in blocks)
    assert np.concatenate([one.times_ns for one in blocks]).tolist() == whole.times_ns.tolist()
    again = pairs_of(blocks)
    for name in ("communicator", "ranks", "seq", "op", "size_bytes", "arrival_ns", "start_ns", "end_ns"):
        assert np.array_equal(getattr(again, name), getattr(whole, name))
    assert again.identity() == whole.identity()
    assert again.time_ns == max(one.time_ns for one in blocks)


def test_of_none_there_is_no_pair() -> None:
    none = drawn_pairs(np.random.default_rng(0), 60).chosen(slice(0))
    assert list(none.by_pair()) == []
    assert none.time_ns == 0
    assert none.identity() != drawn_pairs(np.random.default_rng(0), 60).identity()


@pytest.mark.parametrize("seed", tries(5))
def test_those_of_a_rank_are_the_pairs_that_it_is_in(seed: int) -> None:
    whole = drawn_pairs(np.random.default_rng(seed), 60)
    expected = [one.seq.tolist() for one in whole.by_pair() if 2 in one.ranks]
    assert [one.seq.tolist() for one in whole.of_rank(2).by_pair()] == expected


@pytest.mark.parametrize("seed", tries(5))
def test_parts_are_joined_however_they_were_cut(seed: int) -> None:
    """Those of another source, or with rates, stay a table of their own."""
    rng = np.random.default_rng(seed)
    whole, other = drawn_pairs(rng, 60), drawn_pairs(rng, 20, source="c10d")
    rated = replace(other, send_rate=other.end_ns / 2, recv_rate=other.end_ns / 3, algorithm=other.op % 3)
    lines = np.split(rng.permutation(len(whole)), np.sort(rng.integers(0, len(whole), 3)))
    parts = [whole.chosen(np.sort(some)) for some in lines]
    joined = joined_pairs([*parts, rated, whole.chosen(slice(0)), other])
    assert [(one.source, one.send_rate is not None) for one in joined] == [
        ("c10d", False),
        ("c10d", True),
        (whole.source, False),
    ]
    for found, expected in zip(joined, (other, rated, whole), strict=True):
        assert [str(one) for one in found.by_pair()] == [str(one) for one in expected.by_pair()]
        for name in ("seq", "op", "arrival_ns", "end_ns", "recv_rate", "algorithm"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("late", [(), (3,), (0, 5)])
def test_what_came_late_of_a_pair_stands_where_it_belongs(late: tuple[int, ...]) -> None:
    """A round that was closed without a row, behind later ones."""
    many = drawn_pairs(np.random.default_rng(3), 200, n_ranks=2, communicators=("a", "b"))
    pair = next(one for one in many.by_pair() if len(one) == 6)
    others = many.chosen(slice(0, 4))
    parts = [
        pairs_of([pair.chosen([at for at in range(6) if at not in late])]),
        others,
        *(pairs_of([pair.chosen([at])]) for at in late),
    ]
    (joined,) = joined_pairs(parts)
    whose = [
        (joined.communicators[at], *ranks) for at, ranks in zip(joined.communicator, joined.ranks.tolist(), strict=True)
    ]
    assert list(zip(whose, joined.seq.tolist(), strict=True)) == sorted(zip(whose, joined.seq.tolist(), strict=True))
    assert len(joined) == 10


@pytest.mark.parametrize(
    "said",
    [
        {"communicators": ("a", "b")},
        {"communicator": np.full(3, -1)},
        {"ranks": np.zeros((3, 3), np.int64)},
        {"end_ns": np.zeros(3, np.int64)},
        {"op": np.full(3, len(OPS), np.int8)},
        {"algorithm": np.full(3, 9, np.int8)},
        {"send_rate": np.zeros(3)},
    ],
)
def test_what_cannot_be_true_is_refused(said: dict[str, Any]) -> None:
    three = replace(drawn_pairs(np.random.default_rng(1), 60).chosen(slice(3)), communicator=np.array([0, 1, 2]))
    with pytest.raises(InvalidEvent):
        replace(three, **said)
