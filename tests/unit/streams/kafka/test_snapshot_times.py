"""When states are written: behind a burst where that takes long, and never much later than before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.snapshot_times import EVERY_S, IDLE_SHARE, SHARE, SnapshotTimes

BEGAN_S = 1_000.0
TOOK = st.floats(0.0, 30.0)


def first_due(took_s: float, burst_ends_s: list[float], heartbeats_s: Sequence[float] = ()) -> float:
    """When they are written next by a worker that looks each tenth of a second; of heartbeats bursts are short."""
    times = SnapshotTimes()
    times.written(BEGAN_S, took_s)
    to_come, n = sorted([*((end_s, 0.2) for end_s in burst_ends_s), *((end_s, 0.05) for end_s in heartbeats_s)]), 0
    while True:
        now_s = BEGAN_S + n / 10
        while to_come and to_come[0][0] <= now_s:
            end_s, work_s = to_come.pop(0)
            times.worked(end_s - work_s, end_s)
        times.worked(now_s, now_s + 0.001)  # somebody says something all the time
        if times.are_due(now_s):
            return now_s
        n += 1


@given(took_s=TOOK, ends_s=st.lists(st.floats(BEGAN_S, BEGAN_S + 900), max_size=20))
def test_they_are_neither_written_sooner_than_they_may_be_nor_put_off_for_long(
    took_s: float, ends_s: list[float]
) -> None:
    every_s = max(EVERY_S, SHARE * took_s)
    waited_s = first_due(took_s, ends_s) - BEGAN_S
    assert every_s - 1e-6 <= waited_s <= 2 * every_s + 0.2


@given(took_s=st.floats(0.0, EVERY_S / SHARE), ends_s=st.lists(st.floats(BEGAN_S, BEGAN_S + 5), max_size=20))
def test_small_ones_wait_for_nothing(took_s: float, ends_s: list[float]) -> None:
    assert first_due(took_s, ends_s) - BEGAN_S <= EVERY_S + 0.2


def test_large_ones_wait_for_the_end_of_a_burst() -> None:
    assert 24.3 <= first_due(1.0, [BEGAN_S + 24.0]) - BEGAN_S <= 24.8


@pytest.mark.parametrize("iteration_s", [5.0, 12.0, 17.0])
def test_large_ones_are_not_written_behind_heartbeats(iteration_s: float) -> None:
    """Half a second before the end of an iteration all hosts may send one."""
    ends_s = [BEGAN_S + iteration_s * n + 1.0 for n in range(1, 9)]
    heartbeats_s = [end_s - before_s for end_s in ends_s for before_s in (0.5, 3.1)]
    due_s = first_due(1.0, ends_s, heartbeats_s)
    assert 0.2 < min(due_s - end_s for end_s in ends_s if due_s > end_s) < 0.8


@given(took_s=TOOK, last_s=st.floats(0.0, 60.0))
def test_they_are_written_soon_where_nothing_comes_any_more(took_s: float, last_s: float) -> None:
    times = SnapshotTimes()
    times.written(BEGAN_S, took_s)
    times.worked(BEGAN_S + last_s, BEGAN_S + last_s + 0.001)
    idle_s = max(EVERY_S, IDLE_SHARE * SHARE * took_s)
    assert times.are_due(BEGAN_S + last_s + idle_s + 0.1)
    if last_s + idle_s < SHARE * took_s:
        assert not times.are_due(BEGAN_S + last_s + idle_s - 0.1)
