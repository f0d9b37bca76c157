"""Single iterations and short bursts that are slow while the level stays: whose they are, and when that is over."""

from __future__ import annotations

import math
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
from streams.slow.attribution.records import IterationRecord, columns_of, level_of
from streams.slow.pace import Pace, newest, pace_s
from streams.slow.role import rhythm
from streams.slow.thinned import Thinned
from streams.slow.thresholds import (
    ALIKE,
    BASELINE_ITERATIONS,
    BURST,
    MOST_BY_CHANCE,
    MOST_OF_LOSS,
    WORTH_SAYING,
)

MORE = 4
"""They are asked about again when one in so many more have come (chosen: bounds the work)."""


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

    def stop(self) -> list[Finding]:
        """It cannot be followed further: what was said last."""
        finding, self._finding, self._before = self._finding, None, None
        return [] if finding is None else [finding]

    def begins(
        self,
        finding: Finding,
        records: Sequence[IterationRecord],
        numbers: Mapping[TransferKey, int],
        observed: Observations,
    ) -> Finding:
        """They are told of for the first time, or again where they have become the rule and are so still."""
        known = self._finding
        if known is not None:
            version = known.version + 1
            finding = replace(finding, id=known.id, onset=known.onset, detected=known.detected, version=version)
        self._began, self._before = finding, None
        self._finding = self._asked(finding, records, numbers, observed)
        if known is not None and known.culprits and not self._finding.culprits:
            self._finding = replace(known, version=known.version + 1)  # who was named stays so
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
        if records[-1].step_time_s < self._slow_from_s or len(_slow(began, records)) < self._next_look:
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
        slow, self._slow_from_s = _slow(finding, records), BURST * _typical_s(records)
        self._next_look = len(slow) + max(len(slow) // MORE, 1)
        quiet = [r for r in records if r.step_time_s < self._slow_from_s][-BASELINE_ITERATIONS:]
        finding = _with_loss(finding, records)
        since_ns = slow[0].time_ns if slow else 0
        world = records[-1].ranks.tolist()
        found = attribute(slow, quiet, numbers, observed, since_ns)
        found = weighed_by_crowd(found, world, since_ns, finding.magnitude or 0.0, observed)
        if not found.culprits or _may_be_chance(found.culprits, slow, quiet):
            return replace(finding, unseen=(*found.unseen, *observed.unseen))
        if found.culprits == (world[0],) and (work := rhythm(world[0], slow)) is not None:
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


def _typical_s(records: Sequence[IterationRecord]) -> float:
    """What most iterations take."""
    return float(np.median([record.step_time_s for record in records]))


def _slow(finding: Finding, records: Sequence[IterationRecord]) -> list[IterationRecord]:
    """The iterations in which most of the time was lost since it began; of such as are hardly longer there are many."""
    onset = (finding.onset.step if finding.onset is not None else None) or 0
    typical_s = _typical_s(records)
    longer = [r for r in records if r.step >= onset and r.step_time_s >= BURST * typical_s]
    lost_s = np.sort([record.step_time_s - typical_s for record in longer])[::-1]
    if not longer:
        return []
    least_s = float(lost_s[np.searchsorted(lost_s.cumsum(), MOST_OF_LOSS * lost_s.sum())])
    return [record for record in longer if record.step_time_s - typical_s >= ALIKE * least_s]


def _with_loss(finding: Finding, records: Sequence[IterationRecord]) -> Finding:
    """How many there have been since it began, and what they have cost; at first as it was told."""
    onset = (finding.onset.step if finding.onset is not None else None) or 0
    step_times_s = np.array([record.step_time_s for record in records if record.step >= onset])
    typical_s = _typical_s(records)
    is_slow = step_times_s >= BURST * typical_s
    lost = float((step_times_s[is_slow] - typical_s).sum() / step_times_s.sum()) if len(step_times_s) else 0.0
    if lost <= (finding.magnitude or 0.0):
        return finding
    told = Bursts(n=int((is_slow[1:] & ~is_slow[:-1]).sum() + is_slow[0]), since_step=onset, lost_share=lost)
    return replace(finding, magnitude=lost, evidence=merged(finding.evidence, (told,)))


def _may_be_chance(culprits: Sequence[int], slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> bool:
    """Whether of ranks that pause now and then, all alike, some would have this part in so few slow stretches.

    The probability that chance gives them as many as they have, or more, for any ranks that are as many (binomial).

    >>> _by_chance(5, 5, 1, 4) > MOST_BY_CHANCE, _by_chance(6, 6, 1, 4) > MOST_BY_CHANCE
    (True, False)
    >>> _by_chance(9, 10, 1_000, 4_096)
    1.0
    """
    if not all(record.sees_transfers for record in slow):
        return False
    ranks, steps = slow[-1].ranks, np.array([record.step for record in slow])
    grown = np.nan_to_num(columns_of(slow, "own_ns", ranks) - level_of(quiet, "own_ns", ranks))
    begins = np.flatnonzero(np.diff(steps, prepend=steps[0] - 2) > 1)  # one pause may be seen in several iterations
    whose = ranks[np.argmax(np.add.reduceat(grown, begins), axis=1)]
    n_theirs = int(np.isin(whose, culprits).sum())
    return _by_chance(n_theirs, len(whose), len(culprits), len(ranks)) > MOST_BY_CHANCE


def _by_chance(n_theirs: int, n: int, n_culprits: int, n_ranks: int) -> float:
    share = n_culprits / n_ranks
    tail = sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n_theirs, n + 1))
    if tail <= 0.0:
        return 0.0
    # Of a thousand ranks more sets can be chosen than a float can count.
    choices = math.lgamma(n_ranks + 1) - math.lgamma(n_culprits + 1) - math.lgamma(n_ranks - n_culprits + 1)
    return math.exp(min(choices + math.log(tail), 0.0))
