"""The two detectors that Falcon (section 7.2) compares itself with, shaped like our `StepWatch`."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
from bisect import bisect_left, insort
from collections import deque

from pacehound.model.events import Finding, Instant
from streams.level.bocd import RunLengthPosterior
from streams.level.step_watch import StepTime

_LEARN_STEPS = 24
_SHORT = 5  # a run of so many steps has just begun
_PROBABILITY = 0.9  # Falcon 4.2
_BEFORE = 30  # newest steps of the run before a changepoint that it is compared with


class _Reports:
    """The findings of one baseline: opened once, relieved once."""

    def __init__(self, job: str, source: str) -> None:
        self._job = job
        self._source = source
        self._count = 0
        self._open: list[Finding] = []

    @property
    def is_open(self) -> bool:
        """Something is slow at present."""
        return bool(self._open)

    def slow(self, onset: Instant, detected: Instant, magnitude: float) -> list[Finding]:
        """One more finding."""
        self._count += 1
        finding = Finding(
            id=f"{self._job}-{self._count}",
            job=self._job,
            attempt=0,
            kind="slow",
            verdict="unknown",
            cause=None,
            onset=onset,
            detected=detected,
            magnitude=magnitude,
            lasting=True,
            source=self._source,
        )
        self._open.append(finding)
        return [finding]

    def over(self, relief: Instant) -> list[Finding]:
        """All that is open ends."""
        relieved = [dataclasses.replace(finding, relief=relief, version=1) for finding in self._open]
        self._open.clear()
        return relieved


class _Baseline(abc.ABC):
    """What both have in common."""

    def __init__(self, job: str, source: str) -> None:
        self._reports = _Reports(job, source)

    @property
    def planned(self) -> tuple[Finding, ...]:
        """Nothing: it does not learn what is planned."""
        return ()

    def update(self, row: StepTime) -> list[Finding]:
        """Take the next row; what is no time is passed over."""
        is_time = math.isfinite(row.step_time_s) and row.step_time_s > 0.0
        return self._follow(row) if is_time else []

    @abc.abstractmethod
    def _follow(self, row: StepTime) -> list[Finding]:
        """Take the next row, which is a time."""


class SlidingWindow(_Baseline):
    """A level that leaves the current median by more than 10 % is a fail-slow.

    The level is the median of the newest `window` steps (a mean would take every pause for a level), the current
    median that of the newest `history` steps, the slow ones included: it follows the series, and a long fault becomes
    its new normal. Falcon does not say how long its windows are.

    Parameters
    ----------
    job, source
        Stand in its findings.
    window, history
        Steps.
    min_change
        0.10 is 10 %.

    """

    def __init__(
        self, *, job: str, source: str = "", window: int = 10, history: int = 500, min_change: float = 0.10
    ) -> None:
        super().__init__(job, source)
        self._window: deque[StepTime] = deque(maxlen=window)
        self._history: deque[float] = deque()
        self._history_length = history
        self._sorted: list[float] = []
        self._min_change = min_change

    def _follow(self, row: StepTime) -> list[Finding]:
        self._window.append(row)
        self._history.append(row.step_time_s)
        insort(self._sorted, row.step_time_s)
        if len(self._history) > self._history_length:
            del self._sorted[bisect_left(self._sorted, self._history.popleft())]
        if len(self._sorted) < _LEARN_STEPS:
            return []
        current = self._sorted[len(self._sorted) // 2]
        of_window = sorted([one.step_time_s for one in self._window])
        # The mean of the middle two where their number is even: steps may alternate between two values.
        level = 0.5 * (of_window[(len(of_window) - 1) // 2] + of_window[len(of_window) // 2])
        is_slow = level > current * (1.0 + self._min_change)
        if is_slow == self._reports.is_open:
            return []
        bar = current * (1.0 + 0.5 * self._min_change)
        first = next((one for one in self._window if (one.step_time_s > bar) == is_slow), row)
        if is_slow:
            return self._reports.slow(_instant(first), _instant(row), level / current - 1.0)
        return self._reports.over(_instant(first))


class PlainBocd(_Baseline):
    """Bayesian online changepoint detection that believes every changepoint.

    A changepoint is reported when the mass on runs of up to five steps exceeds 0.9 and the likeliest run began after
    the last report. Where its steps are slower than the run before, it opens a finding, else it relieves all that are
    open; so does the posterior when it takes the last changepoint back (the run is longer than that, as after a
    spike). It works on logarithms, with a prior taken from the first steps, as the verified one does.

    Parameters
    ----------
    job, source
        Stand in its findings.

    """

    def __init__(self, *, job: str, source: str = "") -> None:
        super().__init__(job, source)
        self._posterior: RunLengthPosterior | None = None
        self._recent: deque[tuple[StepTime, float]] = deque(maxlen=64)
        self._since_report = 0  # rows
        self._since_onset = _LEARN_STEPS  # rows, from that of the last changepoint on

    def _follow(self, row: StepTime) -> list[Finding]:
        log_time = math.log(row.step_time_s)
        self._recent.append((row, log_time))
        if self._posterior is None:
            if len(self._recent) == _LEARN_STEPS:
                self._learn()
            return []
        self._posterior.update(log_time)
        self._since_report += 1
        self._since_onset += 1
        run = self._posterior.most_likely_run
        if self._reports.is_open and self._since_onset < run <= len(self._recent):
            return self._reports.over(_instant(row))
        is_new = self._posterior.mass_within(_SHORT) > _PROBABILITY and run <= self._since_report
        if not is_new:
            return []
        rows = list(self._recent)
        n_before = min(max(self._since_onset - run, 1), _BEFORE, len(rows) - run)
        self._since_report, self._since_onset = 0, run
        after = statistics.median(log_time for _, log_time in rows[-run:])
        before = statistics.median(log_time for _, log_time in rows[-run - n_before : -run])
        onset = _instant(rows[-run][0])
        if after > before:
            return self._reports.slow(onset, _instant(row), math.expm1(after - before))
        return self._reports.over(onset)

    def _learn(self) -> None:
        log_times = [log_time for _, log_time in self._recent]
        level = statistics.median(log_times)
        noise = 1.4826 * statistics.median(abs(log_time - level) for log_time in log_times)
        self._posterior = RunLengthPosterior(level=level, level_spread=0.4, noise=max(noise, 0.01))
        for log_time in log_times:
            self._posterior.update(log_time)


def _instant(row: StepTime) -> Instant:
    return Instant(step=row.step, time_ns=row.time_ns)
