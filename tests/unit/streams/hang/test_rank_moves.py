"""Moves of ranks are counted as if one by one, and are written with the watch that counts them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pacehound.settings import HangSettings
from streams.hang.hang_watch import HangWatch
from streams.hang.rank_moves import RankMoves
from tests.fakes.examples import tries

WRITTEN = ("_counters", "_advanced_ns")


@pytest.mark.parametrize("seed", tries(4))
def test_whoever_is_said_to_have_moved_has_moved_once(seed: int) -> None:
    rng, moves = random.Random(seed), RankMoves()
    counted: dict[int, int] = {}
    last_ns: dict[int, int] = {}
    for now_ns in range(10, 70):
        ranks = rng.choices(range(3 * now_ns), k=rng.randrange(1, 6))
        ranks += rng.sample(ranks, 1)
        if rng.random() < 0.5:
            moves.have_moved(ranks, now_ns)
            moved = dict.fromkeys(ranks, now_ns)
        else:
            times_ns = [now_ns - rng.randrange(5) for _ in ranks]
            latest = {rank: max(at for one, at in zip(ranks, times_ns, strict=True) if one == rank) for rank in ranks}
            moved = {rank: at_ns for rank, at_ns in latest.items() if at_ns > last_ns.get(rank, 0)}
            assert moves.have_moved_by(np.array(ranks), np.array(times_ns)) == sorted(moved)
        last_ns |= moved
        for rank in moved:
            counted[rank] = counted.get(rank, 0) + 1
        assert {rank: n for rank, n in enumerate(moves.counters.tolist()) if n} == counted
        assert {rank: at_ns for rank, at_ns in enumerate(moves.advanced_ns.tolist()) if at_ns} == last_ns
        assert len(moves.counters) == max(counted) + 1, "it has the ranks that it has heard of"
        assert moves.is_later(ranks[0], last_ns[ranks[0]] - 1)
        assert not moves.is_later(ranks[0], last_ns[ranks[0]])
    assert not moves.is_later(max(counted) + 1, 0)
    assert max(counted.values()) > 1


def test_moves_stand_in_the_state_of_the_watch_as_two_columns() -> None:
    watch = HangWatch("j", 0, HangSettings())
    watch._moves.have_moved([0, 3], 7)
    state = watch.__getstate__()
    assert state["_counters"].tolist() == [1, 0, 0, 1]
    assert state["_advanced_ns"].tolist() == [7, 0, 0, 7]
    again = object.__new__(HangWatch)
    again.__setstate__({name: value.copy() if name in WRITTEN else value for name, value in state.items()})
    again._moves.have_moved([4], 8)
    assert again._moves.counters.tolist() == [1, 0, 0, 1, 1]
    for wrong in (np.zeros(3, np.int64), np.zeros(4, np.int32), np.zeros((4, 1), np.int64)):
        for name in WRITTEN:
            with pytest.raises(ValueError, match="type or length"):
                object.__new__(HangWatch).__setstate__({**state, name: wrong})
