"""A series of iterations: when it has become slow, who makes it so, when that ends.

The changepoint detector says *that* the level of the iteration time has changed; `attribution` says *who* did it,
from what is kept here of every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pacehound.model.events import Changepoint, EarlierRun, Finding, Instant
from pacehound.model.evidence import merged, not_about
from pacehound.model.evidence.computing import NobodyApart
from pacehound.model.evidence.levels import AsInEarlierRuns, Relieved, SingleSlow
from streams.level.changepoint import Change
from streams.level.earlier_runs import planned_by
from streams.level.step_watch import StepTime, StepWatch
from streams.level.thresholds import LASTING_STEPS
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.growth import is_of_others
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord
from streams.slow.attribution.shortages import weighed_by_shortages
from streams.slow.attribution.verdict import Attribution, with_names
from streams.slow.episode import SlowEpisode, continued, joined
from streams.slow.long_iterations import lossy, may_be_chance, typical_s
from streams.slow.now_and_then import SlowNowAndThen
from streams.slow.pace import Pace, newest, pace_s
from streams.slow.seldom import SlowSeldom
from streams.slow.thinned import Thinned
from streams.slow.thresholds import (
    ANSWERED_MORE,
    ATTRIBUTED_ITERATIONS,
    BASELINE_ITERATIONS,
    HISTORY_ITERATIONS,
    STRETCH,
    UNANSWERED_MORE,
)
from streams.watching.waking import slowness_wakes
from streams.watching.watch import Said

THINNED = 8


class SlowSeries:
    """Follows what is kept of the iterations of one job.

    Below `min_change` an abrupt new level is jitter (Falcon 4.2: 0.10).
    """

    def __init__(self, job: str, attempt: int, min_change: float, earlier: tuple[EarlierRun, ...] = ()) -> None:
        self._job = job
        self._attempt = attempt
        self._min_change = min_change
        self._watch = self._new_watch()
        # A slow drift needs a baseline far back.
        self._records: Thinned[IterationRecord] = Thinned(HISTORY_ITERATIONS, BASELINE_ITERATIONS, every=THINNED)
        self._earlier = earlier
        self._episode: SlowEpisode | None = None
        self._now_and_then = SlowNowAndThen(min_change)
        self._seldom = SlowSeldom(job, attempt)
        self._excess_s = 0.0

    def _new_watch(self) -> StepWatch:
        """Of the level: what is left of a slowdown is one of its own, for who is slow is asked anew at each onset."""
        return StepWatch(job=self._job, attempt=self._attempt, min_change=self._min_change, joins_remainders=False)

    @property
    def records(self) -> Sequence[IterationRecord]:
        """The last iterations, oldest first."""
        return list(self._records.recent)

    @property
    def rhythm(self) -> int:
        """Every how many iterations long ones come; 0 where they come in no rhythm."""
        return self._watch.rhythm

    @property
    def names_somebody(self) -> bool:
        """Iterations are slow, and it is known whose delay it is."""
        return self._episode is not None and bool(self._episode.finding.culprits or self._episode.finding.links)

    @property
    def finds_nobody(self) -> bool:
        """Iterations are slow, and the delay seems to be spread over all."""
        pieces = () if self._episode is None else self._episode.finding.evidence
        return any(isinstance(piece, NobodyApart) and piece.growth == "is spread" for piece in pieces)

    @property
    def culprits(self) -> tuple[int, ...]:
        """Ranks that are named for the slow stretch that is going on."""
        return () if self._episode is None else self._episode.finding.culprits

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Links that are."""
        return () if self._episode is None else self._episode.finding.links

    def ongoing(self) -> dict[str, float]:
        """The slow stretch that is going on: what it has cost so far."""
        return {self._episode.finding.id: self._excess_s} if self._episode is not None else {}

    @property
    def excess_s(self) -> float:
        """What the last slow stretch has cost."""
        return self._excess_s

    def on_history(self, runs: tuple[EarlierRun, ...]) -> None:
        """Earlier runs of the job: what they did at the same step was planned, unless a rank stands apart."""
        self._earlier = runs

    def stop(self) -> list[Finding]:
        """What goes on cannot be followed further: what was said of it last."""
        episode, self._episode = self._episode, None
        told = [] if episode is None else [episode.finding]
        return [*told, *self._now_and_then.stop(), *self._seldom.stop()]

    def follow(
        self,
        record: IterationRecord,
        numbers: Mapping[TransferKey, int],
        observe: Callable[[], Observations],
        *,
        cycles_tell: bool = False,
    ) -> list[Said]:
        """The next one; what else is known is asked for when there is something to say.

        `cycles_tell`: somebody is named for long ones in a rhythm.
        """
        self._records.append(record)
        if self._episode is not None:
            self._excess_s += max(0.0, record.step_time_s - self._episode.before_s)
        findings = self._watch.update(
            StepTime(step=record.step, time_ns=record.time_ns, step_time_s=record.step_time_s)
        )
        events: list[Said] = []
        change = self._watch.last_change
        if self._now_and_then.goes_on and not findings:
            events += self._now_and_then.even_again(self.records)
            events += self._now_and_then.look_again(self.records, numbers, observe)
        if change is not None:
            self._seldom.begin_anew()
        elif self._episode is None and (usual_s := self._watch.baseline_s) is not None:
            asks = not (findings or self._now_and_then.culprits or cycles_tell)
            said = self._seldom.follow(self._records.recent, usual_s, numbers, observe, asks=asks)
            if said and self._now_and_then.goes_on:
                said = [self._now_and_then.named_by(*self._seldom.stop())]
            events += said
        if change is None and not findings and not self._is_asked_again(record):
            return events  # as nearly always
        observed = observe()
        if change is not None:
            events.append(self._changepoint(change))
            if change.kind == "onset":
                events += observed.outliers()
        for finding in findings:
            if finding.kind == "slow":
                events += self._on_slow(finding, record, numbers, observed, change)
            elif finding.kind == "intermittent" and finding.relief is not None:
                if self._now_and_then.culprits and self._seldom.goes_on(record.step):
                    self._seldom.take(*self._now_and_then.stop())
                    continue
                has_episode = self._episode is not None
                events.append(self._now_and_then.ends(finding, self._records, has_episode=has_episode))
            elif finding.kind == "intermittent":
                known = next(iter(self._seldom.stop()), None)
                events.append(self._now_and_then.begins(finding, known, self.records, numbers, observed))
            else:
                events.append(finding)
        if not findings and self._episode is not None:
            if self._episode.level_back is not None:
                events += self._recovered()
            if self._episode is not None and record.step >= self._episode.next_look:
                events += self._look_again(record, numbers, observed)
        return events

    def _is_asked_again(self, record: IterationRecord) -> bool:
        """Whether it is time to ask whose the slowdown is that goes on, or whether it does."""
        episode = self._episode
        return episode is not None and (episode.level_back is not None or record.step >= episode.next_look)

    def _on_slow(
        self,
        finding: Finding,
        record: IterationRecord,
        numbers: Mapping[TransferKey, int],
        observed: Observations,
        change: Change | None,
    ) -> list[Finding]:
        episode = self._episode
        if episode is None:
            assert change is not None
            self._excess_s = sum(
                max(0.0, r.step_time_s - change.before_s) for r in self._records.recent if r.step >= change.step
            )
            found = self._attribute(change.step, numbers, observed)
            if found.kind == "change":
                return [self._accept(finding, found, observed)]
            runs = planned_by(self._earlier, change.step, math.log(change.after_s / change.before_s))
            if runs and not found.culprits and not found.links:
                self._watch.accept()
                evidence = merged(finding.evidence, (AsInEarlierRuns(runs=runs),))
                return [replace(finding, kind="planned", evidence=evidence, unseen=())]
            told = self._held_back(found, finding, observed)
            finding = self._with(finding, told, observed, version=0)
            next_look = record.step + ATTRIBUTED_ITERATIONS
            before = self._pace_before(change.step)
            self._episode = SlowEpisode(finding, change.step, change.before_s, next_look, found, told, finding, before)
            return [finding]
        if change is not None and change.kind == "worse":
            episode.found = joined(episode.found, self._attribute(change.step, numbers, observed))
        if finding.relief is not None and self._is_still_slow(finding.relief):
            return self._hold(finding.relief, record, observed)
        if finding.id != episode.finding.id:
            finding = continued(episode, finding)
        episode.level_back = None
        told = self._held_back(episode.found, finding, observed)
        episode.finding = self._with(finding, told, observed, version=episode.finding.version + 1)
        episode.told = told  # not before: what the earlier answer said goes with it
        if finding.relief is not None:
            self._episode = None
        return [episode.finding]

    def _pace_before(self, onset_step: int) -> Pace | None:
        """The pace before a slowdown; slow steps now and then that came before it and lead up to it do not count."""
        first = self._led_up_to(onset_step)
        return Pace.of([r.step_time_s for r in self._records if r.step < first][-BASELINE_ITERATIONS:])

    def _led_up_to(self, onset_step: int) -> int:
        """Where the slow steps now and then began that go over into a slowdown, or it itself."""
        steps = [onset_step, self._watch.intermittent_since, self._seldom.since_step]
        return min(step for step in steps if step is not None)

    def _is_still_slow(self, relief: Instant) -> bool:
        """Whether the pace since what looks like the relief is still above what was before."""
        assert self._episode is not None
        since = newest(self.records, relief.step or 0)
        before = self._episode.before
        return before is not None and before.is_exceeded([r.step_time_s for r in since], self._min_change)

    def _hold(self, relief: Instant, record: IterationRecord, observed: Observations) -> list[Finding]:
        """Most iterations take what they took before, and the others keep the job slow: it goes on."""
        episode = self._episode
        assert episode is not None
        assert episode.before is not None
        is_told, episode.level_back = episode.level_back is not None, relief.step
        if is_told:
            return []
        now_s, before_s = (
            pace_s([r.step_time_s for r in newest(self.records, relief.step or 0)]),
            episode.before.typical_s,
        )
        single = SingleSlow(now_s=now_s, before_s=before_s, since_step=relief.step)
        lasting = episode.finding.lasting or record.step - episode.onset_step + 1 >= LASTING_STEPS
        magnitude, evidence = now_s / before_s - 1.0, merged(episode.began.evidence, (single,))
        going_on = replace(episode.finding, magnitude=magnitude, lasting=lasting, evidence=evidence)
        told = self._held_back(episode.found, going_on, observed)
        episode.finding = self._with(going_on, told, observed, version=going_on.version + 1)
        episode.told = told
        return [episode.finding]

    def _recovered(self) -> list[Finding]:
        """It ends when the iterations take on average what they took before."""
        episode = self._episode
        assert episode is not None
        assert episode.before is not None
        since = newest(self.records, episode.level_back or 0)
        step_times_s = [r.step_time_s for r in since]
        if len(since) < STRETCH or episode.before.is_exceeded(step_times_s, self._min_change):
            return []
        now = Relieved(after_s=pace_s(step_times_s), measure="average", since_step=since[0].step)
        relief = Instant(step=since[0].step, time_ns=since[0].time_ns)
        relieved = episode.finding.next_version(now, relief=relief)
        self._episode = None
        return [relieved]

    def _look_again(
        self, record: IterationRecord, numbers: Mapping[TransferKey, int], observed: Observations
    ) -> list[Finding]:
        """More slow iterations are known now: the same question may have a better answer."""
        episode = self._episode
        assert episode is not None
        slow_steps = record.step - episode.onset_step
        # Where nobody is named yet, the next reading of a network or a device may tell: agents send one in seconds.
        is_named = bool(episode.found.culprits or episode.found.links) and not episode.found.awaits_processors
        more = slow_steps // (ANSWERED_MORE if is_named else UNANSWERED_MORE)
        episode.next_look = record.step + max(ATTRIBUTED_ITERATIONS, more)
        old = episode.found
        if slow_steps <= HISTORY_ITERATIONS - BASELINE_ITERATIONS:
            found = self._attribute(episode.onset_step, numbers, observed)
        elif old.short_of_processors or episode.finding.onset is None:
            return []
        else:
            # The quiet iterations are being forgotten: the answer would only get worse. Its reason may still come.
            onset_ns, magnitude = episode.finding.onset.time_ns, episode.finding.magnitude or 0.0
            found = weighed_by_shortages(old, record.ranks.tolist(), onset_ns, magnitude, observed)
        is_same = (found.kind, found.verdict, found.cause, found.culprits, found.links) == (
            old.kind,
            old.verdict,
            old.cause,
            old.culprits,
            old.links,
        )
        has_its_reason = bool(found.short_of_processors) and not old.short_of_processors
        # What was seen at first stands: later iterations in which the fault fades do not clear whom it named; those do
        # that are as slow because of others. Its reason comes later: where a machine is busy nobody on it is to blame.
        is_cleared = bool(old.culprits or old.links) and not (found.culprits or found.links)
        machine_is_busy = has_its_reason and bool(old.culprits) and set(old.culprits) <= set(found.candidates)
        if (is_same and not has_its_reason) or (is_cleared and not (machine_is_busy or self._are_others(episode))):
            found = old
        told = found if found.kind == "change" else self._held_back(found, episode.finding, observed)
        if found is old and told.may_be_the_machine == episode.told.may_be_the_machine:
            return []
        version = episode.finding.version + 1
        if found.kind == "change":
            accepted = replace(self._accept(episode.finding, found, observed), version=version)
            self._episode = None
            return [replace(accepted, relief=Instant(step=record.step, time_ns=record.time_ns))]
        episode.finding = self._with(episode.finding, told, observed, version=version)
        episode.found, episode.told = found, told  # not before: what the earlier answer said goes with it
        return [episode.finding]

    def _are_others(self, episode: SlowEpisode) -> bool:
        """Whether what goes on is of others than those who were named."""
        first_growth_s = episode.before_s * (episode.finding.magnitude or 0.0)
        return is_of_others(episode.found.culprits, *self._compared(episode.onset_step), first_growth_s)

    def _held_back(self, found: Attribution, finding: Finding, observed: Observations) -> Attribution:
        """What is told of an answer while it may be the machine."""
        if finding.onset is None:
            return found
        world = self._records.recent[-1].ranks.tolist()
        return weighed_by_crowd(found, world, finding.onset.time_ns, finding.magnitude or 0.0, observed)

    def _accept(self, finding: Finding, found: Attribution, observed: Observations) -> Finding:
        """The work has changed: its level is the new baseline, and nobody is called."""
        self._watch.accept()
        return replace(self._with(finding, found, observed, version=0), kind="change", lasting=True)

    def _with(self, finding: Finding, found: Attribution, observed: Observations, *, version: int) -> Finding:
        """The finding with this answer to whose delay it is; what is said of its level stays."""
        world = self._records.recent[-1].ranks.tolist()
        levels = not_about(finding.evidence, found.evidence)
        if self._episode is not None:
            levels = not_about(levels, self._episode.told.evidence)
        wakes = slowness_wakes(
            finding.magnitude or 0.0,
            is_lasting=finding.lasting,
            is_named=bool(found.culprits),
            min_change=self._min_change,
        )
        return replace(
            with_names(finding, found, world),
            pages=found.kind == "slow" and wakes and not found.may_be_the_machine,
            evidence=(levels[0], *found.evidence, *levels[1:]),
            unseen=(*found.unseen, *observed.unseen),
            version=version,
        )

    def _attribute(self, onset_step: int, numbers: Mapping[TransferKey, int], observed: Observations) -> Attribution:
        """Compare the iterations since `onset_step` with the quiet ones before it."""
        first = next((r for r in self._records.recent if r.step >= onset_step), None)
        slow, quiet = self._compared(onset_step)
        since_ns = 0 if first is None else first.time_ns
        found = attribute(slow, quiet, numbers, observed, since_ns)
        if found.culprits or found.links or not quiet:
            return found
        # Each third iteration may make the job slow while most are what they were, or a rank is slow by fits.
        known = self._now_and_then.culprits or self._seldom.culprits
        is_open = found.kind == "slow" and not found.candidates
        if not (known or is_open):
            return found
        long = lossy(slow, typical_s(quiet))
        of_long = attribute(long, quiet, numbers, observed, since_ns)
        if not of_long.culprits:
            return found
        is_theirs = of_long.culprits == known or (
            is_open and not may_be_chance(of_long.culprits, long, quiet, observed.hosts)
        )
        return of_long if is_theirs else found

    def _compared(self, onset_step: int) -> tuple[list[IterationRecord], list[IterationRecord]]:
        """The last slow iterations since a step, and the last quiet ones before it."""
        slow = [r for r in self._records.recent if r.step >= onset_step]
        first = self._led_up_to(onset_step)
        quiet = [r for r in self._records if r.step < first]
        return _without_spikes(slow[-BASELINE_ITERATIONS:]), _without_spikes(quiet[-BASELINE_ITERATIONS:])

    def _changepoint(self, change: Change) -> Changepoint:
        return Changepoint(
            job=self._job,
            attempt=self._attempt,
            series="iteration",
            at=Instant(step=change.step, time_ns=change.time_ns),
            detected=Instant(step=change.detected_step, time_ns=change.detected_ns),
            before_s=change.before_s,
            after_s=change.after_s,
            probability=change.probability,
        )


def _without_spikes(records: list[IterationRecord]) -> list[IterationRecord]:
    """Leave out the slowest tenth: a single pause must not decide whose level has changed."""
    if len(records) < 10:
        return records
    limit = float(np.quantile([r.step_time_s for r in records], 0.9))
    return [r for r in records if r.step_time_s <= limit]
