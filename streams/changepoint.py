"""Slow iterations: an online detector of onset and relief for one series of step times."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streams.bocd import RunLengthPosterior
from streams.verification import Bars, Reference, clears, level, locate

FloatArray = npt.NDArray[np.float64]
ChangeKind = Literal["onset", "worse", "eased", "relief", "speedup"]
State = Literal["learning", "healthy", "slow"]

SNAPSHOT_VERSION = 1

_PROBABILITY = 0.9  # Falcon 4.2
_LEVEL_SPREAD = 0.4  # where a new level may lie, in log step time, before anything of it is known
_MIN_NOISE = 0.01  # BOCD need not split what is small against the bar of 10 %
_HORIZON = 64  # a change is looked for this many steps back, and said by then or not at all
_GUARD = 96  # a step joins the reference at this age: later than the horizon, or a new level would teach it
_REFERENCE = 256
_RECENT = 128
_MIN_AFTER = 10  # steps of a new level before it is believed: a burst of six does not look like that
_MIN_AFTER_YOUNG = 16  # the same while fewer than _YOUNG healthy steps are known
_YOUNG = 64
_MIN_AFTER_UPDATE = 20  # one slow level to another: not urgent, and half of a relief looks like it
_MIN_AFTER_SPEEDUP = 48  # not urgent, and a baseline taken from a fast spell makes the return look slow
_RELIEF_BAR = 0.9  # of the bar of an onset, so that a level at the bar does not flap
_LONG_RELIEF = 24  # steps below the bar after which a relief is taken on easier terms: an incident must not stick
_WINDOWS = (16, 24, 32, 48, 64)  # also tried, for correlated noise makes BOCD split a new level again
_ONSET_ERRORS = 4.5
_RELIEF_ERRORS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A verified change of the level of a series.

    Attributes
    ----------
    kind
        `onset` (healthy to slow), `worse` and `eased` (slow to another slow level), `relief` (slow to healthy),
        `speedup` (a lasting level below the baseline, which becomes the new baseline).
    step, time_ns
        The first step of the new level.
    detected_step, detected_ns
        The step after which it was said.
    before_s, after_s
        The two levels, in seconds per step.
    baseline_s
        The healthy level that `slow` is measured by (for a speed-up, the one given up).
    probability
        BOCD's posterior mass of a change within the time looked at.

    """

    kind: ChangeKind
    step: int
    time_ns: int
    detected_step: int
    detected_ns: int
    before_s: float
    after_s: float
    baseline_s: float
    probability: float

    @property
    def magnitude(self) -> float:
        """Relative to the baseline: +0.4 is 40 % slower than healthy."""
        return self.after_s / self.baseline_s - 1.0


