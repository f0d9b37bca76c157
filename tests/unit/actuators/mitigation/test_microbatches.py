"""Micro-batches per replica: exact against all distributions there are, and an update that stays the same."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.mitigation.microbatches import distribute, gradient_weights


def best_of_all(times, total, caps):
    """The least bottleneck over every distribution."""
    ranges = [range(1, min(cap, total) + 1) for cap in caps[:-1]]
    found = np.inf
    for head in itertools.product(*ranges):
        last = total - sum(head)
        if 1 <= last <= caps[-1]:
            found = min(found, max(m * t for m, t in zip((*head, last), times, strict=True)))
    return found


def one_by_one(times, total, caps):
    """Each micro-batch to where it ends earliest: exact, and slow."""
    counts = [1] * len(times)
    heap = [(2 * t, i) for i, t in enumerate(times) if caps[i] > 1]
    heapq.heapify(heap)
    for _ in range(total - len(times)):
        _, i = heapq.heappop(heap)
        counts[i] += 1
        if counts[i] < caps[i]:
            heapq.heappush(heap, ((counts[i] + 1) * times[i], i))
    return np.array(counts)


@st.composite
def cases(draw, most_replicas=4, most_each=4):
    n = draw(st.integers(1, most_replicas))
    times = draw(st.lists(st.floats(0.1, 10.0), min_size=n, max_size=n))
    caps = draw(st.lists(st.integers(1, 2 * most_each), min_size=n, max_size=n))
    return times, draw(st.integers(n, max(n, min(sum(caps), most_each * n)))), caps


@given(cases())
def test_no_distribution_has_a_smaller_bottleneck(case):
    times, total, caps = case
    plan = distribute(times, total, caps)
    assert plan.counts.sum() == total
    assert (plan.counts >= 1).all()
    assert (plan.counts <= caps).all()
    assert plan.bottleneck_s == best_of_all(times, total, caps)


@given(cases(most_replicas=40, most_each=30), st.booleans())
def test_it_is_what_giving_them_away_one_by_one_comes_to(case, is_coarse):
    """With times that are equal among many replicas too."""
    times, total, caps = case
    times = [float(round(t) or 1) for t in times] if is_coarse else times
    plan, slow = distribute(times, total, caps), one_by_one(times, total, caps)
    assert plan.counts.sum() == total
    assert plan.bottleneck_s == (slow * np.array(times)).max()


@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
def test_replicas_that_differ_by_orders_of_magnitude(spread):
    times = np.random.default_rng(0).uniform(1, spread, 300)
    plan = distribute(times, 9000)
    assert plan.bottleneck_s == (one_by_one(times.tolist(), 9000, [9000] * 300) * times).max()


def test_falcons_case_of_one_slow_replica_of_four():
    """One of four at half speed: 16 rounds become 10, and not 9.14, for micro-batches are whole."""
    plan = distribute([1.0, 1.0, 1.0, 2.0], 32)
    assert (plan.counts.sum(), plan.bottleneck_s) == (32, 10.0)
    assert distribute([1.0, 1.0, 1.0, 2.0], 32, [9, 9, 9, 9]).counts.tolist() == [9, 9, 9, 5]


def test_the_update_is_that_of_the_global_batch():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(32, 7))
    plan = distribute([1.0, 1.2, 1.0, 2.0], 32)
    ends = np.cumsum(plan.counts)
    own = [gradients[end - n : end].mean(axis=0) for n, end in zip(plan.counts, ends, strict=True)]
    update = np.mean([w * g for w, g in zip(plan.weights, own, strict=True)], axis=0)
    np.testing.assert_allclose(update, gradients.mean(axis=0), rtol=1e-12)
    assert gradient_weights(plan.counts).mean() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("times", "total", "caps", "said"),
    [
        ([1.0, 0.0], 4, None, r"there are \[0.0\]"),
        ([1.0, np.nan], 4, None, "positive and finite"),
        ([], 4, None, "one replica at least"),
        ([1.0, 1.0], 1, None, "1 micro-batches are fewer than 2 replicas"),
        ([1.0, 1.0], 9, [4, 4], "memory allows 8 micro-batches and there are 9"),
        ([1.0, 1.0], 4, [0, 4], "has to leave the job"),
    ],
)
def test_what_cannot_be_distributed_is_refused(times, total, caps, said):
    with pytest.raises(ValueError, match=said):
        distribute(times, total, caps)


def test_the_least_variance_of_falcons_equation_never_has_a_smaller_bottleneck():
    pytest.importorskip("cvxpy")
    from actuators.mitigation.quadratic import least_variance

    rng = np.random.default_rng(0)
    for n in (2, 4, 8):
        times = rng.uniform(1.0, 2.0, n)
        ours, theirs = distribute(times, 8 * n), least_variance(times, 8 * n)
        assert theirs.counts.sum() == 8 * n
        assert ours.bottleneck_s <= (theirs.counts * times).max() <= ours.bottleneck_s * 1.25
