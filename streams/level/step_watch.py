"""What is to be said about the step times of one series: slow, intermittent, changed, or planned."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pacehound.model.events import EarlierRun, Finding, FindingKind, Instant
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.levels import (
    Bursts,
    BurstsOver,
    HowItCame,
    Level,
    Recurring,
    Relieved,
    Trend,
    WorkChanged,
)
from pacehound.model.identity import event_id
from streams.level.bursts import BurstChange, BurstWatch
from streams.level.changepoint import Change, ChangepointDetector
from streams.level.earlier_runs import planned_by
from streams.level.thresholds import (
    COMPARED_ROWS,
    EXPLAINED,
    LASTING_STEPS,
    REMAINDER_STEPS,
    SAME_LEVEL,
    SAME_RAMP_ROWS,
    STILL_ROWS,
    STILL_SHARE,
    WORK_ROWS,
)
from streams.watching.waking import slowness_wakes

_NO_CALLS = "whose delay it is: only step times are known, no calls of single ranks"
_NO_WORK = "whether the work has changed: neither calls nor batch size nor sequence length are known here"
_NO_HISTORY = "whether it is planned: no earlier run of the job was given (--history)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One row of step times."""

    step: int  # the last step it covers
    time_ns: int  # when it ended; 0 if unknown
    step_time_s: float  # seconds per step
    n_steps: int = 1  # how many steps it covers; `step_time_s` is their mean
    # what is known of the work of these steps (`global_batch_size` …)
    work: Mapping[str, float] = field(default_factory=dict)
    planned: str = ""  # names what was announced within them (`checkpoint`, `evaluation`), else empty


@dataclass(slots=True)
class _Work:
    """A change of work that goes on: the next stage of a ramp belongs to it."""

    finding: Finding
    before_s: float
    row: int


