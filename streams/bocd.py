"""Bayesian online changepoint detection: how long ago did this series last change its level?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_NOISE_WEIGHT = 2.0  # NIG alpha: what is known of the noise before a run weighs as much as 2 * alpha observations


class RunLengthPosterior:
    """Posterior of the run length (observations since the last changepoint) of one series.

    Each run is Gaussian with unknown mean and variance under a Normal-inverse-gamma prior, so its predictive is a
    Student t; changepoints come with a constant hazard `h`. With `p_t(r)` the probability that the run holds `r`
    observations after `x_t`:

        p_t(r + 1)  proportional to  p_{t-1}(r) * t(x_t | the run's last r observations) * (1 - h)
        p_t(1)      proportional to  h * t(x_t | prior)

    The first observation of a run is scored under the prior. That is why short run lengths carry evidence here: in
    the textbook's order, where the old run still scores `x_t`, `P(r_t = 0)` equals the hazard whatever comes in.
    Ask for `mass_within(n)`, the probability that the level changed within the last `n` observations.

    Run lengths are bounded: the last cell means "at least `max_run` observations" and forgets exponentially, so
    time and memory per observation are constant (`4 * max_run` floats).

    It knows neither correlated noise nor outliers: it answers "did something change?" eagerly, and verification.py
    decides whether that matters.

    Parameters
    ----------
    level
        Prior mean of a run's level, in the unit of the observations.
    level_spread
        Prior standard deviation of a run's level.
    noise
        Prior standard deviation of the observations about their level.
    hazard
        Probability of a changepoint per observation.
    max_run
        Longest run length that is told apart.

    References
    ----------
    R. P. Adams, D. J. C. MacKay, "Bayesian Online Changepoint Detection", 2007; Falcon, section 4.2, appendix 9.1.

    Examples
    --------
    >>> posterior = RunLengthPosterior(level=0.0, level_spread=1.0, noise=0.1)
    >>> for x in [0.0, 0.1, -0.1, 0.0] * 10 + [1.0, 1.1, 0.9]:
    ...     posterior.update(x)
    >>> posterior.most_likely_run, round(posterior.mass_within(3), 2)
    (3, 1.0)

    """

    def __init__(
        self, *, level: float, level_spread: float, noise: float, hazard: float = 1.0 / 200.0, max_run: int = 128
    ) -> None:
        if not (level_spread > 0.0 and noise > 0.0 and 0.0 < hazard < 1.0 and max_run >= 2):
            raise ValueError(
                f"a prior needs level_spread > 0, noise > 0, 0 < hazard < 1, max_run >= 2; "
                f"got {level_spread}, {noise}, {hazard}, {max_run}"
            )
        self._prior = (float(level), float(level_spread), float(noise), float(hazard))
        kappa_0 = (noise / level_spread) ** 2
        lengths = np.arange(max_run + 1, dtype=np.float64)  # row 0 is the prior: a run that holds nothing yet
        self._kappa: FloatArray = kappa_0 + lengths
        alpha = _NOISE_WEIGHT + 0.5 * lengths
        self._beta_0 = _NOISE_WEIGHT * noise**2
        self._level_0 = float(level)
        # The t predictive has 2 alpha degrees of freedom and scale^2 = beta (kappa + 1) / (alpha kappa).
        self._half_power: FloatArray = alpha + 0.5
        self._spread: FloatArray = 2.0 * (self._kappa + 1.0) / self._kappa  # scale^2 * 2 alpha / beta
        self._log_norm: FloatArray = np.array(
            [math.lgamma(a + 0.5) - math.lgamma(a) for a in alpha], np.float64
        ) - 0.5 * np.log(math.pi * self._spread)
        self._log_stay, self._log_change = math.log1p(-hazard), math.log(hazard)
        self._forget = float(alpha[-1] / (alpha[-1] + 0.5))
        self._probability: FloatArray = np.zeros(max_run + 1)
        self._mean: FloatArray = np.full(max_run + 1, self._level_0)
        self._beta: FloatArray = np.full(max_run + 1, self._beta_0)
        self._is_empty = True

    def update(self, x: float) -> None:
        """Take the next observation (finite, else ValueError)."""
        if not math.isfinite(x):
            raise ValueError(f"an observation must be finite, got {x}")
        deviation = x - self._mean
        log_predictive = (
            self._log_norm
            - 0.5 * np.log(self._beta)
            - self._half_power * np.log1p(deviation * deviation / (self._spread * self._beta))
        )
        grown = np.zeros_like(self._probability)
        stays = 0.0
        if self._is_empty:
            grown[1] = 1.0
            self._is_empty = False
        else:
            # In proportion to the likeliest run that is alive, so that nothing underflows as a whole.
            alive = self._probability > 0.0
            top = float(log_predictive[alive].max())
            weight = self._probability * np.exp(np.minimum(log_predictive - top + self._log_stay, 600.0))
            change = math.exp(min(float(log_predictive[0]) - top + self._log_change, 600.0))
            grown[2:] = weight[1:-1]
            grown[1] = change
            grown[-1] += weight[-1]
            grown /= grown.sum()
            # Two runs meet in the last cell, the one that is there and the one that reaches it.
            both = float(weight[-1] + weight[-2])
            stays = float(weight[-1]) / both if both > 0.0 else 0.0
        mean = self._mean + deviation / (self._kappa + 1.0)
        beta = self._beta + 0.5 * self._kappa / (self._kappa + 1.0) * deviation * deviation
        self._mean[1:] = mean[:-1]
        self._beta[1:] = beta[:-1]
        self._mean[-1] = stays * mean[-1] + (1.0 - stays) * mean[-2]
        self._beta[-1] = stays * beta[-1] * self._forget + (1.0 - stays) * beta[-2]
        self._probability = grown

    def mass_within(self, n: int) -> float:
        """Probability that the present run holds at most `n` observations."""
        return float(self._probability[1 : n + 1].sum())

    @property
    def most_likely_run(self) -> int:
        """The most probable number of observations in the present run; 0 before the first."""
        return int(self._probability.argmax())

    def snapshot(self) -> dict[str, list[float] | int | bool]:
        """Its prior and state as numbers and lists."""
        return {
            "prior": list(self._prior),
            "max_run": len(self._probability) - 1,
            "is_empty": self._is_empty,
            "probability": self._probability.tolist(),
            "mean": self._mean.tolist(),
            "beta": self._beta.tolist(),
        }

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any]) -> RunLengthPosterior:
        """The posterior that a snapshot was taken of."""
        level, level_spread, noise, hazard = snapshot["prior"]
        posterior = cls(level=level, level_spread=level_spread, noise=noise, hazard=hazard, max_run=snapshot["max_run"])
        posterior._is_empty = bool(snapshot["is_empty"])
        posterior._probability = np.array(snapshot["probability"], np.float64)
        posterior._mean = np.array(snapshot["mean"], np.float64)
        posterior._beta = np.array(snapshot["beta"], np.float64)
        return posterior

    def probabilities(self) -> FloatArray:
        """Shape `(max_run + 1,)`: entry `r` is the probability that the run holds `r` observations."""
        return self._probability.copy()
