"""Slow iterations: an online detector of onset and relief, for one series of step times or thousands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.level.level_series import (
    KINDS,
    NONE,
    STATES,
    ChangeKind,
    State,
    advance,
    advance_all,
    announce,
    is_sound,
    new_series,
    rebaseline,
)

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A verified change of the level of a series."""

    # `onset` (healthy to slow), `worse` and `eased` (slow to another slow level), `relief` (slow to healthy),
    # `speedup` (a lasting level below the baseline, which becomes the new baseline)
    kind: ChangeKind
    # the first step of the new level
    step: int
    time_ns: int
    # the step after which it was said
    detected_step: int
    detected_ns: int
    # the two levels, in seconds per step
    before_s: float
    after_s: float
    baseline_s: float  # the healthy level that `slow` is measured by (for a speed-up, the one given up)
    probability: float  # BOCD's posterior mass of a change within the time looked at; 1 where drift.c found it
    is_small: bool = False  # found by drift.c: below the bar of an abrupt change, but lasting
    is_ramp: bool = False  # it came slowly rather than from one step to the next

    @property
    def magnitude(self) -> float:
        """Relative to the baseline: +0.4 is 40 % slower than healthy."""
        return self.after_s / self.baseline_s - 1.0


class ChangepointDetector:
    """BOCD with verification (Falcon 4.2), and the memory of what healthy was.

    Two parts. BOCD (bocd.c) runs on the logarithm of the step times, through a median of three so that a single
    pause does not restart it, and proposes: the posterior mass of a change within the last 64 steps exceeds 0.9.
    Verification (verification.c) decides. A new level counts when

    - it lies at least `min_change` beyond the reference,
    - and 5.25 standard errors, by the noise and lag-1 correlation of the reference and of thousands of steps before,
    - and as many by how windows of its length strayed in the reference (or it is 20 % and 2.5 times the furthest one),
    - and it persists: ten steps, most of them (and four of the last five) past the middle between the levels.

    Logarithms, because slowdowns are ratios and jitter scales with the step time; trimmed means, because step times
    have spikes that mean nothing. A repeating pattern of up to 64 steps is learnt and taken out first (pattern.c). A
    pause (up to two steps 30 % beyond the level, then back) and the elevated ones among the four steps after it belong
    to no level: caches are cold then.

    The healthy reference is up to 384 steps, joined at an age of 96 steps. It stands still while the series is slow,
    so a slow level never becomes normal by lasting; only `rebaseline` (the caller knows that the work has changed)
    or a lasting speed-up replaces it. While slow, another level 10 % away is `worse` or `eased`; a level within 9 % of
    what it was before with at most two fifths of the slowdown left is the `relief`; 64 such steps are one in any case.

    With `small_changes`, drift.c looks for what lies below the bar of an abrupt change: from 8 % (24 steps) down to
    4 % (128 steps), and slow drifts.

    Where rows are means of ten steps or more (`n_steps`), six rows may be a level.

    Bounds, in steps of the new level: an abrupt change is said after 10 at the earliest, and within 64 or not at all
    (then by drift.c, or never); a return to the level before is said within 64 in any case. Of 600 plain
    changes of 12 % in correlated jitter of up to 3 % one took more than 24 steps (38), and changes of 20 % took 12 at
    the most (docs/scoreboard.md). State is bounded (`SERIES.itemsize` bytes).

    What it cannot see: changes within the first 24 steps, or within twelve after a warm-up; drifts slower than 4 % in
    1,500 steps.

    Parameters
    ----------
    min_change
        Smallest relative change that is reported as abrupt, 0.10 for Falcon's 10 %.
    small_changes
        Whether drift.c looks, too.
    exact
        Keep the whole run-length posterior, for comparison: slower, and the verdicts are the same.

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
    [('onset', 100, 109), ('relief', 150, 159)]

    References
    ----------
    Falcon (arXiv 2410.12588), section 4.2 and appendix 9.1.
    """

    def __init__(self, *, min_change: float = 0.10, small_changes: bool = True, exact: bool = False) -> None:
        if not 0.0 < min_change < 1.0:
            raise ValueError(f"min_change must lie between 0 and 1 (0.10 is 10 %), got {min_change}")
        self._record = new_series(1, min_change, small_changes, exact)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The loops write where the record's counters say: one that contradicts itself is refused (`ValueError`)."""
        self.__dict__.update(state)
        if self._record.shape != (1,) or not is_sound(self._record):
            raise ValueError(f"the record of a series contradicts itself; its shape is {self._record.shape}")

    @property
    def state(self) -> State:
        """`learning`, then `healthy` or `slow`."""
        return STATES[int(self._record["state"][0])]

    @property
    def skipped(self) -> int:
        """Step times that were no positive finite number, and left out."""
        return int(self._record["skipped"][0])

    @property
    def baseline_s(self) -> float | None:
        """The healthy level, in seconds per step; `None` while learning."""
        return None if self.state == "learning" else math.exp(float(self._record["measured"]["level"][0]))

    @property
    def pattern_period(self) -> int:
        """How many steps the learnt pattern has; 0 without one."""
        return int(self._record["pattern"]["period"][0])

    @property
    def pattern_offsets(self) -> FloatArray:
        """What each step of the learnt pattern takes longer than the level, as logarithms; empty without one."""
        learnt = self._record["pattern"][0]
        offsets: FloatArray = learnt["offset"][: int(learnt["period"])].copy()
        return offsets

    @property
    def last_excess(self) -> float:
        """How far the last row lay above the healthy level, the pattern taken out, as a logarithm."""
        return float(self._record["excess"][0])

    @property
    def relief_middle(self) -> float:
        """How far the middle between the slow level and what it returns to lies above the healthy one, as a logarithm.

        A row below it looks like relief. It means something while the state is `slow`.
        """
        record = self._record[0]
        return float(0.5 * (record["slow_level"] + record["target"]) - record["measured"]["level"])

    def update(self, step: int, time_ns: int, step_time_s: float, n_steps: int = 1) -> Change | None:
        """Take the next row; say what it completes, if anything.

        `n_steps` is how many steps the row is the mean of. `time_ns` only labels it; `step` says, besides, where in a
        pattern it stands.
        """
        kind = advance(self._record, step, time_ns, float(step_time_s), float(n_steps))
        return None if kind == NONE else _change(self._record[0], kind, step, time_ns)

    def skip_planned(self) -> None:
        """A row was left out because a pause had been announced in it: the next one may still be disturbed."""
        announce(self._record)

    def rebaseline(self) -> None:
        """Take the present level for healthy: the caller knows that the work itself has changed."""
        rebaseline(self._record)


