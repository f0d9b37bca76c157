"""Single iterations and short bursts that are slow while the level stays: whose they are, and when that is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pacehound.model.events import Finding, Instant
from pacehound.model.evidence import merged
from pacehound.model.evidence.levels import Bursts, Relieved, SingleSlow
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord
from streams.slow.long_iterations import MORE, lossy, may_be_chance, typical_s
from streams.slow.pace import Pace, newest, pace_s
from streams.slow.role import may_have_a_rhythm, rhythm
from streams.slow.thinned import Thinned
from streams.slow.thresholds import (
    BASELINE_ITERATIONS,
    BURST,
    WORTH_SAYING,
)


class SlowNowAndThen:
    """What is said of slow iterations that come again and again (`streams.level.bursts`), as long as it goes on.

    They are asked about when they are first told, and again when a quarter more have come: of few nobody can tell a
    slow rank from chance.
    """

    def __init__(self, min_change: float) -> None:
        self._min_change = min_change
        self._began: Finding | None = None  # as it was told of, without a name
        self._finding: Finding | None = None  # and what was said of it last
        self._next_look = 0  # at so many slow iterations
        self._slow_from_s = 0.0  # what counts as one, when they were asked about
        self._before: Pace | None = None  # once they have become the rule: the pace before them

    @property
    def goes_on(self) -> bool:
        """Something was said, and it is not over."""
        return self._finding is not None

    @property
    def culprits(self) -> tuple[int, ...]:
        """Whose they are, where it is known."""
        return () if self._finding is None else self._finding.culprits

    def stop(self) -> list[Finding]:
        """It cannot be followed further: what was said last."""
        finding, self._finding, self._before = self._finding, None, None
        return [] if finding is None else [finding]

    def begins(
        self,
        finding: Finding,
        known: Finding | None,
        records: Sequence[IterationRecord],
        numbers: Mapping[TransferKey, int],
        observed: Observations,
    ) -> Finding:
        """They are told of for the first time, or again where they have become the rule and are so still.

        `known`: what was said of them while they came seldom.
        """
        known = self._finding or known
        if known is not None:
            version = known.version + 1
            finding = replace(finding, id=known.id, onset=known.onset, detected=known.detected, version=version)
        self._began, self._before = finding, None
        self._finding = self._asked(finding, records, numbers, observed)
        if known is not None and known.culprits and not self._finding.culprits:
            self._finding = replace(known, version=known.version + 1)  # who was named stays so
        return self._finding

    def named_by(self, seldom: Finding) -> Finding:
        """Of the longest of them, which come seldom, it is known whose they are."""
        assert self._finding is not None
        self._finding = replace(
            seldom,
            id=self._finding.id,
            version=self._finding.version + 1,
            onset=self._finding.onset,
            detected=self._finding.detected,
            magnitude=max(self._finding.magnitude or 0.0, seldom.magnitude or 0.0),
        )
        return self._finding

    def look_again(
        self,
        records: Sequence[IterationRecord],
        numbers: Mapping[TransferKey, int],
        observe: Callable[[], Observations],
    ) -> list[Finding]:
        """More of them have come: the same question may have a better answer."""
        finding, began = self._finding, self._began
        if finding is None or began is None or self._before is not None:
            return []
        if records[-1].step_time_s < self._slow_from_s or len(_since(began, records)) < self._next_look:
            return []
        asked = self._asked(began, records, numbers, observe())
        is_named = asked.culprits != () and finding.culprits == ()
        is_more = (asked.magnitude or 0.0) >= WORTH_SAYING * (finding.magnitude or 0.0)
        # Who was named stays so: later ones, in which chance has a part, do not clear them.
        if not (is_named or asked.kind != finding.kind or (is_more and asked.culprits == finding.culprits)):
            return []
        self._finding = replace(asked, version=finding.version + 1)
        return [self._finding]

    def ends(self, finding: Finding, records: Thinned[IterationRecord], *, has_episode: bool) -> Finding:
        """Slow steps that do not count as bursts any more: over only where the job is as fast as before them."""
        known, self._finding = self._finding, None
        if known is not None:  # who was named stays so
            finding = replace(
                known,
                version=known.version + 1,
                relief=finding.relief,
                evidence=merged(known.evidence, finding.evidence),
            )
        onset = (finding.onset.step if finding.onset is not None else None) or 0
        before = Pace.of([r.step_time_s for r in records if r.step < onset][-BASELINE_ITERATIONS:])
        step_times_s = [r.step_time_s for r in newest(list(records.recent), 0)]
        if before is None or has_episode or not before.is_exceeded(step_times_s, self._min_change):
            return finding
        rule = SingleSlow(now_s=pace_s(step_times_s), before_s=before.typical_s)
        self._finding = replace(finding, relief=None, evidence=merged(finding.evidence, (rule,)))
        self._before = before
        return self._finding

    def even_again(self, records: Sequence[IterationRecord]) -> list[Finding]:
        """What had become the rule is over where the pace is what it was."""
        if self._finding is None or self._before is None:
            return []
        since = newest(records, 0)
        step_times_s = [r.step_time_s for r in since]
        if self._before.is_exceeded(step_times_s, self._min_change):
            return []
        relief = Instant(step=since[0].step, time_ns=since[0].time_ns)
        now = Relieved(after_s=pace_s(step_times_s), measure="as before", since_step=since[0].step)
        return [finding.next_version(now, relief=relief) for finding in self.stop()]

    def _asked(
        self,
        finding: Finding,
        records: Sequence[IterationRecord],
        numbers: Mapping[TransferKey, int],
        observed: Observations,
    ) -> Finding:
        """The finding with what these iterations tell, held against the others."""
        slow, self._slow_from_s = _since(finding, records), BURST * typical_s(records)
        self._next_look = len(slow) + max(len(slow) // MORE, 1)
        quiet = [r for r in records if r.step_time_s < self._slow_from_s][-BASELINE_ITERATIONS:]
        finding = _with_loss(finding, records)
        since_ns = slow[0].time_ns if slow else 0
        world = records[-1].ranks.tolist()
        found = attribute(slow, quiet, numbers, observed, since_ns)
        found = weighed_by_crowd(found, world, since_ns, finding.magnitude or 0.0, observed)
        is_first = found.culprits == (world[0],)
        is_too_early = is_first and may_have_a_rhythm(world[0], slow, quiet)
        if not found.culprits or is_too_early or may_be_chance(found.culprits, slow, quiet, observed.hosts):
            return replace(finding, unseen=(*found.unseen, *observed.unseen))
        if is_first and (work := rhythm(world[0], slow, quiet)) is not None:
            evidence = merged(finding.evidence, (work,))
            return replace(finding, kind="planned", candidates=found.culprits, evidence=evidence)
        return replace(
            finding,
            verdict=found.verdict,
            cause=found.cause,
            culprits=found.culprits,
            victims=tuple(rank for rank in world if rank not in found.culprits),
            evidence=merged(finding.evidence, found.evidence),
            unseen=(*found.unseen, *observed.unseen),
        )


def _since(finding: Finding, records: Sequence[IterationRecord]) -> list[IterationRecord]:
    """The iterations in which most of the time was lost since it began."""
    onset = (finding.onset.step if finding.onset is not None else None) or 0
    return lossy(records, typical_s(records), onset)


def _with_loss(finding: Finding, records: Sequence[IterationRecord]) -> Finding:
    """How many there have been since it began, and what they have cost; at first as it was told."""
    onset = (finding.onset.step if finding.onset is not None else None) or 0
    step_times_s = np.array([record.step_time_s for record in records if record.step >= onset])
    usual_s = typical_s(records)
    is_slow = step_times_s >= BURST * usual_s
    lost = float((step_times_s[is_slow] - usual_s).sum() / step_times_s.sum()) if len(step_times_s) else 0.0
    if lost <= (finding.magnitude or 0.0):
        return finding
    told = Bursts(n=int((is_slow[1:] & ~is_slow[:-1]).sum() + is_slow[0]), since_step=onset, lost_share=lost)
    return replace(finding, magnitude=lost, evidence=merged(finding.evidence, (told,)))
