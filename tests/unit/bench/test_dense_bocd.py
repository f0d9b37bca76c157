"""The dense reference is the model that the detectors use."""

import numpy as np

from bench.dense_bocd import DenseBocd
from streams.level.bocd import MAX_RUN, RunLengthPosterior


def test_the_dense_posterior_of_every_series_is_the_exact_one():
    rng = np.random.default_rng(5)
    values = rng.normal(0.0, 0.02, (400, 3))
    values[150:170, 1] += 0.4
    values[300:, 2] -= 0.1
    dense = DenseBocd(3, level=0.0, level_spread=0.4, noise=0.02)
    exact = [RunLengthPosterior(level=0.0, level_spread=0.4, noise=0.02, prune=0.0) for _ in range(3)]
    for row in values:
        dense.update(row)
        for posterior, x in zip(exact, row, strict=True):
            posterior.update(float(x))
        np.testing.assert_allclose(dense.probabilities(), [one.probabilities() for one in exact], atol=1e-9)


def test_a_long_series_without_noise_keeps_a_finite_posterior():
    posterior = RunLengthPosterior(level=0.0, level_spread=0.4, noise=0.01)
    for _ in range(5_000):
        posterior.update(0.0)
    assert posterior.most_likely_run == MAX_RUN
    posterior.update(0.5)
    assert np.isfinite(posterior.probabilities()).all()
