"""Transfer times and the comparison of groups with their peers."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.slow.groups import GroupTransfer, outliers
from tests.fakes.examples import tries


def equal_groups(times_s, kind="all_reduce 4 MiB x 8"):
    return [GroupTransfer(group=f"g{i:04d}", kind=kind, transfer_s=t) for i, t in enumerate(times_s)]


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


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=8))
def test_few_exact_outliers_are_those_above_the_median_of_the_others(times):
    expected = set()
    for i, t in enumerate(times):
        median = statistics.median(times[:i] + times[i + 1 :])
        if t / median > 1.1:
            expected.add(f"g{i:04d}")
    assert {o.group for o in outliers(equal_groups(times))} == expected


def noisy_groups(seed, factors, n_rounds=64, jitter=0.03, spikes=0.1):
    """Groups whose rounds have lognormal jitter, and some that take three to ten times as long."""
    rng = np.random.default_rng(seed)
    times_s = 0.02 * np.asarray(factors)[:, None] * np.exp(jitter * rng.standard_normal((len(factors), n_rounds)))
    times_s *= np.where(rng.random(times_s.shape) < spikes, rng.uniform(3.0, 10.0, times_s.shape), 1.0)
    return [
        GroupTransfer(group=f"g{i:04d}", kind="k", transfer_s=float(np.median(row)), rounds_s=tuple(row.tolist()))
        for i, row in enumerate(times_s)
    ]


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9, 30, 100, 1000])
@pytest.mark.parametrize("n_rounds", [8, 20, 64])
def test_noise_and_spikes_make_no_outlier(n, n_rounds):
    """With eight rounds the ratio alone would call some of 1,000 groups slow."""
    for seed in tries(max(1, 200 // n)):
        assert outliers(noisy_groups([seed, n], np.ones(n), n_rounds)) == []


@pytest.mark.parametrize("n", [9, 100, 1000])
def test_groups_that_differ_a_little_for_good_are_no_outliers(n):
    for seed in tries(4):
        factors = np.exp(0.05 * np.random.default_rng(seed).standard_normal(n))
        assert len(outliers(noisy_groups(seed, factors))) <= (1 if n == 9 else 0)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 9, 10, 33, 100, 333, 1000])
def test_one_slow_group_of_many_is_found_and_no_other(n):
    for seed in range(5):
        factors = np.ones(n)
        factors[seed % n] = 1.25
        assert [o.group for o in outliers(noisy_groups([seed, n], factors))] == [f"g{seed % n:04d}"]


@pytest.mark.parametrize("n", [3, 6, 9, 12, 30, 100, 1000])
def test_a_third_of_the_groups_may_be_slow(n):
    rng = np.random.default_rng(n)
    slow = np.sort(rng.choice(n, n // 3, replace=False))
    factors = np.ones(n)
    factors[slow] = rng.uniform(1.25, 2.0, len(slow))
    assert sorted(o.group for o in outliers(noisy_groups(n, factors))) == [f"g{i:04d}" for i in slow]


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.floats(1e-6, 1e6))
def test_neither_order_nor_unit_matters(seed, n, scale):
    rng = np.random.default_rng(seed)
    groups = noisy_groups(seed, rng.choice([1.0, 1.4], n, p=[0.8, 0.2]), n_rounds=16)
    found = outliers(groups)
    assert outliers([groups[i] for i in rng.permutation(n)]) == found
    scaled = [
        GroupTransfer(
            group=g.group, kind=g.kind, transfer_s=g.transfer_s * scale, rounds_s=tuple(t * scale for t in g.rounds_s)
        )
        for g in groups
    ]
    assert {o.group for o in outliers(scaled)} == {o.group for o in found}


def test_few_rounds_call_nobody_slow_among_many_groups():
    times = [1.0] * 999 + [2.0]
    few, enough = ([GroupTransfer(group=str(i), kind="k", transfer_s=t, rounds_s=(t,) * n) for i, t in enumerate(times)]
                   for n in (12, 20))  # fmt: skip
    assert outliers(few) == []
    assert [o.group for o in outliers(enough)] == ["999"]
