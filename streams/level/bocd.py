"""Bayesian online changepoint detection: how long ago did this series last change its level?"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streams.compiled import compiled
from streams.level.verification import LANES, in_pairs

FloatArray = npt.NDArray[np.float64]

MAX_RUN = 128
"""Longest run length that is told apart; the last cell means "at least so many observations"."""

HAZARD = 1.0 / 200.0
PRUNE = 1e-7
"""Run lengths less probable than this are given up. Verdicts stay those of the exact posterior (docs/scoreboard.md)."""

_NOISE_WEIGHT = 2.0  # NIG alpha: what is known of the noise before a run weighs as much as 2 * alpha observations
_ODDS_OF_CHANGE = HAZARD / (1.0 - HAZARD)
_ALPHA = _NOISE_WEIGHT + 0.5 * np.arange(MAX_RUN + 1, dtype=np.float64)


def _gammas() -> FloatArray:
    """Gamma(alpha + 1/2) / Gamma(alpha) of each run length: of two neighbours the product is alpha."""
    ratios = [0.75 * math.sqrt(math.pi)]
    for alpha in _ALPHA[:-1]:
        ratios.append(float(alpha) / ratios[-1])
    return np.array(ratios)


_GAMMA = _gammas()
_FORGET = float(_ALPHA[-1] / (_ALPHA[-1] + 0.5))
_LEAST_BETA = 1e-6  # of the prior's: a series without any noise would otherwise forget it down to 0

POSTERIOR = np.dtype(
    [
        ("level_0", "f8"),
        ("kappa_0", "f8"),
        ("beta_0", "f8"),
        ("probability", "f8", (MAX_RUN + 1,)),
        ("mean", "f8", (MAX_RUN + 1,)),
        ("beta", "f8", (MAX_RUN + 1,)),
    ]
)
"""Cell `r` of the three arrays: the run that holds `r` observations. Cell 0 is the prior: a run that holds none yet."""


@compiled
def begin(posterior, level: float, level_spread: float, noise: float) -> None:  # type: ignore[no-untyped-def]
    """Set the prior: a run's level is `level` +- `level_spread`, the observations scatter about it by `noise`."""
    posterior.level_0 = level
    posterior.kappa_0 = (noise / level_spread) ** 2
    posterior.beta_0 = _NOISE_WEIGHT * noise * noise
    posterior.probability[:] = 0.0
    posterior.mean[:] = level
    posterior.beta[:] = posterior.beta_0


@compiled
def observe(posterior, x: float, prune: float) -> None:  # type: ignore[no-untyped-def]
    """Take the next observation (finite); run lengths below `prune` are given up, 0 keeps all.

    A run of `r` observations predicts with 2 alpha = 4 + r degrees of freedom and scale^2 = beta (kappa + 1) /
    (alpha kappa). With `beta'` after the observation that is, but for a constant, the product

        t(x) = GAMMA[r] * sqrt(kappa / (kappa + 1) / beta) * sqrt(beta / beta')^(r + 5)

    whose power is a whole number: squares and products in the place of two logarithms and an exponential. Every
    cell takes the same path, so the compiler works on several of them at once (seven times as fast).
    """
    probability, mean, beta = posterior.probability, posterior.mean, posterior.beta
    kappa_0 = posterior.kappa_0
    weight = np.empty(MAX_RUN + 1)
    next_mean = np.empty(MAX_RUN + 1)
    next_beta = np.empty(MAX_RUN + 1)
    probability[0] = _ODDS_OF_CHANGE
    for run in range(MAX_RUN + 1):
        kappa = kappa_0 + run
        share = kappa / (kappa + 1.0)
        deviation = x - mean[run]
        next_mean[run] = mean[run] + deviation / (kappa + 1.0)
        next_beta[run] = beta[run] + 0.5 * share * deviation * deviation
        square = math.sqrt(beta[run] / next_beta[run])
        power = 1.0
        for bit in range(8):
            power *= square if (run + 5) >> bit & 1 else 1.0
            square *= square
        weight[run] = probability[run] * _GAMMA[run] * math.sqrt(share / beta[run]) * power
    probability[0] = 0.0
    total = _sum(weight)
    probability[1] = weight[0] / total
    for run in range(1, MAX_RUN):
        now = weight[run] / total
        probability[run + 1] = now if now > prune else 0.0
    # Two runs meet in the last cell, the one that is there and the one that reaches it.
    both = weight[MAX_RUN] + weight[MAX_RUN - 1]
    stays = weight[MAX_RUN] / both if both > 0.0 else 0.0
    probability[MAX_RUN] = both / total if both / total > prune else 0.0
    mean[1:MAX_RUN] = next_mean[: MAX_RUN - 1]
    beta[1:MAX_RUN] = next_beta[: MAX_RUN - 1]
    mean[MAX_RUN] = stays * next_mean[MAX_RUN] + (1.0 - stays) * next_mean[MAX_RUN - 1]
    last_beta = stays * next_beta[MAX_RUN] * _FORGET + (1.0 - stays) * next_beta[MAX_RUN - 1]
    beta[MAX_RUN] = max(last_beta, _LEAST_BETA * posterior.beta_0)


@compiled
def _sum(values: FloatArray) -> float:
    lanes = np.zeros(LANES)
    for i in range(len(values)):
        lanes[i % LANES] += values[i]
    return in_pairs(lanes)


@compiled
def mass_within(posterior, n: int) -> float:  # type: ignore[no-untyped-def]
    """Probability that the present run holds at most `n` observations."""
    return float(_sum(posterior.probability[1 : n + 1]) / _sum(posterior.probability))


@compiled
def most_likely_run(posterior) -> int:  # type: ignore[no-untyped-def]
    """The most probable number of observations in the present run; 0 before the first."""
    return int(posterior.probability.argmax())


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

    Run lengths are bounded: the last cell means "at least `MAX_RUN` observations" and forgets exponentially, so
    time and memory per observation are constant. Run lengths that have become improbable are given up (`PRUNE`).

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
    prune
        Probability below which a run length is given up; 0 for the exact posterior.

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

    def __init__(self, *, level: float, level_spread: float, noise: float, prune: float = PRUNE) -> None:
        if not (level_spread > 0.0 and noise > 0.0 and 0.0 <= prune < 0.01):
            raise ValueError(
                f"a prior needs level_spread > 0, noise > 0 and 0 <= prune < 0.01; got {level_spread}, {noise}, {prune}"
            )
        self._prune = prune
        self._record = np.zeros(1, POSTERIOR)
        begin(self._record[0], level, level_spread, noise)

    def update(self, x: float) -> None:
        """Take the next observation (finite, else ValueError)."""
        if not math.isfinite(x):
            raise ValueError(f"an observation must be finite, got {x}")
        observe(self._record[0], x, self._prune)

    def mass_within(self, n: int) -> float:
        """Probability that the present run holds at most `n` observations."""
        return mass_within(self._record[0], n)

    @property
    def most_likely_run(self) -> int:
        """The most probable number of observations in the present run; 0 before the first."""
        return most_likely_run(self._record[0])

    def probabilities(self) -> FloatArray:
        """Shape `(MAX_RUN + 1,)`: entry `r` is the probability that the run holds `r` observations."""
        probability: FloatArray = self._record["probability"][0].copy()
        return probability
