"""Transfer times and the comparison of groups with their peers."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.groups import GroupTransfer, outliers, transfer_times_s, typical_transfer_s

MS = 10**6


def equal_groups(times_s, kind="all_reduce 4 MiB x 8"):
    return [GroupTransfer(group=f"g{i:04d}", kind=kind, transfer_s=t) for i, t in enumerate(times_s)]


def test_transfer_time_starts_with_the_last_rank():
    start = np.array([[10, 30, 20], [10, 12, 11]]) * MS
    end = np.array([[40, 40, 41], [20, 20, 20]]) * MS
    assert transfer_times_s(start, end).tolist() == pytest.approx([0.011, 0.008])


def test_rounds_with_a_missing_start_no_end_or_contradicting_clocks_are_unknown():
    start = np.array([[10, 0], [10, 20], [10, 90]]) * MS
    end = np.array([[40, 40], [0, 0], [40, 40]]) * MS
    assert np.isnan(transfer_times_s(start, end)).all()


def test_a_missing_end_is_made_up_for_by_the_others():
    assert transfer_times_s(np.array([[10, 20]]) * MS, np.array([[0, 50]]) * MS).tolist() == [0.03]


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        transfer_times_s(np.zeros((2, 3), np.int64), np.zeros((2, 2), np.int64))
    assert len(transfer_times_s(np.zeros((0, 3), np.int64), np.zeros((0, 3), np.int64))) == 0


def test_typical_transfer_needs_enough_rounds_and_ignores_a_spike():
    start = np.full((9, 2), 10 * MS)
    end = np.full((9, 2), 14 * MS)
    end[3] = 900 * MS
    assert typical_transfer_s(start, end) == pytest.approx(0.004)
    assert math.isnan(typical_transfer_s(start[:7], end[:7]))


def test_two_groups_are_each_others_peers():
    found = outliers(equal_groups([1.0, 1.15]))
    assert [(o.group, o.peers) for o in found] == [("g0001", 1)]
    assert found[0].ratio == pytest.approx(1.15)


def test_kinds_are_kept_apart_and_a_group_alone_is_compared_with_nothing():
    groups = [*equal_groups([1.0, 1.0, 1.01]), GroupTransfer(group="pp", kind="send", transfer_s=9.0)]
    assert outliers(groups) == []


@pytest.mark.parametrize("n", [2, 3, 10, 1000])
def test_the_slow_ones_are_found_worst_first_among(n):
    rng = np.random.default_rng(n)
    times = 0.02 * (1.0 + rng.normal(0.0, 0.01, n))
    slow = sorted(rng.choice(n, size=max(1, n // 10), replace=False).tolist())
    times[slow] = 0.02 * np.linspace(1.3, 2.0, len(slow))
    found = outliers(equal_groups(times))
    assert sorted(o.group for o in found) == [f"g{i:04d}" for i in slow]
    assert [o.ratio for o in found] == sorted((o.ratio for o in found), reverse=True)


def test_unknown_transfers_are_left_out():
    assert outliers(equal_groups([math.nan, 0.0, -1.0, math.inf, 1.0])) == []
    assert [o.group for o in outliers(equal_groups([math.nan, 1.0, 2.0]))] == ["g0002"]


def test_threshold_must_be_above_one():
    with pytest.raises(ValueError, match="above 1"):
        outliers([], threshold=1.0)


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=60))
def test_outliers_are_those_above_the_median_of_the_others(times):
    expected = set()
    for i, t in enumerate(times):
        median = statistics.median(times[:i] + times[i + 1 :])
        if t / median > 1.1:
            expected.add(f"g{i:04d}")
    assert {o.group for o in outliers(equal_groups(times))} == expected
