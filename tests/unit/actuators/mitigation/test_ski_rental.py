"""When to go on to the next action: the bounds hold on whatever is tried, and the past makes it cheaper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.mitigation.ski_rental import optimum_s, paid_s, stated_bound, switches, worst_ratio
from actuators.mitigation.survival import Past, Survival, kaplan_meier
from actuators.mitigation.thresholds import LEAST_PAST, TRUST_IN_THE_PAST

CLOSE = 1 + 1e-9
CHAINS = st.lists(st.floats(1.0, 2000.0), min_size=1, max_size=3).map(sorted)
SHARES = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3)


def rates_of(prices: list[float], rate: float, removes: list[float]) -> list[float]:
    """What is left of a loss after each action; none makes it worse."""
    return [rate, *(rate * (1 - max(removes[: i + 1])) for i in range(len(prices)))]


def past_of(durations: np.ndarray) -> Survival:
    curve = kaplan_meier(Past(duration_s=float(d)) for d in durations)
    assert curve is not None
    return curve


def lognormal(seed: int, mean_s: float, spread: float, n: int) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(math.log(mean_s) - spread**2 / 2, spread, n)


def around_the_switches(prices: list[float], rates: list[float], losses: tuple[float, ...]) -> list[float]:
    """The durations that hurt most: it ends just when an action was taken, or just before, or never."""
    durations, time_s, loss_s = [1e-3, 1e7], 0.0, 0.0
    for i, switch_s in enumerate(losses):
        if rates[i] == 0:
            break
        time_s += (switch_s - loss_s) / rates[i]
        loss_s = switch_s
        durations += [time_s * (1 - 1e-12), time_s * (1 + 1e-12)]
    return durations


def mean_paid(durations: np.ndarray, prices: list[float], rates: list[float], losses: tuple[float, ...]) -> float:
    return float(np.mean([paid_s(float(d), prices, rates, losses)[0] for d in durations]))


@given(price=st.floats(0.1, 5000.0), rate=st.floats(0.01, 1.0), duration=st.floats(0.0, 1e6), left=st.floats(0.0, 1.0))
def test_with_one_action_and_no_past_at_most_twice_the_optimum_is_paid(price, rate, duration, left):
    found = switches([price], [rate, rate * left])
    assert found.worst_ratio == pytest.approx(2.0)
    for one in (duration, *around_the_switches([price], [rate, rate * left], found.losses_s)):
        total, _ = paid_s(one, [price], [rate, rate * left], found.losses_s)
        assert total <= 2 * optimum_s(one, [price], [rate, rate * left]) * CLOSE + 1e-9


@given(prices=CHAINS, removes=SHARES, rate=st.floats(0.01, 1.0), duration=st.floats(0.0, 1e6))
def test_with_several_actions_and_no_past_twice_and_what_earlier_ones_cost(prices, removes, rate, duration):
    rates = rates_of(prices, rate, removes)
    found = switches(prices, rates)
    assert found.worst_ratio <= stated_bound(prices, 1.0) * CLOSE
    for one in (duration, *around_the_switches(prices, rates, found.losses_s)):
        assert (
            paid_s(one, prices, rates, found.losses_s)[0] <= found.worst_ratio * optimum_s(one, prices, rates) * CLOSE
        )


def test_the_actions_of_a_slowdown_cost_at_most_2_08_times_the_optimum():
    assert round(stated_bound([5.0, 60.0, 1200.0], 1.0), 2) == 2.08


@given(
    prices=CHAINS,
    removes=SHARES,
    rate=st.floats(0.01, 1.0),
    mean=st.floats(1.0, 1e5),
    spread=st.floats(0.05, 2.5),
    seed=st.integers(0, 1000),
    trust=st.sampled_from([0.2, TRUST_IN_THE_PAST, 0.5, 1.0]),
)
def test_a_past_that_misleads_costs_no_more_than_the_stated_bound(prices, removes, rate, mean, spread, seed, trust):
    """Whatever the past was, the durations to come are chosen by an adversary who knows the moments."""
    rates = rates_of(prices, rate, removes)
    found = switches(prices, rates, past_of(lognormal(seed, mean, spread, 40)), trust)
    assert found.worst_ratio <= stated_bound(prices, trust) * CLOSE
    assert list(found.losses_s) == sorted(found.losses_s)
    for one in around_the_switches(prices, rates, found.losses_s):
        assert (
            paid_s(one, prices, rates, found.losses_s)[0] <= found.worst_ratio * optimum_s(one, prices, rates) * CLOSE
        )


def test_the_worst_case_of_one_action_is_reached():
    """The bound is tight: it ends at the moment at which the action was taken, or goes on for ever."""
    for switch in (1 / 3, 1.0, 3.0):
        losses = (100.0 * switch,)
        worst = max(
            paid_s(one, [100.0], [1.0, 0.0], losses)[0] / optimum_s(one, [100.0], [1.0, 0.0])
            for one in (100.0 * switch, 1e9)
        )
        assert worst == pytest.approx(worst_ratio([100.0], losses))
        assert worst <= stated_bound([100.0], TRUST_IN_THE_PAST) * CLOSE == pytest.approx(4.0)


@pytest.mark.parametrize("rate", [0.12, 0.26, 0.5])
def test_with_the_past_of_computation_fail_slows_it_is_a_sixth_cheaper_and_more(rate):
    """Falcon 3.2: 10 minutes on average, in the actions and prices of a computation fail-slow."""
    prices, removes = [5.0, 60.0, 1200.0], [0.66, 0.66, 1.0]
    rates = rates_of(prices, rate, removes)
    found = switches(prices, rates, past_of(lognormal(1, 600.0, 1.0, 300)))
    fresh = lognormal(2, 600.0, 1.0, 4000)
    assert mean_paid(fresh, prices, rates, found.losses_s) <= 0.85 * mean_paid(fresh, prices, rates, tuple(prices))


@pytest.mark.parametrize(("mean_s", "rate"), [(4320.0, 0.5), (4320.0, 0.8)])
def test_with_a_past_of_one_host_and_kind_congestion_is_a_sixth_cheaper_too(mean_s, rate):
    """Falcon 3.4: 72 minutes on average at scale; where host and kind leave a spread of half of an e-fold."""
    found = switches([1200.0], [rate, 0.0], past_of(lognormal(1, mean_s, 0.5, 60)))
    fresh = lognormal(2, mean_s, 0.5, 4000)
    assert mean_paid(fresh, [1200.0], [rate, 0.0], found.losses_s) <= 0.85 * mean_paid(
        fresh, [1200.0], [rate, 0.0], (1200.0,)
    )


@pytest.mark.parametrize(("mean_s", "spread"), [(600.0, 1.0), (1440.0, 1.2), (4320.0, 1.2), (4320.0, 2.0)])
def test_what_the_past_says_is_never_much_dearer_when_it_is_true(mean_s, spread):
    prices, rates = [60.0, 1200.0], [0.26, 0.156, 0.0]
    found = switches(prices, rates, past_of(lognormal(1, mean_s, spread, 300)))
    assert found.expected_s is not None
    assert found.expected_without_s is not None
    assert found.expected_s <= found.expected_without_s
    fresh = lognormal(2, mean_s, spread, 4000)
    assert mean_paid(fresh, prices, rates, found.losses_s) <= 1.02 * mean_paid(fresh, prices, rates, tuple(prices))


def test_what_is_expected_is_what_is_paid_on_average():
    prices, rates = [60.0, 1200.0], [0.5, 0.3, 0.0]
    durations = lognormal(3, 3000.0, 1.0, 500)
    found = switches(prices, rates, past_of(durations))
    assert found.expected_s == pytest.approx(mean_paid(durations, prices, rates, found.losses_s), rel=1e-6)


def test_too_short_a_past_moves_nothing():
    few = past_of(lognormal(1, 600.0, 1.0, LEAST_PAST - 1))
    assert switches([5.0, 60.0], [0.5, 0.2, 0.2], few).losses_s == (5.0, 60.0)


@pytest.mark.parametrize(
    ("prices", "rates", "trust", "said"),
    [
        ([60.0, 5.0], [0.5, 0.2, 0.1], 0.5, "ascend"),
        ([0.0], [0.5, 0.2], 0.5, "positive"),
        ([5.0], [0.2, 0.5], 0.5, "must not grow"),
        ([5.0], [0.2], 0.5, "one more"),
        ([5.0], [0.5, 0.2], 0.0, "trust is 0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(prices, rates, trust, said):
    with pytest.raises(ValueError, match=said):
        switches(prices, rates, None, trust)


@pytest.mark.prove
def test_no_duration_and_no_rates_break_the_stated_bound():
    """A hundred thousand chains of actions, each tried where it hurts most and at random."""
    rng = np.random.default_rng(3)
    for _ in range(100_000):
        k = int(rng.integers(1, 5))
        prices = sorted(float(p) for p in rng.lognormal(4.0, 2.0, k))
        rates = sorted((float(r) for r in rng.uniform(0.0, 1.0, k + 1)), reverse=True)
        trust = float(rng.choice([0.2, TRUST_IN_THE_PAST, 0.5, 1.0]))
        losses = tuple(np.maximum.accumulate([p * trust ** rng.uniform(-1, 1) for p in prices]).tolist())
        bound = worst_ratio(prices, losses)
        for one in (float(rng.lognormal(5.0, 3.0)), *around_the_switches(prices, rates, losses)):
            assert paid_s(one, prices, rates, losses)[0] <= bound * optimum_s(one, prices, rates) * CLOSE