class StepWatch:
    """Follows one series of step times and says what its users should know.

    Levels come from changepoint.py and drift.c, intermittent slowness from bursts.py. Here it is decided what a
    change means, by the strongest evidence there is:

    1. the log's own fields: the batch or the sequence grew as the step time did, a `change` of work;
    2. earlier runs that had the same change at the same step: planned, nothing is said;
    3. otherwise a lasting speed-up is a `change`, a slowdown is `slow` with the verdict `unknown`.

    A slowdown is `lasting` when 30 steps of it have been seen, and pages then if it is at least `min_change`.

    `min_change` is the relative change that counts as abrupt slowness (Falcon 4.2: 0.10); smaller ones are looked for
    with `small_changes` (drift.c). What is left of a slowdown after its relief, and too small to be seen then, goes on
    under its finding with `joins_remainders`; whoever asks anew at each onset who is slow has it apart.

    Examples
    --------
    >>> watch = StepWatch(job="j")
    >>> findings = []
    >>> for step in range(200):
    ...     step_time_s = 0.14 if 100 <= step < 150 else 0.1
    ...     findings += watch.update(StepTime(step=step, time_ns=0, step_time_s=step_time_s))
    >>> [(f.kind, f.onset.step, f.lasting, f.relief.step if f.relief else None) for f in findings]
    [('slow', 100, False, None), ('slow', 100, True, None), ('slow', 100, True, 150)]
    """

    def __init__(
        self,
        *,
        job: str,
        attempt: int = 0,
        source: str = "",
        min_change: float = 0.10,
        small_changes: bool = True,
        joins_remainders: bool = True,
        history: Sequence[EarlierRun] = (),
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._source = source
        self._min_change = min_change
        self._joins_remainders = joins_remainders
        self._history = tuple(history)
        self._detector = ChangepointDetector(min_change=min_change, small_changes=small_changes)
        self._bursts = BurstWatch()
        self._work: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=WORK_ROWS)
        self._excesses: deque[float] = deque(maxlen=STILL_ROWS)
        self._row = 0
        self._last_change: Change | None = None
        self._slow: Finding | None = None
        self._relieved: tuple[Finding, Change] | None = None  # the slowdown before it, and its relief
        self._slow_before_s = 0.0
        self._intermittent: Finding | None = None
        self._changing: _Work | None = None
        self._expected: dict[int, Finding] = {}

    @property
    def last_change(self) -> Change | None:
        """The change of level that the last row completed, whatever was made of it."""
        return self._last_change

    @property
    def intermittent_since(self) -> int | None:
        """The first step of the intermittent slowness that goes on."""
        found = self._intermittent
        return None if found is None or found.onset is None else found.onset.step

    @property
    def rhythm(self) -> int:
        """Every how many rows slow ones come; 0 where they come in no rhythm."""
        return self._detector.pattern_period or next(iter(self._bursts.recurrent), 0)

    @property
    def state(self) -> str:
        """`learning`, `healthy` or `slow`."""
        return self._detector.state

    @property
    def baseline_s(self) -> float | None:
        """The healthy level, seconds per step; `None` while learning."""
        return self._detector.baseline_s

    @property
    def planned(self) -> tuple[Finding, ...]:
        """What was learnt to be planned: patterns, bursts that recur, changes that earlier runs had too."""
        learnt = []
        offsets = self._detector.pattern_offsets
        if len(offsets):
            learnt.append(self._note("pattern", len(offsets), pattern_of(offsets)))
        for period in self._bursts.recurrent[:1]:
            if len(offsets) and period % len(offsets) == 0:
                continue
            learnt.append(self._note("bursts", period, Recurring(period=period)))
        return (*learnt, *self._expected.values())

    def update(self, row: StepTime) -> list[Finding]:
        """Take the next row; versions of findings that it completes (same id, growing `version`)."""
        self._row += 1
        if row.work:
            self._work.append((row.step, row.work))
        self._last_change = None
        if row.planned:
            self._detector.skip_planned()
            return []
        change = self._detector.update(row.step - row.n_steps + 1, row.time_ns, row.step_time_s, row.n_steps)
        if change is not None:
            change = replace(change, detected_step=row.step)
        self._last_change = change
        self._excesses.append(self._detector.last_excess)
        findings = [] if change is None else self._on_change(change)
        if change is None and self._slow is not None and not self._slow.lasting:
            findings += self._has_lasted(row)
        if self._detector.state == "healthy" and math.isfinite(row.step_time_s) and row.step_time_s > 0.0:
            burst = self._bursts.update(self._row, row.step, row.time_ns, self._detector.last_excess)
            if burst is not None:
                findings += self._on_burst(burst, row)
        return findings

    def accept(self) -> None:
        """The caller knows that the work has changed: the present level is healthy, and no slowdown goes on."""
        self._slow = None
        self._detector.rebaseline()

    def _on_change(self, change: Change) -> list[Finding]:
        if change.kind == "relief":
            return self._relieve(change)
        log_ratio = math.log(change.after_s / change.before_s)
        if work := self._change_of_work(change, log_ratio):
            self._detector.rebaseline()
            return [*self._relieve(change), *self._say_work(change, work)]
        if runs := planned_by(self._history, change.step, log_ratio):
            self._detector.rebaseline()
            self._expected[change.step] = self._note("history", change.step, level(change, runs=runs), change)
            return self._relieve(change)
        if change.kind == "speedup":
            return [*self._relieve(change), self._speedup(change)]
        if change.kind == "onset":
            self._slow = self._remainder(change) or self._onset(change)
            self._slow_before_s = change.before_s
            return [self._slow]
        if self._slow is None:
            return []
        now = level(change, "slower still" if change.kind == "worse" else "less slow")
        self._slow = self._slow.next_version(now, magnitude=change.after_s / self._slow_before_s - 1.0)
        return [self._slow]

    def _onset(self, change: Change) -> Finding:
        evidence: list[Evidence] = [level(change)]
        if change.is_ramp:
            evidence.append(HowItCame(shape="slowly"))
        elif change.is_small:
            evidence.append(HowItCame(shape="small"))
        n_steps = change.detected_step - change.step + 1
        magnitude = change.after_s / change.baseline_s - 1.0
        return self._finding(
            "slow",
            change.step,
            at=_instants(change),
            magnitude=magnitude,
            lasting=n_steps >= LASTING_STEPS,
            pages=self._wakes(magnitude, is_lasting=n_steps >= LASTING_STEPS),
            evidence=tuple(evidence),
            unseen=self._unseen(),
        )

    def _remainder(self, change: Change) -> Finding | None:
        """The slowdown before, which goes on where this is what is left of it."""
        if not self._joins_remainders or self._relieved is None:
            return None
        before, relief = self._relieved
        is_late = change.step - relief.step > REMAINDER_STEPS
        if is_late or abs(math.log(change.after_s / relief.after_s)) > SAME_LEVEL:
            return None
        magnitude = change.after_s / change.baseline_s - 1.0
        return before.next_version(level(change, "it is not over"), relief=None, magnitude=magnitude)

    def _unseen(self) -> tuple[str, ...]:
        """What would tell a planned change from a fault, and is not there."""
        return (_NO_CALLS, *(() if self._work else (_NO_WORK,)), *(() if self._history else (_NO_HISTORY,)))

    def _wakes(self, magnitude: float, *, is_lasting: bool) -> bool:
        return slowness_wakes(magnitude, is_lasting=is_lasting, is_named=False, min_change=self._min_change)

    def _has_lasted(self, row: StepTime) -> list[Finding]:
        assert self._slow is not None
        assert self._slow.onset is not None
        n_steps = row.step - (self._slow.onset.step or 0) + 1
        middle = self._detector.relief_middle
        still_slow = sum(1 for excess in self._excesses if excess > middle)
        if n_steps < LASTING_STEPS or still_slow < STILL_SHARE * len(self._excesses):
            return []
        self._slow = self._slow.next_version(
            lasting=True, pages=self._wakes(self._slow.magnitude or 0.0, is_lasting=True)
        )
        return [self._slow]

    def _relieve(self, change: Change) -> list[Finding]:
        if self._slow is None:
            return []
        relieved = self._slow.next_version(
            Relieved(after_s=change.after_s, measure="level", since_step=change.step),
            relief=Instant(step=change.step, time_ns=change.time_ns),
        )
        self._slow, self._relieved = None, (relieved, change)
        return [relieved]

    def _speedup(self, change: Change) -> Finding:
        return self._change_finding(change, change.before_s, (level(change), HowItCame(shape="speed-up")))

    def _say_work(self, change: Change, work: WorkChanged) -> list[Finding]:
        changing = self._changing
        if changing is not None and self._row - changing.row <= SAME_RAMP_ROWS:
            magnitude = change.after_s / changing.before_s - 1.0
            finding = changing.finding.next_version(level(change), work, magnitude=magnitude)
        else:
            finding = self._change_finding(change, change.before_s, (level(change), work))
            changing = _Work(finding, change.before_s, self._row)
        self._changing = _Work(finding, changing.before_s, self._row)
        return [finding]

    def _change_finding(self, change: Change, before_s: float, evidence: tuple[Evidence, ...]) -> Finding:
        magnitude = change.after_s / before_s - 1.0
        return self._finding(
            "change", change.step, at=_instants(change), magnitude=magnitude, lasting=True, evidence=evidence
        )

    def _change_of_work(self, change: Change, log_ratio: float) -> WorkChanged | None:
        """Which of the log's own fields changed with the step time, where one did."""
        before = [work for step, work in self._work if step < change.step]
        after = [work for step, work in self._work if step >= change.step]
        for name in sorted({name for work in after for name in work}):
            now = _median(after, name)
            for known in (before[-COMPARED_ROWS:], before):  # the step time may have followed the work by and by
                was = _median(known, name)
                if was > 0.0 and now > 0.0 and math.log(now / was) / log_ratio >= EXPLAINED:
                    return WorkChanged(what=name, before=was, after=now, by_log=True)
        return None

    def _on_burst(self, burst: BurstChange, row: StepTime) -> list[Finding]:
        if burst.kind == "begins":
            first = Instant(step=burst.first.step, time_ns=burst.first.time_ns)
            self._intermittent = self._finding(
                "intermittent",
                burst.first.step,
                at=(first, Instant(step=row.step, time_ns=row.time_ns)),
                magnitude=burst.loss,
                evidence=(Bursts(n=burst.n, since_step=burst.first.step, lost_share=burst.loss),),
                unseen=(_NO_CALLS,),
            )
            return [self._intermittent]
        if self._intermittent is None:
            return []
        over = BurstsOver(last_step=burst.last.step, period=burst.period or None)
        relief = Instant(step=burst.last.step, time_ns=burst.last.time_ns)
        ended = self._intermittent.next_version(over, relief=relief)
        self._intermittent = None
        return [ended]

    def _note(self, what: str, number: int, piece: Evidence, change: Change | None = None) -> Finding:
        return self._finding(
            "planned",
            what,
            number,
            at=(None, None) if change is None else _instants(change),
            magnitude=None if change is None else change.after_s / change.before_s - 1.0,
            evidence=(piece,),
        )

    def _finding(
        self,
        kind: FindingKind,
        *identity: str | int,
        at: tuple[Instant | None, Instant | None],
        magnitude: float | None,
        evidence: tuple[Evidence, ...],
        lasting: bool = False,
        pages: bool = False,
        unseen: tuple[str, ...] = (),
    ) -> Finding:
        """A finding of this series; `at` is when it began and when it was said. Step times name nobody."""
        onset, detected = at
        return Finding(
            id=event_id(kind, self._job, self._attempt, *identity),
            job=self._job,
            attempt=self._attempt,
            kind=kind,
            verdict="unknown",
            cause=None,
            onset=onset,
            detected=detected,
            magnitude=magnitude,
            lasting=lasting,
            pages=pages,
            evidence=evidence,
            unseen=unseen,
            source=self._source,
        )


