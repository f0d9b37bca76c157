"""Scores findings against what really happened: precision, recall, delay, false alarms, culprits, slow time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.events import Finding
from pacehound.model.truth.steps import StepTruth, TrueChange

BoolArray = npt.NDArray[np.bool_]

ALARMS = ("slow", "hang", "exit")
ONSET_WITHIN = 100
"""Steps between the onset of a change and that of a finding which has found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What was right and wrong about the findings of one series; scores of several series add up."""

    # how much was looked at
    series: int = 0
    iterations: int = 0
    # faults that had to be found, and that were
    expected: int = 0
    found: int = 0
    false_alarms: int = 0  # alarms about nothing
    # alarms that begin inside a fault and found none: it had been found already, or their onset is too late
    repeats: int = 0
    # alarms about a change that need not be found: a weak one, or one of the job's own plan that nothing in the log
    # explains
    excused: int = 0
    # changes of kind `intermittent` and `change` that had to be noted, and that were
    notes_expected: int = 0
    notes_found: int = 0
    # findings that found a fault whose culprits or links are known, and those of them that name exactly these
    blamed: int = 0
    blamed_right: int = 0
    # steps inside faults that had to be found, and those of them inside an alarm
    slow_steps: int = 0
    slow_covered: int = 0
    # steps outside of every change, explained ones apart, and those of them inside an alarm
    quiet_steps: int = 0
    quiet_called_slow: int = 0
    # series by what they hold, as Falcon's tables count them; a clean one has no fault that must be found, and a
    # wrong one has a miss, a false alarm, or both
    series_with_fault: int = 0
    series_with_miss: int = 0
    clean_series_with_false_alarm: int = 0
    series_wrong: int = 0
    # steps from the onset of each found slow fault to the step at which it was first said; 0 at the onset itself
    delays: tuple[int, ...] = ()
    # steps from the end of each found fault to the step at which that was said, where the caller knows it
    relief_delays: tuple[int, ...] = ()
    # steps between the true and the stated onset (and relief, where both have one) of each found fault
    onset_errors: tuple[int, ...] = ()
    relief_errors: tuple[int, ...] = ()

    def __add__(self, other: Score) -> Score:
        return Score.total((self, other))

    @classmethod
    def total(cls, scores: Iterable[Score]) -> Score:
        """The sum of several series' scores; that of none is an empty score."""
        every = list(scores)
        summed: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(score, field.name) for score in every]
            is_list = isinstance(field.default, tuple)
            summed[field.name] = tuple(x for value in values for x in value) if is_list else sum(values)
        return cls(**summed)

    @property
    def precision(self) -> float | None:
        """Found faults over these and the false alarms; `None` without any."""
        return _share(self.found, self.found + self.false_alarms)

    @property
    def recall(self) -> float | None:
        """Found over expected faults; `None` where none was expected."""
        return _share(self.found, self.expected)

    @property
    def notes_recall(self) -> float | None:
        """Noted over expected intermittent slowness and changes; `None` where none was expected."""
        return _share(self.notes_found, self.notes_expected)

    @property
    def false_alarms_per_1000(self) -> float | None:
        """False alarms per 1,000 iterations."""
        return _share(1_000 * self.false_alarms, self.iterations)

    @property
    def culprit_accuracy(self) -> float | None:
        """Right names over found faults whose culprit is known; `None` where it nowhere is."""
        return _share(self.blamed_right, self.blamed)

    @property
    def slow_share_covered(self) -> float | None:
        """Share of the slow steps that lie inside a finding."""
        return _share(self.slow_covered, self.slow_steps)

    @property
    def quiet_share_called_slow(self) -> float | None:
        """Share of the quiet steps that lie inside a finding."""
        return _share(self.quiet_called_slow, self.quiet_steps)

    @property
    def accuracy(self) -> float | None:
        """Share of the series with nothing missed and no false alarm (the accuracy of Falcon's tables)."""
        return _share(self.series - self.series_wrong, self.series)

    def delay(self, quantile: float) -> float | None:
        """Delay in iterations: 0.5 is the median, 1.0 the longest; `None` without any."""
        return quantile_of(self.delays, quantile)

    def relief_delay(self, quantile: float) -> float | None:
        """The same for reliefs."""
        return quantile_of(self.relief_delays, quantile)


