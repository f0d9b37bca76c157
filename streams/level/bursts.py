"""Intermittent slowness: single slow steps and short bursts that come again and again while the level stays.

A level does not see them: they are trimmed away, as they must be. They are counted instead. A burst is a run of steps
at least 15 % (and eight sigmas) above the healthy level, gaps of up to three steps included. Some are planned: those
that recur at a fixed distance (an evaluation every 2,450 steps) are told by it, four in a row or more. The others are
intermittent slowness when there are at least five within 256 rows, they cost at least 1 % of the time, and, where more
than a thousand rows are known, so many would hardly come by chance at their usual rate (Poisson, 1e-4): a job that has
always had its five pauses in a thousand steps has no news.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streams.level.thresholds import (
    BURST_CHANCE,
    BURST_ROWS,
    BURST_SIGMAS,
    BURSTS_KEPT,
    BY_CHANCE,
    ESTABLISHED_ROWS,
    FORGET_ROWS,
    MAX_BURST_EXCESS,
    MAX_BURST_GAP,
    MAX_REPEATS,
    MIN_BURST_EXCESS,
    MIN_BURST_LOSS,
    MIN_BURSTS,
    NOISE_ROWS,
    REMAINING_BURSTS,
    REPEATS,
)
from streams.spread import middle_and_sigma


@dataclass(slots=True)
class Burst:
    """A run of slow rows: its first row, step and time, its last row, and the step times lost in it."""

    row: int
    step: int
    time_ns: int
    last_row: int
    loss: float
    is_recurrent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstChange:
    """Intermittent slowness begins or ends; `first` and `last` are the bursts it is told by.

    `n` bursts within the last rows cost the share `loss` of the time; `period` is the distance, in rows, at which
    they recur where that is why they are no longer counted, else 0.
    """

    kind: Literal["begins", "ends"]
    first: Burst
    last: Burst
    n: int
    loss: float
    period: int = 0


class BurstWatch:
    """Counts the bursts of one series whose level is followed elsewhere.

    Examples
    --------
    >>> watch = BurstWatch()
    >>> slow = {100, 131, 177, 190, 240, 251, 290}
    >>> found = [watch.update(row, row, 0, 0.7 if row in slow else 0.0) for row in range(900)]
    >>> [(change.kind, change.first.step, change.last.step) for change in found if change]
    [('begins', 100, 240), ('ends', 100, 290)]
    """

    def __init__(self) -> None:
        self._bursts: deque[Burst] = deque(maxlen=BURSTS_KEPT)
        self._periods: dict[int, int] = {}  # distance in rows -> how often it was seen
        self._excesses: deque[float] = deque(maxlen=NOISE_ROWS)
        self._rate = 0.0  # bursts per row, forgotten over FORGET_ROWS rows
        self._rows = 0
        self._first: Burst | None = None

    @property
    def recurrent(self) -> tuple[int, ...]:
        """Distances, in rows, at which bursts recur; the most frequent first."""
        return tuple(sorted(self._periods, key=lambda period: (-self._periods[period], period)))

    def update(self, row: int, step: int, time_ns: int, excess: float) -> BurstChange | None:
        """Take a row: `excess` is how far it lies above the healthy level, as a logarithm."""
        self._rows += 1
        self._rate *= 1.0 - 1.0 / FORGET_ROWS
        self._excesses.append(excess)
        if excess >= MIN_BURST_EXCESS and excess >= BURST_SIGMAS * self._noise():
            loss = min(math.expm1(min(excess, 5.0)), MAX_BURST_EXCESS)
            if self._bursts and row - self._bursts[-1].last_row <= MAX_BURST_GAP:
                self._bursts[-1].last_row = row
                self._bursts[-1].loss += loss
            else:
                period = self._recurs(row)
                self._bursts.append(Burst(row, step, time_ns, row, loss, period > 0))
                if period:
                    self._periods[period] = self._periods.get(period, 0) + 1
                self._rate += 1.0 / min(self._rows, FORGET_ROWS)
            return self._begins(row) if self._first is None else None
        return self._ends(row) if self._first is not None else None

    def _noise(self) -> float:
        """Of the last rows: bursts do not count for noise."""
        return middle_and_sigma(self._excesses)[1]

    def _recurs(self, row: int) -> int:
        """The distance at which bursts lie before `row`, so often that it is no chance; 0 if there is none.

        Where bursts are frequent, one lies at any distance. The probability of that is multiplied up over the
        repeats, times the number of distances that are tried, until it is small.
        """
        rows = np.array([burst.row for burst in self._bursts])
        if not len(rows):
            return 0
        rate = len(rows) / max(row - int(rows[0]), 1)
        for period in (row - rows[::-1]).tolist():
            if period <= MAX_BURST_GAP:
                continue
            slack = period // 64
            chance = float(len(rows))
            for k in range(2, MAX_REPEATS + 1):
                if not (np.abs(row - k * period - rows) <= k * slack).any():
                    break
                chance *= -math.expm1(-rate * (2 * k * slack + 1))
                if k >= REPEATS and chance < BY_CHANCE:
                    return int(period)
        return 0

    def _within(self, row: int) -> list[Burst]:
        return [burst for burst in self._bursts if burst.last_row > row - BURST_ROWS and not burst.is_recurrent]

    def _begins(self, row: int) -> BurstChange | None:
        bursts = self._within(row)
        rows = min(self._rows, BURST_ROWS)
        loss = sum(burst.loss for burst in bursts) / rows
        if len(bursts) < MIN_BURSTS or loss < MIN_BURST_LOSS:
            return None
        if self._rows > ESTABLISHED_ROWS:
            # The usual rate, without the bursts in question.
            known = min(self._rows, FORGET_ROWS)
            usual = max(self._rate * known - len(bursts), 0.5) / (known - BURST_ROWS)
            if _poisson_tail(len(bursts), usual * BURST_ROWS) > BURST_CHANCE:
                return None
        self._first = bursts[0]
        return BurstChange(kind="begins", first=bursts[0], last=bursts[-1], n=len(bursts), loss=loss)

    def _ends(self, row: int) -> BurstChange | None:
        bursts = self._within(row)
        if len(bursts) > REMAINING_BURSTS:
            return None
        assert self._first is not None
        first, self._first = self._first, None
        last = next((burst for burst in reversed(self._bursts) if not burst.is_recurrent), first)
        recent = [burst for burst in self._bursts if burst.row > row - BURST_ROWS]
        period = self.recurrent[0] if len(recent) > len(bursts) and self._periods else 0
        return BurstChange(kind="ends", first=first, last=last, n=len(bursts), loss=0.0, period=period)


def _poisson_tail(n: int, mean: float) -> float:
    """Probability of `n` or more where `mean` are expected."""
    term = math.exp(-mean)
    below = 0.0
    for k in range(n):
        below += term
        term *= mean / (k + 1)
    return max(1.0 - below, 0.0)
