"""A job whose steps have a rhythm: slow where the long steps of it have become longer, while all others stay.

Where every eighth step generates samples, or averages parameters, seven of eight are what they were when one rank
becomes slow in it, and the level of the steps is theirs. So whole cycles are followed as well, each as one iteration,
and whose delay it is is asked of them. Only who is named is told: what generates may generate more from some day on,
and that is nobody's fault. And only of a rhythm that all ranks had before: work that one rank does in a rhythm (a log,
a checkpoint) may well be meant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pacehound.model.events import Finding, Instant
from pacehound.model.evidence import merged
from pacehound.model.evidence.levels import CycleLevel
from pacehound.model.identity import event_id
from streams.level.changepoint import Change
from streams.level.step_watch import StepTime, StepWatch
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import Float32Array, IterationRecord, level_of, mean_step_time_s
from streams.slow.attribution.verdict import Attribution, with_names
from streams.slow.critical_path import Charges
from streams.slow.thresholds import (
    CYCLES_ASKED,
    CYCLES_KEPT,
    LONG_STEP,
    LONGER_PART,
    QUIET_CYCLES,
    RHYTHM,
)
from streams.watching.waking import slowness_wakes


class SlowCycles:
    """Follows the cycles of one job while nobody is named for its single steps."""

    def __init__(self, job: str, attempt: int, min_change: float) -> None:
        self._job = job
        self._attempt = attempt
        self._min_change = min_change
        self._begin(0)

    def _begin(self, period: int) -> None:
        self._period = period
        self._watch = StepWatch(
            job=self._job, attempt=self._attempt, min_change=self._min_change, small_changes=False,
            joins_remainders=False,
        )  # fmt: skip
        self._part: list[IterationRecord] = []  # of the cycle that is going on
        self._cycles: deque[IterationRecord] = deque(maxlen=CYCLES_KEPT)
        self._longest_s: deque[float] = deque(maxlen=CYCLES_KEPT)  # step of each
        self._typical_s = 0.0  # what most single steps took when the rhythm was found
        self._began: Finding | None = None  # a slowdown that goes on, as its level tells of it
        self._told: Finding | None = None  # and what was said of it last, once somebody was named
        self._awaits = False  # a better answer
        self._excess_s = 0.0
        self._before_s = 0.0

    @property
    def is_followed(self) -> bool:
        """A rhythm was known when the last iteration came."""
        return self._period > 0

    @property
    def told(self) -> Finding | None:
        """What was said of the slowdown that goes on."""
        return self._told

    @property
    def excess_s(self) -> float:
        """What the last one has cost."""
        return self._excess_s

    def stop(self) -> list[Finding]:
        """What goes on cannot be followed further: what was said of it last. Cycles are learnt anew."""
        told = self._told
        self._begin(0)
        return [] if told is None else [told]

    def follow(
        self,
        records: Sequence[IterationRecord],
        rhythm: int,
        numbers: Mapping[TransferKey, int],
        observe: Callable[[], Observations],
        *,
        is_known: bool,
    ) -> list[Finding]:
        """The last of some iterations; every how many of them a long one comes (0: none does).

        `is_known`: single steps are slow, and somebody is named for it. Cycles tell nothing new then; what they have
        told goes on until they take what they took.
        """
        if self._told is not None:
            fresh = [records[-1]]
        elif is_known or not rhythm:
            self._begin(0)
            return []
        elif rhythm != self._period:
            self._begin(rhythm)
            self._typical_s = float(np.median([record.step_time_s for record in records]))
            fresh = list(records)  # the newest cycles whole
            fresh = fresh[len(fresh) % rhythm :]
        else:
            fresh = [records[-1]]
        said: list[Finding] = []
        for record in fresh:
            self._part.append(record)
            if len(self._part) >= self._period:
                self._longest_s.append(max(one.step_time_s for one in self._part))
                said += self._on_cycle(_joined(self._part), numbers, observe)
                self._part = []
        return said

    def _on_cycle(
        self, cycle: IterationRecord, numbers: Mapping[TransferKey, int], observe: Callable[[], Observations]
    ) -> list[Finding]:
        self._cycles.append(cycle)
        findings = self._watch.update(
            StepTime(step=cycle.step, time_ns=cycle.time_ns, step_time_s=cycle.step_time_s, n_steps=self._period)
        )
        change = self._watch.last_change
        levels = [finding for finding in findings if finding.kind == "slow"]
        if self._began is None:
            if change is None or change.kind != "onset" or not levels:
                return []
            self._on_onset(levels[0], change)
        else:
            self._excess_s += self._period * max(0.0, cycle.step_time_s - self._before_s)
        assert self._began is not None
        said = [] if self._told is None or not levels else [self._on_level(self._told, levels[-1], change)]
        if change is not None and change.kind == "relief":
            self._began = self._told = None
            return said
        if self._told is None or self._awaits:
            said += self._ask(self._began, numbers, observe())
        return said

    def _on_onset(self, found: Finding, change: Change) -> None:
        self._before_s = change.before_s
        self._excess_s = self._period * sum(
            max(0.0, cycle.step_time_s - change.before_s) for cycle in self._cycles if cycle.step >= change.step
        )
        self._began = replace(
            found,
            id=event_id("slow", self._job, self._attempt, "cycles", change.step),
            evidence=(self._level(change),),
            unseen=(),
        )
        self._awaits = False

    def _level(self, change: Change) -> CycleLevel:
        return CycleLevel(period=self._period, before_s=self._before_s, after_s=change.after_s, since_step=change.step)

    def _on_level(self, told: Finding, now: Finding, change: Change | None) -> Finding:
        """A slowdown that was told has lasted, has another level, or is over."""
        evidence = told.evidence if change is None else merged(told.evidence, (self._level(change),))
        self._told = replace(
            told,
            version=told.version + 1,
            magnitude=now.magnitude,
            lasting=now.lasting,
            relief=now.relief,
            evidence=evidence,
        )
        return self._told

    def _ask(self, began: Finding, numbers: Mapping[TransferKey, int], observed: Observations) -> list[Finding]:
        """Whose delay it is, until it is known; nobody is told of it before, and after some cycles it is usual."""
        assert began.onset is not None
        assert began.onset.step is not None
        slow = [cycle for cycle in self._cycles if cycle.step >= began.onset.step]
        quiet = [cycle for cycle in self._cycles if cycle.step < began.onset.step][-QUIET_CYCLES:]
        found = attribute(slow, quiet, numbers, observed, slow[0].time_ns)
        ranks = slow[-1].ranks.tolist()
        found = weighed_by_crowd(found, ranks, slow[0].time_ns, began.magnitude or 0.0, observed)
        is_named, told = self._is_named(found, quiet), self._told
        self._awaits = len(slow) < CYCLES_ASKED and (told is None or found.awaits_processors)
        if told is not None and is_named and found.culprits == told.culprits:
            if found.verdict == told.verdict:
                return []
            self._told = self._answered(told, found, ranks, observed)
        elif told is not None:
            # Where a machine is busy nobody on it is to blame. Whom else later cycles do not name they do not clear.
            if not (found.short_of_processors and told.culprits and set(told.culprits) <= set(found.candidates)):
                return []
            self._told = self._answered(told, found, ranks, observed)
        elif is_named:
            at = Instant(step=slow[-1].step, time_ns=slow[-1].time_ns)
            self._told = replace(self._answered(began, found, ranks, observed), version=0, detected=at)
        else:
            if not self._awaits or found.kind == "change":
                self._watch.accept()
                self._began = None
            return []
        return [self._told]

    def _answered(self, finding: Finding, found: Attribution, ranks: Sequence[int], observed: Observations) -> Finding:
        """The next version of a finding, with this answer to whose delay it is."""
        wakes = slowness_wakes(
            finding.magnitude or 0.0,
            is_lasting=finding.lasting,
            is_named=bool(found.culprits),
            min_change=self._min_change,
        )
        return replace(
            with_names(finding, found, ranks),
            version=finding.version + 1,
            pages=wakes and not found.may_be_the_machine,
            evidence=merged(finding.evidence, found.evidence),
            unseen=(*found.unseen, *observed.unseen),
        )

    def _is_named(self, found: Attribution, quiet: Sequence[IterationRecord]) -> bool:
        """Whether ranks are named who had no larger part than others in a rhythm that was there before."""
        if found.kind != "slow" or not found.culprits or found.links:
            return False
        ranks = quiet[-1].ranks
        own_ns = np.nan_to_num(level_of(quiet, "own_ns", ranks))
        is_theirs = np.isin(ranks, found.culprits)
        if is_theirs.all() or not self._had_long_steps(quiet):
            return False
        return bool(own_ns[is_theirs].max(initial=0.0) <= LONGER_PART * np.median(own_ns[~is_theirs]))

    def _had_long_steps(self, quiet: Sequence[IterationRecord]) -> bool:
        """Whether the rhythm was there then: all steps together, or the longest of each cycle, tell of it."""
        if mean_step_time_s(quiet) >= RHYTHM * self._typical_s:
            return True
        steps = {cycle.step for cycle in quiet}
        kept = zip(self._cycles, self._longest_s, strict=True)
        longest_s = [longest_s for cycle, longest_s in kept if cycle.step in steps]
        return float(np.median(longest_s)) >= LONG_STEP * self._typical_s


def is_of_cycles(finding: Finding) -> bool:
    """Whether a finding is of whole cycles of steps."""
    return any(isinstance(piece, CycleLevel) for piece in finding.evidence)


def _joined(records: Sequence[IterationRecord]) -> IterationRecord:
    """Some iterations as one: its values are for one iteration, as those of each are."""
    last = records[-1]
    alike = [record for record in records if np.array_equal(record.ranks, last.ranks)]
    width = max(len(record.transfer_ns) for record in alike)
    transfer_ns = np.zeros(width, np.float32)
    for record in alike:
        transfer_ns[: len(record.transfer_ns)] += record.transfer_ns / len(alike)
    lost = [record.lost_share for record in alike if record.lost_share is not None]
    launches = [record.first_launch_ns for record in alike if record.first_launch_ns is not None]
    own_ns = _mean([record.own_ns for record in alike])
    has_sends = any(record.own_most_ns is not record.own_ns for record in alike)
    return replace(
        last,
        step_time_s=float(np.mean([record.step_time_s for record in records])),
        charges=Charges.together(record.charges for record in alike).shared_by(len(alike)),
        own_ns=own_ns,
        own_most_ns=_mean([record.own_most_ns for record in alike]) if has_sends else own_ns,
        transfer_ns=transfer_ns,
        n_rounds=round(sum(record.n_rounds for record in alike) / len(alike)),
        size_bytes=round(sum(record.size_bytes for record in alike) / len(alike)),
        lost_share=_mean(lost) * np.float32(len(lost) / len(alike)) if lost else None,
        first_launch_ns=_mean(launches) if len(launches) == len(alike) else None,
        sees_transfers=any(record.sees_transfers for record in alike),
    )


def _mean(columns: Sequence[Float32Array]) -> Float32Array:
    mean: Float32Array = np.stack(columns).mean(axis=0, dtype=np.float32)
    return mean
