"""Bayesian online changepoint detection as the textbook writes it, over many series at once in NumPy: a reference."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streams.level.bocd import HAZARD, MAX_RUN

FloatArray = npt.NDArray[np.float64]

_ALPHA_0 = 2.0


class DenseBocd:
    """The same model as `streams.level.bocd.RunLengthPosterior`, every run length of every series at every step.

    Densities are taken in logarithms and nothing is given up. It is the posterior alone: no noise, no verification.

    Parameters
    ----------
    n
        Number of series.
    level, level_spread, noise
        The prior, the same for all.

    """

    def __init__(self, n: int, *, level: float, level_spread: float, noise: float) -> None:
        runs = np.arange(MAX_RUN + 1, dtype=np.float64)
        self._kappa = (noise / level_spread) ** 2 + runs
        self._alpha = _ALPHA_0 + 0.5 * runs
        self._constant = np.array([math.lgamma(a + 0.5) - math.lgamma(a) for a in self._alpha]) - 0.5 * np.log(np.pi)
        beta_0 = _ALPHA_0 * noise * noise
        self._mean = np.full((n, MAX_RUN + 1), level)
        self._beta = np.full((n, MAX_RUN + 1), beta_0)
        self._probability = np.zeros((n, MAX_RUN + 1))
        self._is_first = True

    def update(self, x: FloatArray) -> None:
        """Take the next observation of every series, shape `(n,)`."""
        deviation = x[:, None] - self._mean
        spread = 2.0 * (self._kappa + 1.0) / self._kappa * self._beta
        log_density = (
            self._constant - 0.5 * np.log(spread) - (self._alpha + 0.5) * np.log1p(deviation * deviation / spread)
        )
        log_density -= log_density.max(axis=1, keepdims=True)
        weight = np.exp(log_density) * self._probability * (1.0 - HAZARD)
        weight[:, 0] = np.exp(log_density[:, 0]) * (1.0 if self._is_first else HAZARD)
        self._is_first = False
        mean = self._mean + deviation / (self._kappa + 1.0)
        beta = self._beta + 0.5 * self._kappa / (self._kappa + 1.0) * deviation * deviation
        # Two runs meet in the last cell, the one that is there and the one that reaches it; it forgets.
        beta[:, -1] *= self._alpha[-1] / (self._alpha[-1] + 0.5)
        both = weight[:, -1] + weight[:, -2]
        stays = np.divide(weight[:, -1], both, out=np.zeros_like(both), where=both > 0.0)
        self._mean[:, 1:] = mean[:, :-1]
        self._beta[:, 1:] = beta[:, :-1]
        self._mean[:, -1] = stays * mean[:, -1] + (1.0 - stays) * mean[:, -2]
        self._beta[:, -1] = stays * beta[:, -1] + (1.0 - stays) * beta[:, -2]
        self._probability[:, 1:] = weight[:, :-1]
        self._probability[:, -1] = both
        self._probability[:, 0] = 0.0
        self._probability /= self._probability.sum(axis=1, keepdims=True)

    def probabilities(self) -> FloatArray:
        """Shape `(n, MAX_RUN + 1)`: entry `r` is the probability that the run holds `r` observations."""
        return self._probability.copy()
