"""RunLengthPosterior against a plain NumPy form and the textbook recursion, and its traps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.level.bocd import RunLengthPosterior
from tests.fakes.examples import examples, tries

HAZARD = 1.0 / 200.0
MAX_RUN = 128
PROBABILITY = 0.9  # that is believed
PRIOR = {"level": 0.0, "level_spread": 0.5, "noise": 0.05}


def student_t(x, mean, kappa, alpha, beta):
    scale_squared = beta * (kappa + 1.0) / (alpha * kappa)
    nu = 2.0 * alpha
    log_density = math.lgamma((nu + 1.0) / 2.0) - math.lgamma(nu / 2.0) - 0.5 * math.log(nu * math.pi * scale_squared)
    return math.exp(log_density - (nu + 1.0) / 2.0 * math.log1p((x - mean) ** 2 / (nu * scale_squared)))


def textbook(values):
    """The exact, unbounded recursion, one run at a time: (probability, mean, kappa, alpha, beta) by run length."""
    kappa_0 = (PRIOR["noise"] / PRIOR["level_spread"]) ** 2
    prior = (PRIOR["level"], kappa_0, 2.0, 2.0 * PRIOR["noise"] ** 2)
    runs = []
    for x in values:
        grown = [(p * student_t(x, *run) * (1.0 - HAZARD), run) for p, run in runs]
        born = student_t(x, *prior) * (HAZARD * sum(p for p, _ in runs) if runs else 1.0)
        weighted = [(born, prior), *grown]
        total = sum(p for p, _ in weighted)
        runs = [
            (p / total, ((k * m + x) / (k + 1.0), k + 1.0, a + 0.5, b + k * (x - m) ** 2 / (2.0 * (k + 1.0))))
            for p, (m, k, a, b) in weighted
        ]
    return [p for p, _ in runs]


class Dense:
    """All run lengths at once as NumPy arrays, none given up: the same bounded posterior, written the other way."""

    def __init__(self, *, level, level_spread, noise):
        runs = np.arange(MAX_RUN + 1)
        self.kappa = (noise / level_spread) ** 2 + runs
        self.alpha = 2.0 + 0.5 * runs
        self.probability = np.zeros(MAX_RUN + 1)
        self.mean = np.full(MAX_RUN + 1, level)
        self.beta = np.full(MAX_RUN + 1, 2.0 * noise**2)
        self.gammas = np.array([math.lgamma(a + 0.5) - math.lgamma(a) for a in self.alpha])

    def update(self, x):
        deviation = x - self.mean
        spread = 2.0 * (self.kappa + 1.0) / self.kappa * self.beta
        score = self.gammas - 0.5 * np.log(math.pi * spread) - (self.alpha + 0.5) * np.log1p(deviation**2 / spread)
        grown, stays = np.zeros(MAX_RUN + 1), 0.0
        if not self.probability.any():
            grown[1] = 1.0
        else:
            top = score[self.probability > 0.0].max()
            weight = self.probability * (1.0 - HAZARD) * np.exp(np.minimum(score - top, 600.0))
            grown[2:] = weight[1:-1]
            grown[1] = HAZARD * math.exp(min(score[0] - top, 600.0))
            grown[-1] += weight[-1]
            grown /= grown.sum()
            both = weight[-1] + weight[-2]
            stays = weight[-1] / both if both > 0.0 else 0.0
        mean = self.mean + deviation / (self.kappa + 1.0)
        beta = self.beta + 0.5 * self.kappa / (self.kappa + 1.0) * deviation**2
        forget = self.alpha[-1] / (self.alpha[-1] + 0.5)
        self.mean[1:] = mean[:-1]
        self.beta[1:] = beta[:-1]
        self.mean[-1] = stays * mean[-1] + (1.0 - stays) * mean[-2]
        self.beta[-1] = stays * beta[-1] * forget + (1.0 - stays) * beta[-2]
        self.probability = grown

    def mass_within(self, n):
        return self.probability[1 : n + 1].sum()


def some_levels(seed):
    """A few hundred observations about levels that change now and then, with spikes."""
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.normal(0.0, 0.3, 6), rng.integers(5, 180, 6))
    values = levels + rng.normal(0.0, rng.uniform(0.005, 0.1), len(levels))
    is_spike = rng.random(len(values)) < 0.02
    values[is_spike] += rng.exponential(1.0, is_spike.sum())
    return values


def test_posterior_equals_the_exact_recursion_while_the_runs_fit():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(0.0, 0.05, 40), rng.normal(0.15, 0.05, 20)])
    posterior = RunLengthPosterior(**PRIOR, prune=0.0)
    for x in values:
        posterior.update(x)
    np.testing.assert_allclose(posterior.probabilities()[1 : len(values) + 1], textbook(values), atol=1e-10)


@pytest.mark.parametrize("seed", tries(3, deep=6))
def test_unpruned_it_is_the_plain_form_to_the_last_digits(seed):
    whole, plain = RunLengthPosterior(**PRIOR, prune=0.0), Dense(**PRIOR)
    for x in some_levels(seed):
        whole.update(x)
        plain.update(x)
        np.testing.assert_allclose(whole.probabilities(), plain.probability, rtol=0, atol=1e-12)
        assert whole.mass_within(64) == pytest.approx(plain.mass_within(64), abs=1e-12)


def test_pruned_it_says_the_same():
    """Spikes and noise far from the prior's are its worst case: 0.001 nearly always, and never another verdict."""
    differences = []
    for seed in tries(10, deep=30):
        whole, pruned = RunLengthPosterior(**PRIOR, prune=0.0), RunLengthPosterior(**PRIOR)
        for x in some_levels(seed):
            whole.update(x)
            pruned.update(x)
            exact, quick = whole.mass_within(64), pruned.mass_within(64)
            differences.append(abs(exact - quick))
            assert (quick >= PROBABILITY) == (exact >= PROBABILITY)
    assert max(differences) < 0.01
    assert np.quantile(differences, 0.99) < 1e-3


