"""RunLengthPosterior against the textbook recursion, and its traps."""

import json
import math

import numpy as np
import pytest

from streams.bocd import RunLengthPosterior

PRIOR = {"level": 0.0, "level_spread": 0.5, "noise": 0.05, "hazard": 1.0 / 100.0}


def student_t(x, mean, kappa, alpha, beta):
    scale_squared = beta * (kappa + 1.0) / (alpha * kappa)
    nu = 2.0 * alpha
    log_density = math.lgamma((nu + 1.0) / 2.0) - math.lgamma(nu / 2.0) - 0.5 * math.log(nu * math.pi * scale_squared)
    return math.exp(log_density - (nu + 1.0) / 2.0 * math.log1p((x - mean) ** 2 / (nu * scale_squared)))


def textbook(values):
    """The exact, unbounded recursion, one run at a time: (probability, mean, kappa, alpha, beta) by run length."""
    h, kappa_0 = PRIOR["hazard"], (PRIOR["noise"] / PRIOR["level_spread"]) ** 2
    prior = (PRIOR["level"], kappa_0, 2.0, 2.0 * PRIOR["noise"] ** 2)
    runs = []
    for x in values:
        grown = [(p * student_t(x, *run) * (1.0 - h), run) for p, run in runs]
        born = student_t(x, *prior) * (h * sum(p for p, _ in runs) if runs else 1.0)
        weighted = [(born, prior), *grown]
        total = sum(p for p, _ in weighted)
        runs = [
            (p / total, ((k * m + x) / (k + 1.0), k + 1.0, a + 0.5, b + k * (x - m) ** 2 / (2.0 * (k + 1.0))))
            for p, (m, k, a, b) in weighted
        ]
    return [p for p, _ in runs]


def test_posterior_equals_the_exact_recursion_while_the_runs_fit():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(0.0, 0.05, 40), rng.normal(0.15, 0.05, 20)])
    posterior = RunLengthPosterior(**PRIOR, max_run=128)
    for n in range(len(values)):
        posterior.update(values[n])
    np.testing.assert_allclose(posterior.probabilities()[1 : len(values) + 1], textbook(values), atol=1e-10)


def test_bounded_posterior_stays_close_to_the_exact_one():
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(0.0, 0.05, 200), rng.normal(0.2, 0.05, 12)])
    posterior = RunLengthPosterior(**PRIOR, max_run=64)
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


def test_snapshot_survives_json_and_goes_on_the_same():
    rng = np.random.default_rng(4)
    values = rng.normal(0.0, 0.05, 80)
    posterior = RunLengthPosterior(**PRIOR)
    for x in values[:50]:
        posterior.update(x)
    other = RunLengthPosterior.restored(json.loads(json.dumps(posterior.snapshot())))
    for x in values[50:]:
        posterior.update(x)
        other.update(x)
    assert posterior.probabilities().tolist() == other.probabilities().tolist()


def test_extreme_observations_leave_a_distribution():
    posterior = RunLengthPosterior(**PRIOR)
    for x in [0.0] * 200 + [700.0] + [0.0] * 5 + [-700.0, 1e6] + [0.0] * 200:
        posterior.update(x)
        assert posterior.probabilities().sum() == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_observation_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        RunLengthPosterior(**PRIOR).update(bad)


def test_impossible_priors_are_refused():
    with pytest.raises(ValueError, match="noise > 0"):
        RunLengthPosterior(level=0.0, level_spread=1.0, noise=0.0)
