"""Small and slow slowdowns: what BOCD with its 10 % verification cannot see.

The steps are drawn together into blocks of eight. At each new block the last 3 to 64 blocks are compared with the
older ones, a gap of at least twice their number left out, so that a ramp is not compared with its own foot. That is a
generalised likelihood ratio for a shift of unknown length (Siegmund and Venkatraman, 1995) with a robust mean in the
place of the mean. A CUSUM would need the size of the shift beforehand, and a plain likelihood ratio takes correlated
noise for shifts. Here the yardstick is the past itself: the standard error of so many blocks by their own noise and
lag-1 correlation, how windows of that length strayed before, and the furthest of them.

The bar falls with the number of steps that the window covers (8 % from 24, 6 % from 32, 4 % from 128): what is small
must last longer to matter.
"""

from __future__ import annotations

import math

import numpy as np

from streams.compiled import compiled
from streams.level.verification import MEASURE, level, measure, standard_error, strays

MAX_BLOCKS = 256
STEPS_PER_BLOCK = 8
WINDOWS = (3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
SCALES = (0, 8, 24, 64)  # windows up to each of these share what they are compared with
MIN_BEFORE = 48
MIN_BEFORE_AVERAGED = 96  # a row per fifty steps: warm-up is as long as that of a job, not of ten steps
MIN_ROWS = 5
ERRORS = 5.0

DRIFT = np.dtype(
    [
        ("value", "f8", (2 * MAX_BLOCKS,)),
        ("step", "i8", (2 * MAX_BLOCKS,)),
        ("time_ns", "i8", (2 * MAX_BLOCKS,)),
        ("n", "i8"),
        ("pending", "f8", (STEPS_PER_BLOCK,)),
        ("n_pending", "i8"),
        ("first_step", "i8"),
        ("first_ns", "i8"),
        ("healthy_since", "i8"),
        ("base", "f8"),
        ("after", "f8"),
        ("onset_step", "i8"),
        ("onset_ns", "i8"),
        ("is_ramp", "i8"),
        ("n_after", "i8"),
        ("scratch", MEASURE),
    ]
)
"""Levels of the blocks of the healthy past, the rows of the one that is being filled, and the last shift found."""


@compiled
def bar(n_blocks: int, is_averaged: bool) -> float:
    """Smallest shift, as a logarithm, that is reported when it has lasted for so many blocks."""
    if n_blocks < (8 if is_averaged else 4):
        return math.log(1.08)
    if n_blocks < 16:
        return math.log(1.06)
    return math.log(1.05) if is_averaged else math.log(1.04)


@compiled
def rows_per_block(steps_per_row: float) -> int:
    """A block covers eight steps, or one row where a row covers more."""
    return int(min(max(STEPS_PER_BLOCK / steps_per_row, 1.0), STEPS_PER_BLOCK))


@compiled
def push(drift, step: int, time_ns: int, log_time: float, steps_per_row: float) -> bool:  # type: ignore[no-untyped-def]
    """Take a row of the healthy series; whether it completes a block."""
    if drift.n_pending == 0:
        drift.first_step, drift.first_ns = step, time_ns
    drift.pending[drift.n_pending] = log_time
    drift.n_pending += 1
    if drift.n_pending < rows_per_block(steps_per_row):
        return False
    if drift.n == 2 * MAX_BLOCKS:
        drift.value[:MAX_BLOCKS] = drift.value[MAX_BLOCKS:].copy()
        drift.step[:MAX_BLOCKS] = drift.step[MAX_BLOCKS:].copy()
        drift.time_ns[:MAX_BLOCKS] = drift.time_ns[MAX_BLOCKS:].copy()
        drift.n = MAX_BLOCKS
    drift.value[drift.n] = level(drift.pending[: drift.n_pending])
    drift.step[drift.n], drift.time_ns[drift.n] = drift.first_step, drift.first_ns
    drift.n += 1
    drift.n_pending = 0
    return True


@compiled
def drop_since(drift, step: int) -> None:  # type: ignore[no-untyped-def]
    """Forget the blocks that hold `step` or later ones: they are not healthy."""
    drift.n_pending = 0
    while drift.n and drift.step[drift.n - 1] >= step:
        drift.n -= 1


@compiled
def judge(drift, steps_per_row: float) -> bool:  # type: ignore[no-untyped-def]
    """Whether the newest blocks lie above the older ones; what was found stands in the record."""
    if steps_per_row >= STEPS_PER_BLOCK:
        # Rows are few: every window is looked at, each against all that is three times as old.
        found = False
        for window in WINDOWS:
            found = found or _judge_scale(drift, steps_per_row, window - 1, window)
        return found
    for scale in range(len(SCALES) - 1):
        # Long windows change slowly and are looked at less often.
        if drift.n % (1 << scale) == 0 and _judge_scale(drift, steps_per_row, SCALES[scale], SCALES[scale + 1]):
            return True
    return False


@compiled
def _judge_scale(drift, steps_per_row: float, shortest: int, longest: int) -> bool:  # type: ignore[no-untyped-def]
    per_block = rows_per_block(steps_per_row)
    is_averaged = steps_per_row >= STEPS_PER_BLOCK
    known = drift.value[max(drift.n - MAX_BLOCKS, 0) : drift.n]
    n = len(known)
    n_before = n - 3 * longest
    if n_before < max(MIN_BEFORE_AVERAGED if is_averaged else MIN_BEFORE, longest):
        return False
    before = known[:n_before]
    base = highest_quarter(before)
    is_measured = False
    for window in WINDOWS:
        if window * per_block < MIN_ROWS or window <= shortest or window > longest:
            continue
        after = level(known[n - window :])
        if after - base < bar(window, is_averaged) or known[n - 1] <= 0.5 * (after + base):
            continue
        if not is_measured:
            measure(before, is_averaged, drift.scratch)
            is_measured = True
        m = drift.scratch
        error_before = standard_error(m.noise, m.correlation, n_before, n_before)
        error_after = max(standard_error(m.noise, m.correlation, n_before, window), strays(before, window))
        if after - base < ERRORS * math.hypot(error_after, error_before):
            continue
        middle = 0.5 * (after + base)
        beyond = 0
        for i in range(n - window, n):
            if known[i] > middle:
                beyond += 1
        if beyond < 0.7 * window:
            continue
        # A shift cannot have begun before the series was healthy again: what lies before is another stretch.
        n_since = 0
        while n_since < n and drift.step[drift.n - 1 - n_since] >= drift.healthy_since:
            n_since += 1
        if n_since < window:
            continue
        first, is_ramp = onset(known, base, min(4 * window, n_since))
        at = drift.n - n + first
        drift.base, drift.after, drift.n_after = base, after, window
        drift.onset_step, drift.onset_ns, drift.is_ramp = drift.step[at], drift.time_ns[at], is_ramp
        return True
    return False


@compiled
def highest_quarter(before) -> float:  # type: ignore[no-untyped-def]
    """The highest level of four equal parts: a return from a fast spell, or from warm-up, is no slowdown."""
    n = len(before)
    highest = -math.inf
    for quarter in range(4):
        highest = max(highest, level(before[quarter * n // 4 : (quarter + 1) * n // 4]))
    return highest


@compiled
def onset(known, base: float, reach: int) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """Where the shift began: the first block of the best step, or of the best ramp where that fits better.

    Both start from `base` and are fitted by least absolute deviations over the last blocks: a step at block `s`, a
    line that rises from `s` to the end.
    """
    n = len(known)
    step_at = n - 1
    best_step = math.inf
    ramp_at = n - 1
    best_ramp = math.inf
    foot = 0.0  # of the blocks before the start
    for s in range(max(n - reach, 0), n - 2):
        tail = known[s:]
        centre = level(tail)
        step_error = foot
        for i in range(len(tail)):
            step_error += abs(tail[i] - centre)
        # The slope that gives the tail its sum.
        length = len(tail)
        slope = 2.0 * (centre - base) / length
        ramp_error = foot
        for i in range(length):
            ramp_error += abs(tail[i] - base - slope * (i + 0.5))
        if step_error < best_step:
            best_step, step_at = step_error, s
        if ramp_error < best_ramp:
            best_ramp, ramp_at = ramp_error, s
        foot += abs(known[s] - base)
    if best_ramp < 0.97 * best_step:
        return ramp_at, 1
    return step_at, 0
