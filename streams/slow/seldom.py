"""Long iterations that no count of bursts tells of: they come seldom, or in a rhythm, and one rank makes them.

A host that stands still for a second each half minute takes a tenth of some job's time, in one iteration of eighty: too
few to be counted within a window, and by the clock so evenly that they look like an evaluation. So of all long
iterations the last are kept however far apart they are, and it is asked whose they are. Only who is named is told. What
comes in whole steps from the beginning on is the work of the script, whoever does it, and so is what the first rank
does in a rhythm at any time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from pacehound.model.events import Finding, Instant
from pacehound.model.evidence import merged
from pacehound.model.evidence.levels import Bursts, BurstsOver
from pacehound.model.identity import event_id
from streams.level.thresholds import BURST_SIGMAS, MIN_BURST_LOSS, NOISE_ROWS
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord
from streams.slow.attribution.verdict import with_names
from streams.slow.long_iterations import MORE, lossy, may_be_chance, stretches
from streams.slow.role import may_have_a_rhythm, rhythm
from streams.slow.thresholds import (
    BASELINE_ITERATIONS,
    BEGINS_WITHIN,
    BURST,
    HARDLY,
    MIN_SPELLS,
    SELDOM_KEPT,
    SELDOM_OVER,
    WHOLE_STEPS_SHARE,
    WORTH_SAYING,
)
from streams.spread import middle_and_sigma


class SlowSeldom:
    """The long iterations of one job while its level stays."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._finding: Finding | None = None
        self._last: Instant | None = None  # long one
        self._apart = 0.0  # steps between stretches of them
        self.begin_anew()

    @property
    def culprits(self) -> tuple[int, ...]:
        """Who is named for what goes on."""
        return () if self._finding is None else self._finding.culprits

    @property
    def since_step(self) -> int | None:
        """Where what goes on began."""
        return None if self._finding is None or self._finding.onset is None else self._finding.onset.step

    def begin_anew(self) -> None:
        """The level has changed: what was long is long no more, or for another reason. What was told goes on."""
        self._since_step: int | None = None
        self._first_step: int | None = None  # of the long ones, from there on
        self._kept: deque[IterationRecord] = deque(maxlen=SELDOM_KEPT)
        self._n = 0
        self._next_look = MIN_SPELLS

    def stop(self) -> list[Finding]:
        """It is not followed further: what was said last."""
        finding, self._finding = self._finding, None
        return [] if finding is None else [finding]

    def take(self, finding: Finding) -> None:
        """Somebody is named for what has a rhythm now, or has become rare: that is no end of it."""
        self._finding = finding

    def goes_on(self, step: int) -> bool:
        """Whether the next long one may be still to come."""
        return self._last is not None and step - (self._last.step or 0) <= SELDOM_OVER * self._apart

    def follow(
        self,
        records: deque[IterationRecord],
        usual_s: float,
        numbers: Mapping[TransferKey, int],
        observe: Callable[[], Observations],
        *,
        asks: bool,
    ) -> list[Finding]:
        """The last of some iterations; `usual_s` is the level of all. `asks`: nobody else is named for long ones."""
        now = records[-1]
        if self._since_step is None:
            self._since_step = now.step
        if now.step_time_s < BURST * usual_s or not _stands_out(records, usual_s):
            return self._over(now)
        slow = self._kept_with(now, usual_s)
        if slow[-1] is not now:
            return []
        self._n += 1
        self._last = Instant(step=now.step, time_ns=now.time_ns)
        self._apart = (now.step - slow[0].step) / max(len(stretches(slow)) - 1, 1)
        if self._n < self._next_look or not asks:
            return []
        self._next_look = self._n + max(self._n // MORE, 1)
        quiet = [r for r in records if r.step_time_s < BURST * usual_s][-BASELINE_ITERATIONS:]
        return self._ask(slow, quiet, usual_s, numbers, observe) if len(slow) >= MIN_SPELLS and quiet else []

    def _kept_with(self, now: IterationRecord, usual_s: float) -> list[IterationRecord]:
        """Those in which most of the time was lost. What is hardly longer beside a new one is kept no longer."""
        least_s = usual_s + (now.step_time_s - usual_s) / HARDLY
        self._kept = deque((r for r in self._kept if r.step_time_s >= least_s), maxlen=SELDOM_KEPT)
        if not self._kept:
            self._n, self._next_look, self._first_step = 0, MIN_SPELLS, None
        self._kept.append(now)
        return lossy(self._kept, usual_s)

    def _ask(
        self,
        slow: Sequence[IterationRecord],
        quiet: Sequence[IterationRecord],
        usual_s: float,
        numbers: Mapping[TransferKey, int],
        observe: Callable[[], Observations],
    ) -> list[Finding]:
        told, began, now = self._finding, slow[0], slow[-1]
        if self._first_step is None:
            self._first_step = began.step
        elapsed_s = (now.time_ns - began.time_ns) / 1e9 + began.step_time_s
        lost_share = sum(record.step_time_s - usual_s for record in slow) / elapsed_s
        if lost_share < MIN_BURST_LOSS or (told is not None and lost_share < WORTH_SAYING * (told.magnitude or 0.0)):
            return []
        observed, world = observe(), now.ranks.tolist()
        found = attribute(slow, quiet, numbers, observed, began.time_ns)
        found = weighed_by_crowd(found, world, began.time_ns, lost_share, observed)
        if (
            found.kind != "slow"
            or not found.culprits
            or found.links
            or may_be_chance(found.culprits, slow, quiet, observed.hosts)
        ):
            return []
        if self._is_meant(found.culprits, slow, quiet, world) or (told is not None and found.culprits != told.culprits):
            return []
        n, every = len(stretches(slow)), _whole_steps(slow) or None
        bursts = Bursts(n=n, since_step=began.step, lost_share=lost_share, every=every)
        finding = told or self._new(began, now)
        evidence = merged(told.evidence if told is not None else (), (bursts, *found.evidence))
        version = 0 if told is None else told.version + 1
        finding = replace(
            finding, version=version, magnitude=lost_share, evidence=evidence, unseen=(*found.unseen, *observed.unseen)
        )
        self._finding = with_names(finding, found, world)
        return [self._finding]

    def _new(self, began: IterationRecord, now: IterationRecord) -> Finding:
        return Finding(
            id=event_id("intermittent", self._job, self._attempt, "seldom", began.step),
            job=self._job,
            attempt=self._attempt,
            kind="intermittent",
            verdict="unknown",
            cause=None,
            onset=Instant(step=began.step, time_ns=began.time_ns),
            detected=Instant(step=now.step, time_ns=now.time_ns),
        )

    def _is_meant(
        self,
        culprits: Sequence[int],
        slow: Sequence[IterationRecord],
        quiet: Sequence[IterationRecord],
        world: Sequence[int],
    ) -> bool:
        """Whether it is work for all, or of the script: in whole steps from the beginning on, as others were before."""
        first = world[0]
        if tuple(culprits) == (first,) and (
            may_have_a_rhythm(first, slow, quiet) or rhythm(first, slow, quiet) is not None
        ):
            return True
        before = [record for record in self._kept if record.step < slow[0].step]
        if len(before) >= MIN_SPELLS and _whole_steps(before):
            return True  # cycles of steps are followed by themselves (`cycles.py`)
        every = _whole_steps(slow)
        assert self._first_step is not None
        assert self._since_step is not None
        return bool(every) and self._first_step - self._since_step <= BEGINS_WITHIN * every

    def _over(self, now: IterationRecord) -> list[Finding]:
        """It is over when none has come for some times as long as they lay apart."""
        if self._finding is None or self._last is None or self.goes_on(now.step):
            return []
        over = BurstsOver(last_step=self._last.step or 0, period=None)
        return [finding.next_version(over, relief=self._last) for finding in self.stop()]


def _stands_out(records: deque[IterationRecord], usual_s: float) -> bool:
    """Whether the last iteration is longer by more than usual ones differ; asked dozens of times a second."""
    last = islice(reversed(records), NOISE_ROWS)
    usual = [math.log(record.step_time_s) for record in last if 0.0 < record.step_time_s < BURST * usual_s]
    if not usual:
        return False
    typical, sigma = middle_and_sigma(usual)
    return math.log(records[-1].step_time_s) - typical >= BURST_SIGMAS * sigma


def _whole_steps(slow: Sequence[IterationRecord]) -> int:
    """Every how many steps they come, where nearly all come after whole multiples of it; else 0."""
    steps = np.array([slow[begin].step for begin in stretches(slow)])
    gaps = np.diff(steps)
    if len(gaps) < MIN_SPELLS - 1:
        return 0
    every = int(np.median(gaps))
    return every if np.mean(gaps % every == 0) >= WHOLE_STEPS_SHARE else 0
