"""Digests of pairs as one table hold what they hold pair by pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.calls import OPS
from tests.fakes.examples import tries
from tests.fakes.made_pairs import drawn_pairs, pairs_of


@pytest.mark.parametrize("seed", tries(5))
def test_pair_by_pair_they_are_the_same(seed: int) -> None:
    whole = drawn_pairs(np.random.default_rng(seed), 60)
    blocks = list(whole.by_pair())
    assert len(blocks) == len(whole.begins) == len({(one.communicator, one.ranks) for one in blocks})
    assert all(one.is_pair and one.is_digest for one in blocks)
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


@pytest.mark.parametrize(
    "said",
    [
        {"source": "c10d"},
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
