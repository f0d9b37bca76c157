"""Does a change of level matter? Robust levels, an honest yardstick for them, and the bars a change must clear.

Everything works on the logarithm of step times: slowdowns are ratios, jitter scales with the step time, and the
tail of a x50 pause is shortened before anything is averaged. The functions are compiled; arrays are one series.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streams.compiled import compiled, compiled_reordered

FloatArray = npt.NDArray[np.float64]

TRIM = 0.2  # of a window, at either end: pauses move its level little, and clean noise costs a few per cent
CLIP = 3.0  # residuals count up to three sigmas, so that spikes do not pass for noise of the level
MIN_NOISE = 0.002  # below this, timer resolution and rounding decide
MAX_CORRELATION = 0.95
SHORT = 4.0  # noise and correlation of few independent steps are themselves uncertain: errors grow by 1 + 4 / n
FAR = 4
LANES = 8  # as many numbers as the widest vectors hold: a sum has one order, whatever the processor
AVERAGED_CORRELATION = 0.5
NEIGHBOURS = 12  # a change is located among so many steps before the proposed one

MEASURE = np.dtype(
    [("level", "f8"), ("noise", "f8"), ("correlation", "f8"), ("n", "i8"), ("near", "f8"), ("far", "f8")]
)
"""What a stretch of a series says about itself: its level, the standard deviation of its clipped residuals, their
lag-1 correlation (0..0.95), and how many steps it holds."""


@compiled
def level(log_times: FloatArray) -> float:
    """Trimmed mean: the middle 60 % of a window.

    A mean is moved by one checkpoint pause; a median jumps by the whole difference where steps alternate between
    two values and the window holds one more of one kind. The trimmed mean does neither.

    Examples
    --------
    >>> round(level(np.array([0.0, 0.1, 0.0, 0.1, 5.0])), 3)
    0.067

    """
    n = len(log_times)
    cut = int(TRIM * n)
    low, high = nth(log_times, cut), nth(log_times, n - 1 - cut)
    if low == high:
        return low
    # Of the values that equal a border, those beyond it are not counted.
    total = (_n_up_to(log_times, low) - cut) * low + (n - cut - _n_below(log_times, high)) * high
    return float(total + _sum_between(log_times, low, high)) / (n - 2 * cut)


@compiled
def nth(values: FloatArray, k: int) -> float:
    """The value with `k` others below it (or equal to it), by halving the range that it lies in and counting.

    A sort of noise stalls the processor at every second comparison; here no branch depends on a single value, and
    the compiler counts several at once. For 384 values that is ten times as fast.

    Examples
    --------
    >>> nth(np.array([3.0, 1.0, 2.0, 2.0]), 2)
    2.0

    """
    low, high = _least_above(values, -math.inf), _largest_up_to(values, math.inf)
    n_low, n_high = _n_up_to(values, low), len(values)
    if n_low > k:
        return low
    while n_high - n_low > 1:
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            break
        n_middle = _n_up_to(values, middle)
        if n_middle > k:
            high, n_high = middle, n_middle
        else:
            low, n_low = middle, n_middle
    return float(_largest_up_to(values, high))


@compiled
def median(values: FloatArray) -> float:
    """NumPy's median, faster."""
    k = (len(values) - 1) // 2
    low = nth(values, k)
    if len(values) % 2 or _n_up_to(values, low) > k + 1:
        return low
    return 0.5 * (low + float(_least_above(values, low)))


@compiled_reordered
def _n_up_to(values: FloatArray, most: float) -> int:
    n = 0
    for value in values:
        n += 1 if value <= most else 0
    return n


@compiled_reordered
def _n_below(values: FloatArray, bound: float) -> int:
    n = 0
    for value in values:
        n += 1 if value < bound else 0
    return n


@compiled
def _sum_between(values: FloatArray, low: float, high: float) -> float:
    lanes = np.zeros(LANES)
    for i in range(len(values)):
        value = values[i]
        lanes[i % LANES] += value if low < value < high else 0.0
    return in_pairs(lanes)


@compiled
def in_pairs(lanes: FloatArray) -> float:
    """The sum of eight sums, of which each is that of every eighth value: in this order on every processor.

    It is the order in which vectors of two, of four and of eight numbers are added up without being rearranged.
    """
    return float(((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])))


@compiled_reordered
def _largest_up_to(values: FloatArray, most: float) -> float:
    largest = -1e300
    for value in values:
        largest = max(largest, value if value <= most else -1e300)
    return largest


@compiled_reordered
def _least_above(values: FloatArray, bound: float) -> float:
    least = 1e300
    for value in values:
        least = min(least, value if value > bound else 1e300)
    return least


@compiled
def measure(log_times: FloatArray, is_averaged: bool, into) -> None:  # type: ignore[no-untyped-def]
    """Measure a stretch of at least `FAR + 2` rows; `into` is a record of `MEASURE`.

    Noise and correlation come from differences, half of whose mean square is, for AR(1) noise, at lag k

        S_k = noise^2 (1 - rho^k),  so that  S_4 / S_1 = 1 + rho + rho^2 + rho^3.

    A jump of the level spoils four differences of hundreds, and they are clipped; the scatter about one level, the
    usual estimate, takes every jump for noise, and after one slow period that was missed no other would be found.

    Where each row is the mean of many steps (`is_averaged`) the correlation of single steps has been averaged away
    and rows are few: what looks like correlation there are the levels themselves, so it is taken to be 0.5.
    """
    n = len(log_times)
    into.level = level(log_times)
    into.n = n
    if is_averaged:
        into.near = 0.5 * (1.4826 * median(np.abs(log_times[1:] - log_times[:-1]))) ** 2
        into.far = into.near
        into.correlation = AVERAGED_CORRELATION
        into.noise = max(math.sqrt(into.near / (1.0 - AVERAGED_CORRELATION)), MIN_NOISE)
    else:
        into.near = _half_mean_square(log_times[1:] - log_times[:-1])
        into.far = _half_mean_square(log_times[FAR:] - log_times[:-FAR])
        by_differences(into)