def _instants(change: Change) -> tuple[Instant, Instant]:
    return (
        Instant(step=change.step, time_ns=change.time_ns),
        Instant(step=change.detected_step, time_ns=change.detected_ns),
    )


def level(change: Change, trend: Trend = "", runs: tuple[str, ...] = ()) -> Level:
    """Both levels of a change."""
    return Level(before_s=change.before_s, after_s=change.after_s, since_step=change.step, trend=trend, runs=runs)


def pattern_of(offsets: np.ndarray) -> Recurring:
    """A learnt pattern.

    >>> pattern_of(np.array([0.0] * 9 + [0.7])).words
    'one step in 10 takes 2.01 times as long as the others'
    >>> pattern_of(np.array([-0.2, 0.2])).words
    'steps alternate: every other one takes 1.49 times as long'
    """
    if len(offsets) == 2:
        return Recurring(period=2, n_slow=1, ratio=math.exp(float(np.ptp(offsets))))
    ratio = math.exp(float(offsets.max() - np.median(offsets)))
    return Recurring(period=len(offsets), n_slow=int((offsets > 0.5 * float(offsets.max())).sum()), ratio=ratio)


def _median(rows: Sequence[Mapping[str, float]], name: str) -> float:
    values = [row[name] for row in rows if name in row and math.isfinite(row[name])]
    return float(np.median(values)) if values else 0.0