def test_bounded_posterior_stays_close_to_the_exact_one():
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(0.0, 0.05, 400), rng.normal(0.2, 0.05, 12)])
    posterior = RunLengthPosterior(**PRIOR)
    for x in values:
        posterior.update(x)
    exact = textbook(values)
    assert posterior.mass_within(20) == pytest.approx(sum(exact[:20]), abs=0.01)
    assert posterior.most_likely_run == int(np.argmax(exact)) + 1


def test_short_runs_gain_mass_at_a_change_and_lose_it_without():
    rng = np.random.default_rng(3)
    posterior = RunLengthPosterior(**PRIOR)
    for x in rng.normal(0.0, 0.05, 300):
        posterior.update(x)
    assert posterior.mass_within(10) < 0.3
    for x in rng.normal(0.3, 0.05, 4):
        posterior.update(x)
    assert posterior.mass_within(10) > 0.99
    assert posterior.most_likely_run == 4


@pytest.mark.parametrize("prune", [0.0, 1e-7])
def test_extreme_observations_leave_a_distribution(prune):
    posterior = RunLengthPosterior(**PRIOR, prune=prune)
    for x in [0.0] * 200 + [700.0] + [0.0] * 5 + [-700.0, 1e6] + [0.0] * 200:
        posterior.update(x)
        assert posterior.probabilities().sum() == pytest.approx(1.0, abs=1e-4)
        assert 0.0 <= posterior.mass_within(64) <= 1.0


@examples(20)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200))
def test_any_finite_numbers_leave_probabilities(values):
    posterior = RunLengthPosterior(**PRIOR)
    for x in values:
        posterior.update(x)
    probability = posterior.probabilities()
    assert np.isfinite(probability).all()
    assert probability.min() >= 0.0
    assert probability.sum() == pytest.approx(1.0, abs=1e-4)
    assert 1 <= posterior.most_likely_run <= len(values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_observation_that_is_no_number_is_refused(bad):
    posterior = RunLengthPosterior(**PRIOR)
    with pytest.raises(ValueError, match="finite"):
        posterior.update(bad)
    assert posterior.most_likely_run == 0


@pytest.mark.parametrize("wrong", [{"noise": 0.0}, {"level_spread": -1.0}, {"prune": -1e-9}, {"prune": 0.5}])
def test_impossible_priors_are_refused(wrong):
    with pytest.raises(ValueError, match="noise > 0"):
        RunLengthPosterior(**PRIOR | wrong)


def test_a_long_series_without_noise_keeps_a_finite_posterior():
    posterior = RunLengthPosterior(level=0.0, level_spread=0.4, noise=0.01)
    for _ in range(5_000):
        posterior.update(0.0)
    assert posterior.most_likely_run == MAX_RUN
    posterior.update(0.5)
    assert np.isfinite(posterior.probabilities()).all()