@compiled
def by_differences(m) -> None:  # type: ignore[no-untyped-def]
    """Noise and correlation of a record of `MEASURE` from its `near` (S_1) and `far` (S_4)."""
    ratio = min(max(m.far / m.near, 1.0), 4.0)
    low, high = 0.0, MAX_CORRELATION
    for _ in range(20):
        rho = 0.5 * (low + high)
        if 1.0 + rho + rho * rho + rho * rho * rho < ratio:
            low = rho
        else:
            high = rho
    m.correlation = low
    m.noise = max(math.sqrt(m.near / (1.0 - low)), MIN_NOISE)


@compiled
def _half_mean_square(differences: FloatArray) -> float:
    scale = max(CLIP * 1.4826 * median(np.abs(differences)), MIN_NOISE)
    total = 0.0
    for difference in differences:
        clipped = min(max(difference, -scale), scale)
        total += clipped * clipped
    return max(0.5 * total / len(differences), 1e-12)


@compiled
def standard_error(noise: float, correlation: float, n_known: int, n: int) -> float:
    """Standard deviation of the level of `n` consecutive steps, by an AR(1) model of the noise.

    noise^2 / n * ((1 + rho) / (1 - rho) - 2 rho (1 - rho^n) / (n (1 - rho)^2)) * (1 + 4 / independent steps known)
    """
    rho = correlation
    inflation = (1.0 + rho) / (1.0 - rho) - 2.0 * rho * (1.0 - rho**n) / (n * (1.0 - rho) ** 2)
    independent = n_known * (1.0 - rho) / (1.0 + rho)
    return noise * math.sqrt(max(inflation, 1.0) / n * (1.0 + SHORT / independent))


@compiled
def strays(log_times: FloatArray, n: int) -> float:
    """How far levels of windows of `n` steps stray from their own median: 1.48 times the median distance.

    It sees what the model of the noise does not: patterns, bursts, a neighbour that comes and goes. 0 where the past
    holds fewer than four such windows.
    """
    if len(log_times) < 4 * n:
        return 0.0
    stride = max(n // 4, 1)
    count = (len(log_times) - n) // stride + 1
    levels = np.empty(count)
    for i in range(count):
        levels[i] = level(log_times[i * stride : i * stride + n])
    return 1.4826 * median(np.abs(levels - median(levels)))


@compiled
def highest_stray(log_times: FloatArray, n: int, centre: float) -> float:
    """How far above `centre` the level of any window of `n` steps was; inf where there are fewer than four."""
    if len(log_times) < 4 * n:
        return math.inf
    highest = 0.0
    for first in range(0, len(log_times) - n + 1, max(n // 4, 1)):
        highest = max(highest, level(log_times[first : first + n]) - centre)
    return highest


@compiled
def persists(after: FloatArray, middle: float, sign: float, is_long: bool) -> bool:
    """Whether most of the steps, and of the last five, lie beyond the middle between two levels.

    A level that has lasted long may be a mixture: where steps alternate between two values, half of them stay on the
    old side. Otherwise 65 % must lie beyond the middle and four of the last five: a burst that is over, or every
    tenth step slow, is no level.
    """
    share = 0.45 if is_long else 0.65
    of_last = 2 if is_long else 4
    beyond = 0
    last = 0
    n = len(after)
    for i in range(n):
        if sign * (after[i] - middle) > 0.0:
            beyond += 1
            if i >= n - 5:
                last += 1
    return beyond >= share * n and last >= of_last


@compiled
def locate(before: float, log_times: FloatArray, n_after: int, is_averaged: bool) -> int:
    """How many of the newest steps belong to the new level, given that about `n_after` do.

    The split that puts most steps on their own side of the middle between the two levels: the largest sum, from
    there to the end, of the distances beyond the middle, each cut to half of the change so that a spike counts once.
    Among the steps before the proposed ones, three in a row on the old side end the search: a level that was so
    interrupted has begun anew. Where rows are means of many steps, that holds for the proposed ones, too.
    """
    n = len(log_times)
    half = 0.5 * (level(log_times[n - n_after :]) - before)
    sign = 1.0 if half >= 0.0 else -1.0
    cut = abs(half)
    low = max(n - n_after - NEIGHBOURS, 0)
    best = -1.0
    at = n_after
    total = 0.0
    on_old_side = 0
    for i in range(n - 1, low - 1, -1):
        beyond = (log_times[i] - before - half) * sign
        on_old_side = on_old_side + 1 if beyond <= 0.0 else 0
        if on_old_side == 3 and (is_averaged or i < n - n_after):
            break
        total += min(max(beyond, -cut), cut)
        if total >= best:
            best = total
            at = n - i
    return at


@compiled
def split(log_times: FloatArray, fewest: int, most: int) -> int:
    """How many of the newest rows, `fewest` to `most`, belong to the newer of two levels: the best of all splits.

    The rows before it are compared with their own level, the rows after it with theirs; least absolute deviations.
    """
    n = len(log_times)
    best = math.inf
    at = fewest
    for n_after in range(fewest, most + 1):
        if n - n_after < 3:
            break
        before = level(log_times[: n - n_after])
        after = level(log_times[n - n_after :])
        total = 0.0
        for i in range(n):
            total += abs(log_times[i] - (before if i < n - n_after else after))
        if total < best:
            best = total
            at = n_after
    return at
