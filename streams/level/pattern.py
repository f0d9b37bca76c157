"""Planned patterns of a few steps: alternating steps, every tenth step slow. They are learnt and taken out.

For a period `p` every phase has a level of its own, the median of its rows. `p` is a pattern when the distances from
those medians are together at most 65 % of the distances from one level for all; random noise gives 80 % or more, for
there are at least five rows of each phase. Candidates come from the autocorrelation of the clipped distances, so that
the medians are taken for few. The smallest period that explains as much as any is the one.
"""

from __future__ import annotations

import math

import numpy as np

from streams.compiled import compiled
from streams.level.verification import LANES, in_pairs, level, median

MAX_PERIOD = 64
ROWS = 256
EVERY = 64  # rows between two searches, or two looks at whether the pattern still holds
MIN_PER_PHASE = 5
MAX_UNEXPLAINED = 0.65
DROPPED_AT = 0.8
MIN_CORRELATION = 0.25
MIN_OFFSET = 0.02
CAP = math.log(3.0)  # a pause of x50 must not decide what is a pattern

PATTERN = np.dtype(
    [
        ("period", "i8"),
        ("offset", "f8", (MAX_PERIOD,)),
        ("tried", "f8", (MAX_PERIOD,)),
        ("index", "i8", (2 * ROWS,)),
        ("value", "f8", (2 * ROWS,)),
        ("n", "i8"),
        ("since", "i8"),
    ]
)
"""`offset[k]` is what a row at `index % period == k` takes longer than the level, as a logarithm."""


@compiled
def offset_of(pattern, index: int) -> float:  # type: ignore[no-untyped-def]
    """What the pattern adds to the row at `index`; 0 without a pattern."""
    return pattern.offset[index % pattern.period] if pattern.period else 0.0


@compiled
def remember(pattern, index: int, value: float) -> bool:  # type: ignore[no-untyped-def]
    """Keep a row, as it is; whether it is time to look for a pattern."""
    if pattern.n == 2 * ROWS:
        pattern.index[:ROWS] = pattern.index[ROWS:].copy()
        pattern.value[:ROWS] = pattern.value[ROWS:].copy()
        pattern.n = ROWS
    pattern.index[pattern.n] = index
    pattern.value[pattern.n] = value
    pattern.n += 1
    pattern.since += 1
    return bool(pattern.since >= EVERY and pattern.n >= EVERY)


@compiled
def look(pattern) -> bool:  # type: ignore[no-untyped-def]
    """Search for a pattern, or see whether the known one holds; whether the offsets have changed."""
    pattern.since = 0
    values = pattern.value[max(pattern.n - ROWS, 0) : pattern.n]
    indices = pattern.index[max(pattern.n - ROWS, 0) : pattern.n]
    centre = level(values)
    distances = np.empty(len(values))
    for i in range(len(values)):
        distances[i] = min(max(values[i] - centre, -CAP), CAP)
    if pattern.period:
        holds = _helps(pattern, indices[-EVERY:], values[-EVERY:])
        if holds and _unexplained(pattern, indices, distances, pattern.period) <= DROPPED_AT:
            return _adopt(pattern, indices, values, pattern.period)
        pattern.period = 0
        pattern.offset[:] = 0.0
    clipped = _clipped(distances)
    power = 1e-12
    for distance in clipped:
        power += distance * distance
    best = 0
    least = MAX_UNEXPLAINED
    for period in range(2, min(MAX_PERIOD, len(values) // MIN_PER_PHASE) + 1):
        if _correlation(clipped, power, period) < MIN_CORRELATION:
            continue
        # Medians of few rows follow them: a long period explains some of any noise.
        unexplained = _unexplained(pattern, indices, distances, period) / (1.0 - period / len(values))
        if unexplained < (0.9 * least if best else least):
            best, least = period, unexplained
    if best == 0 or not _adopt(pattern, indices, values, best):
        return False
    if _helps(pattern, indices[-EVERY:], values[-EVERY:]):
        return True
    pattern.period = 0
    pattern.offset[:] = 0.0
    return False


@compiled
def _helps(pattern, indices, values) -> bool:  # type: ignore[no-untyped-def]
    """Whether the newest rows scatter no more about the pattern than about one level.

    Medians over all rows kept would hold on to a pattern that has stopped, and move by half of it in the end.
    """
    centre = level(values)
    total = 0.0
    left = 0.0
    for i in range(len(values)):
        distance = min(max(values[i] - centre, -CAP), CAP)
        total += abs(distance)
        left += abs(distance - pattern.offset[indices[i] % pattern.period])
    return left <= total


@compiled
def _clipped(distances):  # type: ignore[no-untyped-def]
    clip = 3.0 * 1.4826 * max(median(np.abs(distances)), 1e-4)
    return np.minimum(np.maximum(distances, -clip), clip)


@compiled
def _correlation(clipped, power: float, lag: int) -> float:  # type: ignore[no-untyped-def]
    lanes = np.zeros(LANES)
    for i in range(len(clipped) - lag):
        lanes[i % LANES] += clipped[i + lag] * clipped[i]
    return in_pairs(lanes) / power * len(clipped) / (len(clipped) - lag)


@compiled
def _unexplained(pattern, indices, distances, period: int) -> float:  # type: ignore[no-untyped-def]
    """Share of the distances that is left when every phase has its median; the medians are left in `tried`."""
    phase = np.empty(len(distances))
    total = 1e-12
    left = 0.0
    for k in range(period):
        n = 0
        for i in range(len(distances)):
            if indices[i] % period == k:
                phase[n] = distances[i]
                n += 1
        middle = median(phase[:n]) if n else 0.0
        pattern.tried[k] = middle
        for i in range(n):
            total += abs(phase[i])
            left += abs(phase[i] - middle)
    return left / total


@compiled
def _adopt(pattern, indices, values, period: int) -> bool:  # type: ignore[no-untyped-def]
    _unexplained(pattern, indices, values, period)
    tried = pattern.tried[:period]
    tried -= level(tried)
    if np.abs(tried).max() < MIN_OFFSET:
        return False
    pattern.period = period
    pattern.offset[:period] = tried
    return True