def final_versions(findings: Iterable[Finding]) -> list[Finding]:
    """The last version of each finding; the same whatever order they come in."""
    latest: dict[str, Finding] = {}
    for finding in findings:
        if finding.id not in latest or finding.version >= latest[finding.id].version:
            latest[finding.id] = finding
    return sorted(latest.values(), key=_order)


def score(
    findings: Iterable[Finding],
    truth: StepTruth,
    *,
    onset_within: int = ONSET_WITHIN,
    relief_said: Mapping[str, int] | None = None,
) -> Score:
    """Hold the findings about one series against its truth.

    The rule, for which all versions of a finding count as its last one:

    1. An *alarm* is a finding of kind `slow`, `hang` or `exit`, or one of another kind that is `lasting` and no
       speed-up. Every other finding wakes nobody: it is at most a note. Findings of kind `planned` or `blind` that do
       not last are ignored.
    2. A finding *fits* a change when its open interval (from its onset up to its relief, or the end of the series)
       overlaps that of the change; when its onset is at most `onset_within` steps before the change's onset or after
       the step at which the change is whole; and when it was said no sooner than the change's onset (a hang or exit: no
       sooner than the step before, for that is the last one that anybody has finished). An onset that has no step
       lies, for this rule, where the change begins.
    3. Notes first: each `intermittent` or `change` is noted by a finding of its own kind that fits it, and a `planned`
       change may be noted by one of kind `change` or `planned`. A finding that notes something is no alarm.
    4. Each fault (`slow`, `hang`, `exit`), in order of onset, is found by the first said of the alarms that fit it and
       are not taken yet, be it of the fault's kind, or a lasting one of no alarming kind for a slow one. No alarm
       finds two faults. Required faults take their alarms before those that need not be found.
    5. An alarm that is left over is *excused* when it fits a change that is `planned`, `change` or `intermittent`, that
       made the job slower and that nothing in the log explains, and no other alarm was excused by that change; a
       *repeat* when its onset lies inside a fault widened by `onset_within` at its begin, and it was said no sooner
       than that began; else a *false alarm*.

    Parameters
    ----------
    findings
        In any order.
    truth
        What happened, in the same steps as the findings.
    onset_within
        Steps; for a log with a row every 50 steps 250 is fair.
    relief_said
        By the id of a finding, the step at which its relief was first said: no version of it tells.

    Examples
    --------
    >>> from pacehound.model.events import Instant
    >>> truth = StepTruth(
    ...     first_step=0, last_step=999, changes=(TrueChange(kind="slow", onset=400, end=600, magnitude=0.2),)
    ... )
    >>> finding = Finding(
    ...     id="f", job="j", attempt=0, kind="slow", verdict="unknown", cause=None, onset=Instant(step=402, time_ns=0),
    ...     detected=Instant(step=411, time_ns=0), relief=Instant(step=600, time_ns=0),
    ... )
    >>> scored = score([finding], truth)
    >>> scored.precision, scored.recall, scored.delays, scored.slow_share_covered
    (1.0, 1.0, (11,), 0.99)
    """
    final = final_versions(findings)
    alarms = [finding for finding in final if _is_alarm(finding)]
    faults = _where(truth, lambda change: change.kind in ALARMS and change.is_required)
    weak_faults = _where(truth, lambda change: change.kind in ALARMS and not change.is_required)
    slower = _where(
        truth, lambda c: c.kind not in ALARMS and not c.is_explained and c.magnitude is not None and c.magnitude > 0.0
    )
    to_note = _where(truth, lambda change: change.kind in ("intermittent", "change") and change.is_required)
    may_note = _where(truth, lambda change: change.kind in ("intermittent", "change", "planned"))

    noted = _matched(may_note, [finding for finding in final if finding.kind not in ALARMS], truth, onset_within)
    alarms = _without(alarms, noted.values())
    found = _matched(faults, alarms, truth, onset_within)
    free = _without(alarms, found.values())
    weak = _matched(weak_faults, free, truth, onset_within)
    free = _without(free, weak.values())
    excused = _matched(slower, free, truth, onset_within)
    free = _without(free, excused.values())
    repeats = sum(_is_inside_one(alarm, truth, onset_within) for alarm in free)

    is_called_slow = _steps_inside(((_onset(alarm, truth), _end(alarm, truth)) for alarm in alarms), truth)
    is_slow = _steps_inside(((truth.changes[i].onset, truth.end_of(truth.changes[i])) for i in faults), truth)
    is_quiet = ~_steps_inside(
        ((change.onset, truth.end_of(change)) for change in truth.changes if not change.is_explained), truth
    )
    named = [(truth.changes[i], finding) for i, finding in found.items()]
    known = [(change, finding) for change, finding in named if change.culprits or change.links]
    n_false = len(free) - repeats
    return Score(
        series=1,
        iterations=truth.last_step + 1 - truth.first_step,
        expected=len(faults),
        found=len(found),
        false_alarms=n_false,
        repeats=repeats,
        excused=len(weak) + len(excused),
        notes_expected=len(to_note),
        notes_found=len(noted.keys() & to_note),
        blamed=len(known),
        blamed_right=sum(_names_exactly(finding, change) for change, finding in known),
        slow_steps=int(is_slow.sum()),
        slow_covered=int((is_slow & is_called_slow).sum()),
        quiet_steps=int(is_quiet.sum()),
        quiet_called_slow=int((is_quiet & is_called_slow).sum()),
        series_with_fault=int(bool(faults)),
        series_with_miss=int(len(found) < len(faults)),
        clean_series_with_false_alarm=int(n_false > 0 and not faults),
        series_wrong=int(n_false > 0 or len(found) < len(faults)),
        delays=tuple(
            _detected_step(finding, truth) - change.onset for change, finding in named if change.kind == "slow"
        ),
        relief_delays=tuple(
            (relief_said or {})[finding.id] - change.end
            for change, finding in named
            if change.end is not None and finding.id in (relief_said or {})
        ),
        onset_errors=tuple(_onset_error(finding, change, truth) for change, finding in named),
        relief_errors=tuple(
            abs(finding.relief.step - change.end)
            for change, finding in named
            if change.end is not None and finding.relief is not None and finding.relief.step is not None
        ),
    )