class ChangepointDetector:
    """BOCD with verification (Falcon 4.2), and the memory of what healthy was.

    Two parts. BOCD (bocd.py) runs on the logarithm of the step times, through a median of three so that a single
    pause does not restart it, and proposes: the posterior mass of a change since the healthy reference exceeds 0.9.
    Verification (verification.py) decides. A new level counts when

    - it lies at least `min_change` beyond the reference,
    - and 4.5 standard errors, measured on the reference itself: correlated noise, patterns and bursts widen them,
    - and beyond what windows of its length did in the reference,
    - and it persists: ten steps, most of them (and four of the last five) past the middle between the levels.

    Logarithms, because slowdowns are ratios and jitter scales with the step time; trimmed means, because step times
    have spikes of x2 to x50 and patterns (every tenth step slow, alternating steps) that mean nothing.

    The healthy reference is up to 256 steps, joined at an age of 96 steps. It stands still while the series is slow,
    so a slow level never becomes normal by lasting; only `rebaseline` (the caller knows that the work has changed)
    or a lasting speed-up replaces it. While slow, another level 10 % away is `worse` or `eased`, and one within
    9 % of the baseline that undoes half of the slowdown (a quarter, once it has lasted 24 steps) is the `relief`;
    64 steps within 9 % are one in any case.

    Delay, in steps of the new level: 10 to 11 for 20 % where the noise is small, more where it is not. What it
    cannot see: changes below `min_change`, drifts that stay below it within the reference, and slowdowns smaller than
    the difference between alternating steps.

    One call costs 20 to 60 us; state is bounded (128 recent steps, 256 reference values, a posterior of 129 cells).

    Parameters
    ----------
    min_change
        Smallest relative change that is reported, 0.10 for Falcon's 10 %.
    learn_steps
        Steps from which the first reference is learnt. While its two halves disagree (warm-up), learning goes on,
        up to three times as long. Nothing is reported before.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Examples
    --------
    >>> detector = ChangepointDetector()
    >>> changes = []
    >>> for step in range(200):
    ...     step_time_s = 0.14 if 100 <= step < 150 else 0.10
    ...     change = detector.update(step, step * 10**8, step_time_s)
    ...     if change is not None:
    ...         changes.append((change.kind, change.step, change.detected_step))
    >>> changes
    [('onset', 100, 110), ('relief', 150, 159)]

    References
    ----------
    Falcon (arXiv 2410.12588), section 4.2 and appendix 9.1.

    """

    def __init__(self, *, min_change: float = 0.10, learn_steps: int = 24) -> None:
        if not 0.0 < min_change < 1.0:
            raise ValueError(f"min_change must lie between 0 and 1 (0.10 is 10 %), got {min_change}")
        if not 10 <= learn_steps <= 40:
            raise ValueError(f"learn_steps must be 10 to 40, got {learn_steps}")
        self._bar = math.log1p(min_change)
        self._learn_steps = learn_steps
        self._state: State = "learning"
        self._seen = 0
        self._skipped = 0
        self._steps: deque[tuple[int, int, float]] = deque(maxlen=_RECENT)
        self._reference: deque[float] = deque(maxlen=_REFERENCE)
        self._measured: Reference | None = None
        self._slow_level = 0.0
        self._last_three: deque[float] = deque(maxlen=3)
        self._posterior: RunLengthPosterior | None = None

    @property
    def state(self) -> State:
        """`learning`, then `healthy` or `slow`."""
        return self._state

    @property
    def skipped(self) -> int:
        """Step times that were no positive finite number, and left out."""
        return self._skipped

    @property
    def baseline_s(self) -> float | None:
        """The healthy level, in seconds per step; `None` while learning."""
        return math.exp(self._healthy().level) if self._reference else None

    def update(self, step: int, time_ns: int, step_time_s: float) -> Change | None:
        """Take the next step time; say what it completes, if anything.

        `step` and `time_ns` only label the step: gaps in them, or a clock that goes backwards, change nothing.
        """
        if not (math.isfinite(step_time_s) and step_time_s > 0.0):
            self._skipped += 1
            return None
        log_time = math.log(step_time_s)
        self._steps.append((step, time_ns, log_time))
        if self._posterior is None:
            self._seen += 1
            self._learn()
            return None
        self._propose(self._posterior, log_time)
        if self._state == "healthy" and len(self._steps) > _GUARD:
            self._reference.append(self._steps.popleft()[2])
            self._measured = None
        horizon = min(_HORIZON, len(self._steps))
        if horizon < _MIN_AFTER:
            return None
        probability = self._posterior.mass_within(horizon)
        may_be_over = self._state == "slow" and horizon == _HORIZON
        if probability < _PROBABILITY and not may_be_over:
            return None
        log_times = np.array([log_time for _, _, log_time in self._steps])
        if may_be_over and (relief := self._relieve_quietly(log_times, probability)) is not None:
            return relief
        if probability < _PROBABILITY:
            return None
        judge = self._judge_slow if self._state == "slow" else self._judge_healthy
        for n_after in (self._posterior.most_likely_run, *_WINDOWS):
            if _MIN_AFTER <= n_after <= horizon:
                change = judge(log_times, n_after, probability)
                if change is not None:
                    return change
        return None

    def rebaseline(self) -> None:
        """Take the present level for healthy: the caller knows that the work itself has changed."""
        if self._state == "slow":
            self._state = "healthy"
            self._new_reference()

    def snapshot(self) -> dict[str, Any]:
        """Its whole state as numbers, strings and lists (JSON and msgpack can carry it)."""
        return {
            "version": SNAPSHOT_VERSION,
            "state": self._state,
            "seen": self._seen,
            "skipped": self._skipped,
            "slow_level": self._slow_level,
            "steps": [list(entry) for entry in self._steps],
            "reference": list(self._reference),
            "last_three": list(self._last_three),
            "posterior": None if self._posterior is None else self._posterior.snapshot(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a detector with the same parameters; ValueError if of another version."""
        if snapshot.get("version") != SNAPSHOT_VERSION:
            raise ValueError(
                f"changepoint snapshot has version {snapshot.get('version')!r}, this build reads {SNAPSHOT_VERSION}: "
                "replay the series instead"
            )
        self._state = snapshot["state"]
        self._seen, self._skipped = snapshot["seen"], snapshot["skipped"]
        self._slow_level = snapshot["slow_level"]
        self._steps = deque(((step, time_ns, x) for step, time_ns, x in snapshot["steps"]), maxlen=_RECENT)
        self._reference = deque(snapshot["reference"], maxlen=_REFERENCE)
        self._last_three = deque(snapshot["last_three"], maxlen=3)
        self._measured = None
        self._posterior = None
        if snapshot["posterior"] is not None:
            self._posterior = RunLengthPosterior.restored(snapshot["posterior"])

    def _learn(self) -> None:
        if self._seen < self._learn_steps:
            return
        window = np.array([log_time for _, _, log_time in self._steps])[-self._learn_steps :]
        half = len(window) // 2
        is_warming_up = abs(level(window[:half]) - level(window[half:])) > 0.5 * self._bar
        if is_warming_up and self._seen < 3 * self._learn_steps:
            return
        learnt = Reference.of(window)
        self._posterior = RunLengthPosterior(
            level=learnt.level, level_spread=_LEVEL_SPREAD, noise=max(learnt.noise, _MIN_NOISE)
        )
        for log_time in window.tolist():
            self._propose(self._posterior, log_time)
        self._reference.extend(window.tolist())
        self._steps.clear()
        self._state = "healthy"

    def _propose(self, posterior: RunLengthPosterior, log_time: float) -> None:
        self._last_three.append(log_time)
        posterior.update(sorted(self._last_three)[len(self._last_three) // 2])

    def _healthy(self) -> Reference:
        if self._measured is None:
            self._measured = Reference.of(np.array(self._reference))
        return self._measured

    def _judge_healthy(self, log_times: FloatArray, n_after: int, probability: float) -> Change | None:
        roughly = level(log_times[-n_after:]) - self._healthy().level
        if abs(roughly) < 0.8 * self._bar or (roughly < 0.0 and n_after < _MIN_AFTER_SPEEDUP):
            return None
        # The young steps before the change belong to the reference too, or it would be 24 steps for a long time.
        known = np.concatenate([np.array(self._reference), log_times[:-n_after]])[-_REFERENCE:]
        before = Reference.of(known)
        bars = Bars(log_change=math.copysign(self._bar, roughly), standard_errors=_ONSET_ERRORS)
        if not clears(before, log_times[-n_after:], bars):
            return None
        kind: ChangeKind = "onset" if roughly > 0.0 else "speedup"
        n_after = locate(before.level, log_times, n_after)
        min_after = _MIN_AFTER if len(known) >= _YOUNG else _MIN_AFTER_YOUNG
        if n_after < (min_after if kind == "onset" else _MIN_AFTER_SPEEDUP):
            return None
        change = self._change(kind, before.level, before.level, log_times, n_after, probability)
        if kind == "speedup":
            self._forget(len(log_times) - n_after)
            self._new_reference()
        else:
            self._reference.extend(self._forget(len(log_times) - n_after))
            self._measured = None
            self._state = "slow"
        return change

    def _judge_slow(self, log_times: FloatArray, n_after: int, probability: float) -> Change | None:
        healthy = self._healthy()
        if len(log_times) - n_after < _MIN_AFTER:
            return None
        n_after = locate(level(log_times[:-n_after]), log_times, n_after)
        n_slow = len(log_times) - n_after
        if min(n_after, n_slow) < _MIN_AFTER:
            return None
        after = log_times[-n_after:]
        # A slow stretch may be short: its level is its own, the yardstick stays that of the healthy past.
        slow = dataclasses.replace(healthy, level=level(log_times[:n_slow]))
        excess = level(after) - healthy.level
        kind: ChangeKind
        if excess < _RELIEF_BAR * self._bar:
            kind = "relief"
            is_long = n_after >= _LONG_RELIEF
            undone = (0.25 if is_long else 0.5) * max(slow.level - healthy.level, 0.5 * self._bar)
            bars = Bars(log_change=-undone, standard_errors=_RELIEF_ERRORS, is_long=is_long)
        elif n_after < _MIN_AFTER_UPDATE:
            return None
        else:
            is_worse = excess > slow.level - healthy.level
            kind = "worse" if is_worse else "eased"
            bars = Bars(log_change=self._bar if is_worse else -self._bar, standard_errors=_ONSET_ERRORS)
        if not clears(slow, after, bars, n_before=n_slow):
            return None
        change = self._change(kind, slow.level, healthy.level, log_times, n_after, probability)
        self._forget(n_slow)
        if kind == "relief":
            self._state = "healthy"
        return change

    def _relieve_quietly(self, log_times: FloatArray, probability: float) -> Change | None:
        """A return that was not seen when it happened (noise, or in small steps) is a relief all the same."""
        healthy = self._healthy()
        if level(log_times[-_HORIZON:]) - healthy.level >= _RELIEF_BAR * self._bar:
            return None
        n_after = locate(self._slow_level, log_times, _HORIZON)
        change = self._change("relief", self._slow_level, healthy.level, log_times, n_after, probability)
        self._forget(len(log_times) - n_after)
        self._state = "healthy"
        return change

    def _change(
        self,
        kind: ChangeKind,
        before: float,
        baseline: float,
        log_times: FloatArray,
        n_after: int,
        probability: float,
    ) -> Change:
        after = level(log_times[-n_after:])
        self._slow_level = after
        first, last = self._steps[len(log_times) - n_after], self._steps[-1]
        return Change(
            kind=kind,
            step=first[0],
            time_ns=first[1],
            detected_step=last[0],
            detected_ns=last[1],
            before_s=math.exp(before),
            after_s=math.exp(after),
            baseline_s=math.exp(baseline),
            probability=probability,
        )

    def _forget(self, n_steps: int) -> list[float]:
        """Drop the oldest recent steps: they belong to the level before. Their logarithms are returned."""
        return [self._steps.popleft()[2] for _ in range(n_steps)]

    def _new_reference(self) -> None:
        self._reference.clear()
        self._reference.extend(self._forget(len(self._steps)))
        self._measured = None
