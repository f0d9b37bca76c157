"""Does a change of level matter? Robust levels, an honest yardstick for them, and the bars a change must clear.

Everything works on the logarithm of step times: slowdowns are ratios, jitter scales with the step time, and the
tail of a x50 pause is shortened before anything is averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_TRIM = 0.2  # of a window, at either end: pauses move its level little, and clean noise costs a few per cent
_CLIP = 3.0  # residuals count up to three sigmas, so that spikes do not pass for noise of the level
_MIN_NOISE = 0.002  # below this, timer resolution and rounding decide
_MAX_CORRELATION = 0.95
_SHORT = 4.0  # noise and correlation of few independent steps are themselves uncertain: errors grow by 1 + 4 / n
_NEIGHBOURS = 12  # a change is located among so many steps before the proposed one


def level(log_times: FloatArray) -> float:
    """Trimmed mean: the middle 60 % of a window.

    A mean is moved by one checkpoint pause; a median jumps by the whole difference where steps alternate between
    two values and the window holds one more of one kind. The trimmed mean does neither.

    Examples
    --------
    >>> round(level(np.array([0.0, 0.1, 0.0, 0.1, 5.0])), 3)
    0.067

    """
    return float(_levels(log_times))


@dataclass(frozen=True, slots=True)
class Reference:
    """The healthy past of a series: its level, and how far windows of it stray from that level by themselves.

    Attributes
    ----------
    log_times
        Shape `(n,)`.
    level
        The level that a change is measured from.
    noise
        Standard deviation of the clipped residuals.
    correlation
        Lag-1 correlation of the residuals, corrected for the bias of short series, 0..0.95.
    own_level
        The level of `log_times` themselves.

    """

    log_times: FloatArray
    level: float
    noise: float
    correlation: float
    own_level: float

    @classmethod
    def of(cls, log_times: FloatArray) -> Reference:
        """Measure a stretch of at least two steps."""
        own_level = level(log_times)
        residuals = log_times - own_level
        scale = max(1.4826 * float(np.median(np.abs(residuals))), _MIN_NOISE)
        clipped = np.clip(residuals, -_CLIP * scale, _CLIP * scale)
        power = float((clipped * clipped).sum())
        correlation = float((clipped[1:] * clipped[:-1]).sum()) / power if power > 0.0 else 0.0
        # Marriott and Pope (1954): on average the estimate is that much too small.
        correlation += (1.0 + 3.0 * max(correlation, 0.0)) / len(clipped)
        return cls(
            log_times,
            own_level,
            max(math.sqrt(power / len(clipped)), _MIN_NOISE),
            min(max(correlation, 0.0), _MAX_CORRELATION),
            own_level,
        )

    def standard_error(self, n: int) -> float:
        """Standard deviation of the level of `n` consecutive steps, by an AR(1) model of the noise.

        variance / n * ((1 + rho) / (1 - rho) - 2 rho (1 - rho^n) / (n (1 - rho)^2))
        """
        rho = self.correlation
        inflation = (1.0 + rho) / (1.0 - rho) - 2.0 * rho * (1.0 - rho**n) / (n * (1.0 - rho) ** 2)
        independent_steps = len(self.log_times) * (1.0 - rho) / (1.0 + rho)
        return self.noise * math.sqrt(max(inflation, 1.0) / n * (1.0 + _SHORT / independent_steps))

    def strays(self, n: int) -> tuple[float, float, float]:
        """How levels of windows of `n` steps strayed: standard deviation, furthest above, furthest below.

        It sees what the model of the noise does not: patterns, bursts, a neighbour that comes and goes. Zeros where
        the past holds fewer than four such windows.
        """
        if len(self.log_times) < 4 * n:
            return 0.0, 0.0, 0.0
        windows = np.lib.stride_tricks.sliding_window_view(self.log_times, n)[:: max(n // 4, 1)]
        offsets = _levels(windows) - self.own_level
        return float(offsets.std()), max(float(offsets.max()), 0.0), max(float(-offsets.min()), 0.0)


@dataclass(frozen=True, slots=True)
class Bars:
    """What a change of level must clear to be believed.

    Attributes
    ----------
    log_change
        Smallest difference of levels, as a logarithm; its sign is the direction.
    standard_errors
        Smallest difference, in standard errors of the two levels together.
    is_long
        The level has lasted so long that it may be a mixture: where steps alternate between two values, half of
        them stay on the old side of the middle. Otherwise 65 % of its steps must lie beyond the middle, and four of
        the last five: a burst that is over, or every tenth step slow, is no level.

    """

    log_change: float
    standard_errors: float
    is_long: bool = False


def clears(before: Reference, after: FloatArray, bars: Bars, *, n_before: int | None = None) -> bool:
    """Whether the steps `after`, shape `(n,)`, are a level of their own against `before`.

    `n_before` is the number of steps that `before.level` stands on, where it is not all of the reference.
    """
    sign = math.copysign(1.0, bars.log_change)
    signed_change = sign * (level(after) - before.level)
    if signed_change < abs(bars.log_change):
        return False
    is_beyond = sign * (after - before.level) > 0.5 * signed_change
    share, of_last_five = (0.45, 2) if bars.is_long else (0.65, 4)
    if is_beyond.mean() < share or is_beyond[-5:].sum() < of_last_five:
        return False
    spread, above, below = before.strays(len(after))
    error_before = before.standard_error(n_before if n_before is not None else len(before.log_times))
    error = math.hypot(max(spread, before.standard_error(len(after))), error_before)
    return signed_change >= max(bars.standard_errors * error, above if sign > 0.0 else below)


def locate(before: float, log_times: FloatArray, n_after: int) -> int:
    """How many of the newest steps belong to the new level, given that about `n_after` do.

    The split that puts most steps on their own side of the middle between the two levels: the largest sum, from
    there to the end, of the distances beyond the middle, each cut to half of the change so that a spike counts once.
    """
    after = level(log_times[-n_after:])
    half = 0.5 * (after - before)
    signed = np.clip((log_times - before - half) * math.copysign(1.0, half), -abs(half), abs(half))
    from_here_on = np.cumsum(signed[::-1])[::-1]
    first = len(log_times) - n_after
    low = max(first - _NEIGHBOURS, 0)
    return len(log_times) - low - int(np.argmax(from_here_on[low:]))


def _levels(windows: FloatArray) -> FloatArray:
    """Trimmed means over the last axis."""
    n = windows.shape[-1]
    cut = int(_TRIM * n)
    means: FloatArray = np.sort(windows, axis=-1)[..., cut : n - cut].mean(axis=-1)
    return means
