"""Bayesian online changepoint detection: how long ago did this series last change its level? In C (`native/bocd.c`)."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address
from streams.level.records import record

FloatArray = npt.NDArray[np.float64]

PRUNE = 1e-7
"""Run lengths less probable than this are given up. Verdicts stay those of the exact posterior (docs/scoreboard.md)."""


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

    Run lengths are bounded: the last cell means "at least 128 observations" and forgets exponentially, so
    time and memory per observation are constant. Run lengths that have become improbable are given up (`PRUNE`).

    It knows neither correlated noise nor outliers: it answers "did something change?" eagerly, and verification.c
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
        self._record = np.zeros(1, record("posterior"))
        native_loops.loaded().bocd_begin(self._address(), *map(ctypes.c_double, (level, level_spread, noise)))

    def _address(self) -> Any:
        return address(self._record, record("posterior"))

    def update(self, x: float) -> None:
        """Take the next observation (finite, else ValueError)."""
        if not math.isfinite(x):
            raise ValueError(f"an observation must be finite, got {x}")
        native_loops.loaded().bocd_observe(self._address(), ctypes.c_double(x), ctypes.c_double(self._prune))

    def mass_within(self, n: int) -> float:
        """Probability that the present run holds at most `n` observations."""
        ask = native_loops.loaded().bocd_mass_within
        ask.restype = ctypes.c_double
        mass: float = ask(self._address(), ctypes.c_int64(n))
        return mass

    @property
    def most_likely_run(self) -> int:
        """The most probable number of observations in the present run; 0 before the first."""
        return int(self._record["probability"][0].argmax())

    def probabilities(self) -> FloatArray:
        """Shape `(129,)`: entry `r` is the probability that the run holds `r` observations."""
        probability: FloatArray = self._record["probability"][0].copy()
        return probability
