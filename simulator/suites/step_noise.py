"""What the step times of a healthy job look like: jitter, spikes, pauses, warm-up and patterns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_MIN_CHANGE = 0.12
_SIGMAS = 4.0
_MEAN_OF = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Jitter of one series: the logarithm of a step time is an AR(1) process about its level."""

    sd: float  # standard deviation of the logarithm (0.01 is 1 % of jitter), spikes and patterns apart
    correlation: float = 0.0  # correlation of neighbouring steps, 0 to less than 1

    def __post_init__(self) -> None:
        if self.sd < 0.0 or not 0.0 <= self.correlation < 1.0:
            raise ValueError(f"noise needs sd >= 0 and 0 <= correlation < 1, got {self.sd} and {self.correlation}")

    def sd_of_mean(self, n: int) -> float:
        """Standard deviation of the mean of `n` consecutive steps, exactly.

        sd / sqrt(n) * sqrt((1 + rho) / (1 - rho) - 2 rho (1 - rho^n) / (n (1 - rho)^2))

        Examples
        --------
        >>> round(Noise(sd=0.03).sd_of_mean(9), 4), round(Noise(sd=0.03, correlation=0.8).sd_of_mean(30), 4)
        (0.01, 0.0152)
        """
        rho = self.correlation
        inflation = (1.0 + rho) / (1.0 - rho) - 2.0 * rho * (1.0 - rho**n) / (n * (1.0 - rho) ** 2)
        return self.sd * math.sqrt(inflation / n)

    def smallest_change(self) -> float:
        """The smallest change that must be found: 12 %, or 4 sigmas of a mean of 30 steps where those are more."""
        return max(_MIN_CHANGE, math.expm1(_SIGMAS * self.sd_of_mean(_MEAN_OF)))

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Shape `(n,)`: logarithms of step times about a level of 0, stationary from the first step."""
        rho = self.correlation
        # An AR(1) process is white noise convolved with the powers of rho; those below 1e-12 are left out.
        taps = 1 if rho == 0.0 else math.ceil(math.log(1e-12) / math.log(rho))
        kernel = rho ** np.arange(taps)
        white = rng.standard_normal(n + taps - 1)
        noise: FloatArray = self.sd * np.convolve(white, kernel / np.sqrt((kernel**2).sum()), "valid")
        return noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What the jobs of a population look like while nothing is wrong. Shares of the jobs, 0 to 1."""

    noisy: float = 0.1  # have 3 to 6 % of jitter; the others 0.3 to 3 %, evenly in the logarithm
    spiky: float = 0.5  # have single steps at x1.2 to x5, up to 0.5 % of the steps
    paused: float = 0.3  # have up to four pauses of x10 to x100
    warm_up: float = 0.6  # begin slower, for 10 to 30 steps
    # have that pattern; a job has one of them at most. A checkpoint is one long step every 100 to 1,000; an
    # evaluation one long step every 500 to 2,500 with some elevated ones after it; every 10th step or so is slow; odd
    # steps are slower than even ones
    checkpoint: float = 0.2
    evaluation: float = 0.1
    every_nth: float = 0.05
    alternating: float = 0.05

    def noise(self, rng: np.random.Generator) -> Noise:
        """The jitter of one job; one in four has independent steps."""
        is_noisy = rng.random() < self.noisy
        sd = rng.uniform(0.03, 0.06) if is_noisy else math.exp(rng.uniform(math.log(0.003), math.log(0.03)))
        correlation = 0.0 if rng.random() < 0.25 else rng.uniform(0.0, 0.8)
        return Noise(sd=sd, correlation=correlation)

    def texture(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Shape `(n,)`: factors by which spikes, pauses, warm-up and a pattern lengthen the steps of one job."""
        factor = np.ones(n)
        if rng.random() < self.spiky:
            is_spike = rng.random(n) < rng.uniform(0.0, 0.005)
            factor[is_spike] *= rng.uniform(1.2, 5.0, int(is_spike.sum()))
        if rng.random() < self.paused:
            pauses = rng.integers(0, n, rng.integers(1, 5))
            factor[pauses] *= np.exp(rng.uniform(math.log(10.0), math.log(100.0), len(pauses)))
        if rng.random() < self.warm_up:
            length = int(rng.integers(10, 31))
            factor[:length] *= 1.0 + rng.uniform(0.2, 2.0) * np.exp(-4.0 * np.arange(length) / length)
        patterns = (_checkpoints, _evaluations, _every_nth, _alternating)
        shares = (self.checkpoint, self.evaluation, self.every_nth, self.alternating)
        which = int(np.searchsorted(np.cumsum(shares), rng.random(), side="right"))
        return factor * patterns[which](rng, n) if which < len(patterns) else factor


QUIET = Mix(noisy=0.0, spiky=0.0, paused=0.0, warm_up=0.0, checkpoint=0.0, evaluation=0.0, every_nth=0.0, alternating=0)
"""Jitter and nothing else."""


def _checkpoints(rng: np.random.Generator, n: int) -> FloatArray:
    factor = np.ones(n)
    every = int(rng.integers(100, 1_001))
    factor[every - 1 :: every] = rng.uniform(2.0, 8.0)
    return factor


def _evaluations(rng: np.random.Generator, n: int) -> FloatArray:
    factor = np.ones(n)
    every, tail = int(rng.integers(500, 2_501)), int(rng.integers(2, 6))
    begins = np.arange(every - 1, n, every)
    factor[begins] = rng.uniform(5.0, 30.0)
    elevated = (begins[:, None] + 1 + np.arange(tail)).ravel()
    elevated = elevated[elevated < n]
    factor[elevated] = rng.uniform(1.03, 1.6, len(elevated))
    return factor


def _every_nth(rng: np.random.Generator, n: int) -> FloatArray:
    factor = np.ones(n)
    every = int(rng.integers(5, 21))
    factor[every - 1 :: every] = rng.uniform(1.5, 5.2)
    return factor


def _alternating(rng: np.random.Generator, n: int) -> FloatArray:
    factor = np.ones(n)
    factor[1::2] = rng.uniform(1.05, 1.3)
    return factor
