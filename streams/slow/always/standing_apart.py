"""Whose own time has stayed above that of its peers, by more than chance explains.

Each rank is held against the median of its peers in each iteration, and its excess is the median over the iterations:
what comes in fewer than half of them (logs, evaluations, a pause) does not move it. Where iterations are uneven
(sequences of other lengths) it is taken as a share of what the peers do in each. How much of it could be chance is
told by how the excess moves from iteration to iteration, neighbours included: noise that lasts averages out slowly. And
among many peers it must lie further from them than the farthest of so many normal values, for devices differ for good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from streams.slow.thresholds import (
    FALSE_ALARMS,
    LOOKED_AT,
    LOOKS,
    MANY_PEERS,
    MAX_LAG_SHARE,
    PERIODIC_SHARE,
    PERSISTS,
    QUARTERS,
    UNEVEN,
)
from streams.spread import MAD_TO_SIGMA

Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_ERROR_OF_MEDIAN = math.sqrt(math.pi / 2.0)
_WINSORIZED = 3.0


@dataclass(frozen=True, slots=True)
class Excess:
    """What ranks of one part do beyond their peers, in nanoseconds.

    Attributes
    ----------
    over_time
        Shape `(n_iterations, n_ranks)`.
    even
        The same where iterations are as long as each other; else as it would be if they were.
    level, even_level
        The medians of both over the iterations.
    error
        Standard error of `even_level`.
    spread
        Of the levels, as of a normal distribution; 0 where there are too few peers.
    usual
        The peers' median over ranks and iterations, for each rank.

    """

    over_time: Float64Array
    even: Float64Array
    level: Float64Array
    even_level: Float64Array
    error: Float64Array
    spread: float
    usual: Float64Array

    def is_apart(self, n_ranks: int) -> BoolArray:
        """Ranks that stand apart in a job of so many, from the first iteration to the last."""
        m = self.over_time.shape[1]
        if m < 2:
            return np.zeros(m, np.bool_)
        level = self.even_level
        above = level > bar(n_ranks, n_values=m / (2 * MAX_LAG_SHARE)) * self.error
        if m > MANY_PEERS:
            above &= level > (1.0 + math.sqrt(2.0 * math.log(m))) * self.spread
        quarters = np.array_split(self.even, QUARTERS)
        above &= (np.stack([np.median(quarter, axis=0) for quarter in quarters]) >= PERSISTS * level).all(axis=0)
        persists: BoolArray = above & ((self.even >= PERSISTS * level).mean(axis=0) >= PERIODIC_SHARE)
        return persists


def excess_of(own_ns: Float64Array) -> Excess:
    """Hold each rank of a part against the others; shape `(n_iterations, n_ranks)`."""
    m = own_ns.shape[1]
    usual = usual_of_peers(own_ns)
    over_time = own_ns - usual
    typical = np.median(usual, axis=0)
    is_uneven = _deviation(usual) > UNEVEN * typical
    even = over_time * np.where(is_uneven, typical / np.maximum(usual, 1.0), 1.0) if is_uneven.any() else over_time
    level = np.median(over_time, axis=0)
    even_level = level if even is over_time else np.median(even, axis=0)
    spread = _deviation(even_level[:, None])[0] if m > MANY_PEERS else 0.0
    error = _ERROR_OF_MEDIAN * _error_of_mean(even - even_level)
    error = np.maximum(error, float(np.median(error)) if m else 0.0)
    return Excess(over_time, even, level, even_level, error, float(spread), np.broadcast_to(typical, m))


def usual_of_peers(own_ns: Float64Array) -> Float64Array:
    """What the others of a part usually take in each iteration; its own where there are none.

    Of many the median of all, in one column: whether it is among them does not matter.

    >>> usual_of_peers(np.array([[1.0, 2.0, 9.0]])).tolist()
    [[5.5, 5.0, 1.5]]
    """
    m = own_ns.shape[1]
    if m < 2:
        return own_ns
    ordered = np.sort(own_ns, axis=1)
    if m > MANY_PEERS:
        return 0.5 * (ordered[:, [(m - 1) // 2]] + ordered[:, [m // 2]])
    place = np.argsort(np.argsort(own_ns, axis=1), axis=1)
    low, high = (m - 2) // 2, (m - 1) // 2  # of the others; whoever lies behind a rank is one place further in all
    at_low, at_high = (np.take_along_axis(ordered, at + (place <= at), axis=1) for at in (low, high))
    return 0.5 * (at_low + at_high)


def bar(n_ranks: int, *, n_values: float) -> float:
    """Standard errors that chance exceeds in a job of so many ranks with a probability of `FALSE_ALARMS`.

    The error itself is only estimated, by as many independent values as `n_values`: Student's distribution, in
    Wallace's approximation.

    >>> round(bar(1024, n_values=1e6), 1), round(bar(4, n_values=16), 1)
    (5.9, 7.6)
    """
    normal = -NormalDist().inv_cdf(FALSE_ALARMS / (n_ranks * len(LOOKS) * LOOKED_AT))
    scaled = normal * (8 * n_values + 3) / (8 * n_values + 1)
    return math.sqrt(n_values * math.expm1(scaled**2 / n_values))


def _error_of_mean(moves: Float64Array) -> Float64Array:
    """Standard error of each column's mean, with its autocorrelation up to a share of its length."""
    n = len(moves)
    limit = _WINSORIZED * _deviation(moves)
    x = np.clip(moves, -limit, limit)
    x = x - x.mean(axis=0)
    variance = (x**2).sum(axis=0) / n
    total = variance.copy()
    most = max(int(MAX_LAG_SHARE * n), 1)
    for lag in range(1, most + 1):
        total += 2.0 * (1.0 - lag / n) * (x[lag:] * x[:-lag]).sum(axis=0) / n
    # Taking off the mean makes each covariance too small by about the mean's own variance.
    total = np.maximum(total, variance) / max(1.0 - (2 * most + 1) / n, 0.5)
    error: Float64Array = np.sqrt(total / n)
    return error


def _deviation(columns: Float64Array) -> Float64Array:
    """As of a normal distribution, from the median absolute deviation of each column."""
    deviation: Float64Array = MAD_TO_SIGMA * np.median(np.abs(columns - np.median(columns, axis=0)), axis=0)
    return deviation