class ChangepointDetectors:
    """Thousands of series at once: the same detector, one record each, and no Python per row.

    The parameters are those of `ChangepointDetector`, for `n` series.

    Examples
    --------
    >>> detectors = ChangepointDetectors(1000)
    >>> for step in range(160):
    ...     step_time_s = np.full(1000, 0.1)
    ...     step_time_s[7] = 0.14 if step >= 100 else 0.1
    ...     for series, change in detectors.update(step, step * 10**8, step_time_s):
    ...         print(series, change.kind, change.step)
    7 onset 100
    """

    def __init__(self, n: int, *, min_change: float = 0.10, small_changes: bool = True, exact: bool = False) -> None:
        if n < 0 or not 0.0 < min_change < 1.0:
            raise ValueError(f"detectors need n >= 0 and min_change between 0 and 1, got {n} and {min_change}")
        self._records = new_series(n, min_change, small_changes, exact)
        self._kinds = np.empty(n, np.int64)

    def update(self, step: int, time_ns: int, step_time_s: FloatArray) -> list[tuple[int, Change]]:
        """Take the next row of every series, shape `(n,)`, NaN where a series has none; the changes by series."""
        if step_time_s.shape != self._kinds.shape:
            raise ValueError(f"step times must have shape {self._kinds.shape}, got {step_time_s.shape}")
        if not advance_all(self._records, step, time_ns, np.ascontiguousarray(step_time_s, np.float64), self._kinds):
            return []
        return [
            (int(i), _change(self._records[i], int(self._kinds[i]), step, time_ns))
            for i in np.flatnonzero(self._kinds != NONE)
        ]


def _change(record: np.void, kind: int, step: int, time_ns: int) -> Change:
    return Change(
        kind=KINDS[kind],
        step=int(record["step"]),
        time_ns=int(record["time_ns"]),
        detected_step=step,
        detected_ns=time_ns,
        before_s=math.exp(float(record["before"])),
        after_s=math.exp(float(record["after"])),
        baseline_s=math.exp(float(record["baseline"])),
        probability=float(record["probability"]),
        is_small=bool(record["is_small"]),
        is_ramp=bool(record["is_ramp"]),
    )
