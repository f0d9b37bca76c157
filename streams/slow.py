"""Slow iterations of one job: when they began, who makes them slow, when they end.

The changepoint detector says *that* the level of the iteration time has changed. *Who* did it is read from two
measurements of every iteration, each against its own quiet baseline: the charges along the critical path, and every
rank's own time (its iteration without what it spent in calls). A culprit's own time has grown by at least half of
the iteration's growth, clearly more than the median rank's, and the growth lies on the path. Where the growth
wanders over ranks nobody is named.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from pacehound.events import Changepoint, EarlierRun, Finding, GroupOutlier, Instant, IterationSample
from streams.changepoint import Change
from streams.critical_path import Charges, TransferKey
from streams.history import planned_by
from streams.step_watch import StepTime, StepWatch

KeyT = TypeVar("KeyT", bound=Hashable)

HISTORY = 300
"""Iterations kept: enough for a baseline before an onset and for the slow stretch since."""

BASELINE = 100
THINNED = 8
SPELL = 1.15
"""An iteration of an intermittent spell takes at least so many times the median one."""

MIN_EXPLAINED = 0.5
MIN_PERSISTENCE = 0.6
MIN_ITERATIONS = 5


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """What is kept of one iteration."""

    step: int
    time_ns: int
    step_time_s: float
    charges: Charges
    own_ns: dict[int, int]
    n_rounds: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known of the job besides its iterations.

    `communicators` holds name and members of each; `outliers` compares the groups' transfers when it is called;
    `unseen` says what could not be seen so far.
    """

    communicators: dict[str, tuple[str, tuple[int, ...]]]
    outliers: Callable[[], list[GroupOutlier]]
    unseen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who made the iterations longer, as far as it can be said."""

    kind: Literal["slow", "change"]
    verdict: Literal["culprit", "suspected", "unknown"]
    cause: Literal["S1", "S2", "S3"] | None
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    evidence: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(slots=True)
class _Episode:
    """The slow stretch that is going on: what it was last said to be, and what it is measured by."""

    said: Finding
    onset_step: int
    before_s: float
    next_look: int
    found: Attribution


class SlowWatch:
    """Follows the iterations of one job.

    Parameters
    ----------
    job, attempt
        Whose.
    min_change
        Relative change below which an abrupt new level is jitter (Falcon 4.2: 0.10).

    """

    def __init__(self, job: str, attempt: int, min_change: float) -> None:
        self._job = job
        self._attempt = attempt
        self._min_change = min_change
        self._watch = StepWatch(job=job, attempt=attempt, min_change=min_change)
        self._history: deque[IterationRecord] = deque(maxlen=HISTORY)
        self._older: deque[IterationRecord] = deque(maxlen=BASELINE)
        self._seen = 0
        self._earlier: tuple[EarlierRun, ...] = ()
        self._episode: _Episode | None = None
        self.excess_s = 0.0

    @property
    def median_step_time_s(self) -> float:
        """Median of the iterations kept; 0 before the first."""
        return float(np.median([r.step_time_s for r in self._history])) if self._history else 0.0

    @property
    def ongoing(self) -> dict[str, float]:
        """The slow stretch that is going on: what it has cost so far in seconds, by the id of its finding."""
        return {self._episode.said.id: self.excess_s} if self._episode is not None else {}

    def on_history(self, runs: Sequence[EarlierRun]) -> None:
        """Earlier runs of the job: what they did at the same step was planned, unless a rank stands apart."""
        self._earlier = tuple(runs)

    def on_iteration(
        self,
        sample: IterationSample,
        record: IterationRecord,
        scene: Scene,
    ) -> list[Changepoint | GroupOutlier | Finding]:
        """One finished iteration.

        Parameters
        ----------
        sample, record
            The iteration and what was measured in it.
        scene
            What else is known of the job now.

        """
        self._keep(record)
        if self._episode is not None:
            self.excess_s += max(0.0, record.step_time_s - self._episode.before_s)
        said = self._watch.update(StepTime(step=sample.step, time_ns=sample.time_ns, step_time_s=sample.step_time_s))
        events: list[Changepoint | GroupOutlier | Finding] = []
        change = self._watch.last_change
        if change is not None:
            events.append(self._changepoint(change))
            if change.kind == "onset":
                events += scene.outliers()
        for finding in said:
            if finding.kind == "slow":
                events += self._on_slow(finding, record, scene, change)
            elif finding.kind == "intermittent":
                events.append(self._with_spells(finding, scene))
            else:
                events.append(finding)
        if not said and self._episode is not None and record.step >= self._episode.next_look:
            events += self._look_again(record, scene)
        return events

    def _keep(self, record: IterationRecord) -> None:
        """All of the last iterations, and every eighth of those before: a slow drift needs a baseline far back."""
        if len(self._history) == HISTORY:
            self._seen += 1
            if self._seen % THINNED == 0:
                self._older.append(self._history[0])
        self._history.append(record)

    def _on_slow(self, finding: Finding, record: IterationRecord, scene: Scene, change: Change | None) -> list[Finding]:
        episode = self._episode
        if episode is None:
            assert change is not None
            self.excess_s = sum(
                max(0.0, r.step_time_s - change.before_s) for r in self._history if r.step >= change.step
            )
            found = self.attribute(change.step, scene)
            if found.kind == "change":
                return [self._accept(finding, found, scene)]
            runs = planned_by(self._earlier, change.step, math.log(change.after_s / change.before_s))
            if runs and not found.culprits and not found.links:
                self._watch.accept()
                words = f"so did {', '.join(runs)} at the same step: planned"
                return [replace(finding, kind="planned", evidence=(*finding.evidence, words), unseen=())]
            said = self._with(finding, found, scene, version=0)
            self._episode = _Episode(said, change.step, change.before_s, record.step + MIN_ITERATIONS, found)
            return [said]
        episode.said = self._with(finding, episode.found, scene, version=episode.said.version + 1)
        if finding.relief is not None:
            self._episode = None
        return [episode.said]

    def _look_again(self, record: IterationRecord, scene: Scene) -> list[Finding]:
        """More slow iterations are known now: the same question may have a better answer."""
        episode = self._episode
        assert episode is not None
        slow_steps = record.step - episode.onset_step
        episode.next_look = record.step + max(MIN_ITERATIONS, slow_steps // 2)
        if slow_steps > HISTORY - BASELINE:
            return []  # the quiet iterations are being forgotten: the answer would only get worse
        found = self.attribute(episode.onset_step, scene)
        old = episode.found
        is_same = (found.kind, found.verdict, found.cause, found.culprits, found.links) == (
            old.kind,
            old.verdict,
            old.cause,
            old.culprits,
            old.links,
        )
        # What was seen at first stands: later iterations in which the fault fades do not clear a culprit.
        if is_same or (old.culprits and not found.culprits):
            return []
        version = episode.said.version + 1
        if found.kind == "change":
            accepted = replace(self._accept(episode.said, found, scene), version=version)
            self._episode = None
            return [replace(accepted, relief=Instant(step=record.step, time_ns=record.time_ns))]
        episode.found = found
        episode.said = self._with(episode.said, found, scene, version=version)
        return [episode.said]

    def _accept(self, finding: Finding, found: Attribution, scene: Scene) -> Finding:
        """The work has changed: its level is the new baseline, and nobody is called."""
        self._watch.accept()
        return replace(self._with(finding, found, scene, version=0), kind="change", lasting=True)

    def _with(self, finding: Finding, found: Attribution, scene: Scene, *, version: int) -> Finding:
        """The finding with this answer to whose delay it is; what is said of its level stays."""
        world = sorted(self._history[-1].own_ns)
        levels = tuple(sentence for sentence in finding.evidence if sentence not in found.evidence)
        if self._episode is not None:
            levels = tuple(sentence for sentence in levels if sentence not in self._episode.found.evidence)
        is_big = (finding.magnitude or 0.0) >= self._min_change
        return replace(
            finding,
            verdict=found.verdict,
            cause=found.cause,
            culprits=found.culprits,
            candidates=found.candidates,
            victims=tuple(rank for rank in world if rank not in found.culprits) if found.culprits else (),
            links=found.links,
            pages=found.kind == "slow" and is_big and (finding.lasting or bool(found.culprits)),
            evidence=(levels[0], *found.evidence, *levels[1:]),
            unseen=(*found.unseen, *scene.unseen),
            version=version,
        )

    def _with_spells(self, finding: Finding, scene: Scene) -> Finding:
        """Intermittent slowness: the iterations that stand out against all the others."""
        limit_s = SPELL * self.median_step_time_s
        slow = [r for r in self._history if r.step_time_s >= limit_s]
        found = self._attribution(slow, [r for r in self._history if r.step_time_s < limit_s][-BASELINE:], scene)
        if not found.culprits:
            return replace(finding, unseen=(*found.unseen, *scene.unseen))
        world = sorted(self._history[-1].own_ns)
        return replace(
            finding,
            verdict=found.verdict,
            cause=found.cause,
            culprits=found.culprits,
            victims=tuple(rank for rank in world if rank not in found.culprits),
            evidence=(*finding.evidence, *found.evidence),
            unseen=(*found.unseen, *scene.unseen),
        )

    def attribute(self, onset_step: int, scene: Scene) -> Attribution:
        """Compare the iterations since `onset_step` with the quiet ones before it."""
        slow = [r for r in self._history if r.step >= onset_step][-BASELINE:]
        quiet = [r for r in (*self._older, *self._history) if r.step < onset_step][-BASELINE:]
        return self._attribution(_without_spikes(slow), _without_spikes(quiet), scene)

    def _attribution(self, slow: list[IterationRecord], quiet: list[IterationRecord], scene: Scene) -> Attribution:
        if len(slow) < 3 or len(quiet) < MIN_ITERATIONS:
            return Attribution("slow", "unknown", None, unseen=("too few iterations to compare",))
        if not any(r.charges.total_ns for r in slow):
            return Attribution(
                "slow",
                "unknown",
                None,
                unseen=("no call with a start and an end was seen in these iterations: whose delay it is is unknown",),
            )
        growth_ns = _mean(r.charges.total_ns for r in slow) - _mean(r.charges.total_ns for r in quiet)
        if growth_ns <= 0:
            return Attribution(
                "slow", "unknown", None, unseen=("the slow iterations' calls take no longer than before",)
            )
        work = _change_of_work(slow, quiet)
        own = _growth([r.own_ns for r in slow], [r.own_ns for r in quiet])
        path = _growth([r.charges.ranks for r in slow], [r.charges.ranks for r in quiet])
        median_own = float(np.median(list(own.values()))) if own else 0.0
        culprits = tuple(
            rank
            for rank in sorted(own)
            if own[rank] - max(median_own, 0.0) >= MIN_EXPLAINED * growth_ns and path.get(rank, 0.0) >= 0.1 * growth_ns
        )
        explained = sum(path.get(rank, 0.0) for rank in culprits) / growth_ns
        on_path = sum(1 for r in slow if any(r.charges.ranks.get(rank, 0) for rank in culprits))
        if culprits and explained >= MIN_EXPLAINED and on_path >= MIN_PERSISTENCE * len(slow):
            names = ", ".join(str(rank) for rank in culprits)
            plural = "s" if len(culprits) > 1 else ""
            mean_own = _mean(own[rank] for rank in culprits)
            evidence = (
                f"rank{plural} {names}: own time grew by {mean_own / 1e6:.1f} ms per iteration, "
                f"the median rank's by {median_own / 1e6:.1f} ms; the iteration by {growth_ns / 1e6:.1f} ms",
                f"on the critical path of {on_path} of {len(slow)} slow iterations",
            )
            return Attribution("slow", "culprit", "S1", culprits, evidence=evidence)
        if work:
            return Attribution("change", "unknown", None, evidence=(work, "no rank stands apart"))
        return _transfer_attribution(slow, quiet, growth_ns, scene)

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


def _transfer_attribution(
    slow: list[IterationRecord],
    quiet: list[IterationRecord],
    growth_ns: float,
    scene: Scene,
) -> Attribution:
    transfers = _growth([r.charges.transfers for r in slow], [r.charges.transfers for r in quiet])
    worst: TransferKey | None = max(transfers, key=lambda k: (transfers[k], str(k)), default=None)
    if worst is None or transfers[worst] < MIN_EXPLAINED * growth_ns:
        return Attribution(
            "slow", "unknown", None, evidence=("the growth is spread over ranks and transfers: nobody stands apart",)
        )
    seen = sum(1 for r in slow if r.charges.transfers.get(worst, 0))
    share = f"{transfers[worst] / growth_ns:.0%} of the growth, in {seen} of {len(slow)} slow iterations"
    if isinstance(worst, tuple):
        evidence = (f"transfers between rank {worst[0]} and rank {worst[1]} take longer: {share}",)
        return Attribution("slow", "suspected", "S2", candidates=worst, links=(worst,), evidence=evidence)
    name, members = scene.communicators.get(worst, (worst, ()))
    sentences = [f"transfers of communicator {name!r} take longer after its last rank has entered: {share}"]
    for outlier in scene.outliers():
        if outlier.communicator == worst:
            ratio = outlier.transfer_s / outlier.median_s
            sentences.append(f"they take {ratio:.1f} x the median of {outlier.peers} communicators of the same kind")
    unseen = ("which link of the communicator is slow: no send or receive rates were seen",)
    return Attribution("slow", "unknown", "S2", candidates=members, evidence=tuple(sentences), unseen=unseen)


def _change_of_work(slow: list[IterationRecord], quiet: list[IterationRecord]) -> str:
    """A sentence when the calls themselves tell that the work has changed, else nothing."""
    for what, unit in (("n_rounds", "calls"), ("size_bytes", "bytes")):
        before = float(np.median([getattr(r, what) for r in quiet]))
        after = float(np.median([getattr(r, what) for r in slow]))
        if before and abs(after / before - 1.0) > 0.01:
            return f"the work has changed: {after:.0f} {unit} per iteration, {before:.0f} before"
    return ""


def _without_spikes(records: list[IterationRecord]) -> list[IterationRecord]:
    """Leave out the slowest tenth: a single pause must not decide whose level has changed."""
    if len(records) < 10:
        return records
    limit = float(np.quantile([r.step_time_s for r in records], 0.9))
    return [r for r in records if r.step_time_s <= limit]


def _growth(slow: list[dict[KeyT, int]], quiet: list[dict[KeyT, int]]) -> dict[KeyT, float]:
    """By key, how much the mean has grown; what an iteration lacks counts as 0."""
    keys = {key for record in (*slow, *quiet) for key in record}
    return {key: _mean(r.get(key, 0) for r in slow) - _mean(r.get(key, 0) for r in quiet) for key in keys}


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 10 else f"{seconds:.2f} s"
