"""How far values lie from their middle, and what most of them are, whatever a few of them do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from statistics import median

import numpy as np
import numpy.typing as npt

MAD_TO_SIGMA = 1.4826
"""Median distances from the median of a normal distribution that are one standard deviation: 1 / 0.6745, the upper
quartile of the standard one (derived)."""


def robust_sigma(values: npt.NDArray[np.float64]) -> float:
    """The standard deviation of a normal distribution whose values are as far apart as these; 0 of none.

    >>> robust_sigma(np.array([1.0, 2.0, 3.0, 400.0])), robust_sigma(np.empty(0))
    (1.4826, 0.0)
    """
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def middle_and_sigma(values: Sequence[float]) -> tuple[float, float]:
    """The median of some floats, and the same standard deviation; of dozens it takes a third of what arrays take.

    >>> middle_and_sigma([1.0, 2.0, 3.0, 400.0])
    (2.5, 1.4826)
    """
    middle = median(values)
    return middle, MAD_TO_SIGMA * median([abs(value - middle) for value in values])


def value_of_most(values: Collection[int], n: int) -> int | None:
    """What more than half of `n` have, of whom these are known; `None` where nothing is.

    >>> value_of_most([4, 4, 6, 4], 4), value_of_most([4, 4], 4), value_of_most([], 0)
    (4, None, None)
    """
    commonest = Counter(values).most_common(1)
    return commonest[0][0] if commonest and 2 * commonest[0][1] > n else None