def quantile_of(values: Sequence[int], quantile: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed; `None` without any.

    Examples
    --------
    >>> quantile_of([3, 1, 2, 4], 0.5), quantile_of([3, 1, 2, 4], 1.0), quantile_of([], 0.5)
    (2.0, 4.0, None)
    """
    if not values:
        return None
    return float(sorted(values)[max(math.ceil(quantile * len(values)) - 1, 0)])


def _is_alarm(finding: Finding) -> bool:
    return finding.kind in ALARMS or (finding.lasting and (finding.magnitude is None or finding.magnitude > 0.0))


def _where(truth: StepTruth, is_wanted: Callable[[TrueChange], bool]) -> set[int]:
    """Positions in `truth.changes`."""
    return {index for index, change in enumerate(truth.changes) if is_wanted(change)}


def _matched(wanted: Set[int], findings: Sequence[Finding], truth: StepTruth, onset_within: int) -> dict[int, Finding]:
    """By position of a change in `truth.changes`, the first said of the findings that fit it; each used once."""
    taken: set[str] = set()
    matches: dict[int, Finding] = {}
    for index in sorted(wanted):
        change = truth.changes[index]
        fits = [
            finding
            for finding in findings
            if finding.id not in taken
            and _speaks_of(finding, change)
            and _overlaps(finding, change, truth)
            and _onset_error(finding, change, truth) <= onset_within
            and _is_in_time(finding, change, truth)
        ]
        if fits:
            matches[index] = min(fits, key=lambda finding: (_detected_step(finding, truth), *_order(finding)))
            taken.add(matches[index].id)
    return matches


def _speaks_of(finding: Finding, change: TrueChange) -> bool:
    """A finding of this kind may be about such a change. Which findings are asked, notes or alarms, is the caller's."""
    if change.kind in ("hang", "exit") or finding.kind in ("hang", "exit"):
        return finding.kind == change.kind
    if change.kind in ("intermittent", "change"):
        return finding.kind in (change.kind, "slow")
    return True


def _overlaps(finding: Finding, change: TrueChange, truth: StepTruth) -> bool:
    begin = change.onset if _has_no_step(finding) else _onset(finding, truth)
    return begin < truth.end_of(change) and _end(finding, truth) > change.onset


def _onset_error(finding: Finding, change: TrueChange, truth: StepTruth) -> int:
    """Steps outside of the stretch in which the change came about."""
    if _has_no_step(finding):
        return 0
    onset = _onset(finding, truth)
    return max(change.onset - onset, onset - (change.settled or change.onset), 0)


def _is_inside_one(finding: Finding, truth: StepTruth, onset_within: int) -> bool:
    onset = _onset(finding, truth)
    return any(
        change.onset - onset_within <= onset < truth.end_of(change) and _is_in_time(finding, change, truth)
        for change in truth.changes
        if change.kind in ALARMS
    )


def _steps_inside(intervals: Iterable[tuple[int, int]], truth: StepTruth) -> BoolArray:
    """Shape `(steps of the truth,)`."""
    is_inside = np.zeros(truth.last_step + 1 - truth.first_step, bool)
    for begin, end in intervals:
        is_inside[max(begin - truth.first_step, 0) : max(end - truth.first_step, 0)] = True
    return is_inside


def _has_no_step(finding: Finding) -> bool:
    return finding.onset is None or finding.onset.step is None


def _onset(finding: Finding, truth: StepTruth) -> int:
    if finding.onset is None or finding.onset.step is None:
        return truth.first_step
    return finding.onset.step


def _end(finding: Finding, truth: StepTruth) -> int:
    """The first step after it. A relief at the onset's own step leaves that step slow (a hang within one iteration)."""
    if finding.relief is None:
        return truth.last_step + 1
    if finding.relief.step is None:
        return _onset(finding, truth) + 1
    return max(finding.relief.step, _onset(finding, truth) + 1)


def _detected_step(finding: Finding, truth: StepTruth) -> int:
    if finding.detected is None or finding.detected.step is None:
        return _onset(finding, truth)
    return finding.detected.step


def _is_in_time(finding: Finding, change: TrueChange, truth: StepTruth) -> bool:
    """Not before it happened: a detector that speaks earlier has not seen this change."""
    unfinished = 1 if change.kind in ("hang", "exit") else 0
    return _detected_step(finding, truth) >= change.onset - unfinished


def _names_exactly(finding: Finding, change: TrueChange) -> bool:
    """The same ranks and, in either direction, the same links."""
    stated = {frozenset(link) for link in finding.links}
    true = {frozenset(link) for link in change.links}
    return set(finding.culprits) == set(change.culprits) and stated == true


def _without(findings: Iterable[Finding], taken: Iterable[Finding]) -> list[Finding]:
    ids = {finding.id for finding in taken}
    return [finding for finding in findings if finding.id not in ids]


def _order(finding: Finding) -> tuple[int, str]:
    if finding.onset is None or finding.onset.step is None:
        return -1, finding.id
    return finding.onset.step, finding.id


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
