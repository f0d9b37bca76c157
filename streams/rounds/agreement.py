"""At which lags a stretch of calls agrees with itself, and which of them is the iteration."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streams.rounds.call_codes import CodeArray, mixed
from streams.rounds.thresholds import (
    BEST_BY,
    CHANCE_SIGMAS,
    CYCLE_ITERATIONS,
    MAX_OTHER_KINDS,
    MAX_PERIOD_CALLS,
    MIN_ITERATION_CALLS,
    REPETITIONS,
)

_PROJECTIONS = 4
_EXAMINED = 256  # lags whose agreement is counted exactly, per search
LISTED = 16


def iteration_lag(candidates: list[tuple[int, float]], codes: CodeArray, *, known: int, has_kinds: bool) -> int:
    """The lag of the iteration: the smallest that agrees as well as any does, unless that is a cycle of iterations.

    `candidates` are lags of `codes` and their agreement, smallest first. `known` is the period so far (0: none): long
    evaluations may have pushed its agreement below that of a candidate.
    """
    outer = _best_agreeing(candidates, len(codes))
    inner = [candidate for candidate in candidates if candidate[0] * CYCLE_ITERATIONS <= outer]
    if not inner and not 0 < known * CYCLE_ITERATIONS <= outer:
        return outer
    period = _best_agreeing(inner, len(codes)) if inner else known
    cycle, pattern = _clean(codes, outer), _clean(codes, period)
    if cycle is None or pattern is None:
        return outer
    # What a cycle holds besides whole repetitions of the pattern.
    in_cycle, in_pattern = (np.bincount(part, minlength=1 << 16) for part in (cycle, pattern))
    used = in_pattern > 0
    extra = in_cycle - in_pattern * int((in_cycle[used] // in_pattern[used]).min())
    n_extra = int(extra.sum())
    n_other_kinds = int(extra[~np.isin(np.arange(1 << 16) >> 8, np.unique(pattern >> 8))].sum()) if has_kinds else 0
    if period >= MIN_ITERATION_CALLS:
        return period if n_other_kinds <= MAX_OTHER_KINDS else outer
    return period if has_kinds and n_other_kinds == 0 and 2 * n_extra < period else outer


def _best_agreeing(candidates: list[tuple[int, float]], n_calls: int) -> int:
    best = max(agreement for _, agreement in candidates)
    period, agreed = next((lag, a) for lag, a in candidates if a >= best - BEST_BY * (1.0 - best))
    # Where calls differ at random, a multiple of the period may agree a little better by chance.
    chance = CHANCE_SIGMAS * math.sqrt(agreed * (1.0 - agreed) / n_calls)
    return next(lag for lag, a in candidates if period % lag == 0 and a >= agreed - chance)


def _clean(codes: CodeArray, period: int) -> CodeArray | None:
    """The last calls of one period that came a second time, one period later."""
    differs = np.concatenate([[-1], np.flatnonzero(codes[:-period] != codes[period:]), [len(codes) - period]])
    long_enough = np.flatnonzero(np.diff(differs) > period)
    if not len(long_enough):
        return None
    start = int(differs[long_enough[-1] + 1]) - period
    return codes[start : start + period]


def agreeing_lags(codes: CodeArray, threshold: float) -> list[tuple[int, float]]:
    """Lags with agreement of at least `threshold`, smallest first, each seen three times within `codes`."""
    longest = min(len(codes) // REPETITIONS, MAX_PERIOD_CALLS)
    estimate = _agreement_estimate(codes, longest)
    # Unequal pairs count -1 at worst, so a lag that agrees at the threshold reads no less than this.
    likely = np.flatnonzero(estimate >= 2.0 * threshold - 1.0 - 1e-6)
    if len(likely) > _EXAMINED:
        best = likely[np.argsort(-estimate[likely], kind="stable")[: _EXAMINED - LISTED]]
        likely = np.union1d(likely[:LISTED], best)
    found = []
    for lag in (likely + 1).tolist():
        agreement = float((codes[:-lag] == codes[lag:]).mean())
        if agreement >= threshold:
            found.append((lag, agreement))
    return found


def _agreement_estimate(codes: CodeArray, longest: int) -> npt.NDArray[np.float64]:
    """Agreement at lags 1..longest, shape `(longest,)`, by FFT over random phases, normalised for the overlap."""
    size = 1 << (len(codes) + longest).bit_length()
    total = np.zeros(longest)
    for projection in range(_PROJECTIONS):
        seed = np.uint64((projection + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        phase = (mixed(codes.astype(np.uint64) ^ seed) >> np.uint64(11)).astype(np.float64) * (2.0 * np.pi / 2.0**53)
        spectrum = np.fft.fft(np.exp(1j * phase), size)
        total += np.fft.ifft(np.abs(spectrum) ** 2).real[1 : longest + 1]
    estimate: npt.NDArray[np.float64] = total / (_PROJECTIONS * (len(codes) - np.arange(1, longest + 1)))
    return estimate
