"""Which step times a drawing shows, and how they are written beside it."""

from __future__ import annotations

import numpy as np

from pacehound.model.step_log import FloatArray


def visible_range(times_s: FloatArray) -> tuple[float, float]:
    """Lowest and highest step time to show: where nearly all are, so that a pause of x50 does not squash the rest.

    Parameters
    ----------
    times_s
        Finite and positive, shape `(n,)`, at least one.

    >>> low, high = visible_range(np.append(np.full(300, 1.0), 50.0))
    >>> round(low, 2), round(high, 2)
    (0.95, 1.05)
    """
    low, middle, most, high = np.percentile(times_s, (0.5, 50, 95, 99))
    if high > 1.5 * most:  # evaluations, checkpoints: seldom, and far from everything else
        high = 1.2 * most
    if len(times_s) < 100:  # a hundredth of these is less than one row
        low, high = times_s.min(), min(times_s.max(), 3.0 * middle)
    if high - low < 0.1 * middle:  # jitter is not to look like mountains
        spare = 0.5 * (0.1 * middle - (high - low))
        low, high = low - spare, high + spare
    return float(low), float(high)


def time_words(time_s: float) -> str:
    """A step time with three digits.

    >>> time_words(0.0739), time_words(0.25), time_words(11.18), time_words(0.0005), time_words(137.138)
    ('73.9 ms', '250 ms', '11.2 s', '0.5 ms', '137 s')
    """
    value, unit = (time_s * 1e3, "ms") if time_s < 1 else (time_s, "s")
    digits = 0 if value >= 100 else 1
    return f"{value:.{digits}f} {unit}"
