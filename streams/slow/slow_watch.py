"""Slow iterations of one job: when they began, who makes them slow, when they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from pacehound.model.events import EarlierRun, Finding, Instant
from pacehound.model.evidence.life import Over
from streams.rounds.round_columns import TransferKey
from streams.rounds.round_table import RoundTable
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord, of_ranks
from streams.slow.attribution.verdict import Attribution
from streams.slow.cycles import SlowCycles, is_of_cycles
from streams.slow.evidence import SlowEvidence
from streams.slow.measured_iterations import MeasuredIterations
from streams.slow.slow_rounds import SlowRounds
from streams.slow.slow_series import SlowSeries
from streams.slow.thresholds import CROWD_LOOKED_AT_NS, MIN_EXPLAINED
from streams.watching.moment import Iteration, Moment
from streams.watching.watch import Heard, Said, Watch


class SeesReplays(Protocol):
    """Who knows which ranks replay calls unseen."""

    def replaying_ranks(self) -> frozenset[int]:
        """Ranks that share a communicator whose calls went into a CUDA graph."""


class SlowWatch(Watch):
    """Follows the iterations of one job, with all that is known besides (`SlowSeries`)."""

    def __init__(
        self, job: str, attempt: int, min_change: float, slow_rounds: SlowRounds, replays: SeesReplays
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._min_change = min_change
        self._slow_rounds = slow_rounds
        self._replays = replays
        self._evidence = SlowEvidence(job, attempt)
        self._earlier: tuple[EarlierRun, ...] = ()
        self._begin()

    def _begin(self) -> None:
        """Nothing is known of the iterations."""
        self._measured = MeasuredIterations()
        self._series = SlowSeries(self._job, self._attempt, self._min_change, self._earlier)
        self._cycles = SlowCycles(self._job, self._attempt, self._min_change)

    @property
    def records(self) -> Sequence[IterationRecord]:
        """The last iterations, oldest first."""
        return self._series.records

    def names(self, finding: Attribution) -> bool:
        """Whether all whom this names, if anybody, are named for the slow stretch that is going on."""
        is_named = bool(finding.culprits or finding.links)
        is_known = set(finding.culprits) <= set(self._series.culprits) and set(finding.links) <= set(self._series.links)
        return is_named and is_known

    @property
    def finds_nobody(self) -> bool:
        """Iterations are slow, and the delay seems to be spread over all."""
        return self._series.finds_nobody

    def marked(self, records: Sequence[IterationRecord]) -> list[IterationRecord]:
        """Some of them, without ranks that end no steps: what these do is no measure of the others."""
        return of_ranks(records, self._measured.marked)

    @property
    def keys(self) -> Mapping[TransferKey, int]:
        """The numbers of communicators and pairs in their transfers."""
        return self._measured.numbers

    def observed(self, moment: Moment) -> Observations:
        """What else is known."""
        return self._evidence.observed(moment, self._slow_rounds, self._replays.replaying_ranks())

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """The slow stretch that is going on: what it has cost so far."""
        told = self._cycles.told
        return self._series.ongoing() | ({} if told is None else {told.id: self._cycles.excess_s})

    def excess_s(self, finding: Finding, now_ns: int) -> float:
        """What the last slow stretch has cost."""
        if finding.kind != "slow":
            return 0.0
        return self._cycles.excess_s if is_of_cycles(finding) else self._series.excess_s

    def on_rounds(self, arrived: RoundTable) -> None:
        """Closed rounds of all communicators."""
        self._evidence.on_rounds(arrived)

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """What may tell whose delay it is."""
        self._evidence.hear(event)
        return []

    def on_history(self, runs: Sequence[EarlierRun]) -> None:
        """Earlier runs of the job: what they did at the same step was planned, unless a rank stands apart."""
        self._earlier = tuple(runs)
        self._series.on_history(self._earlier)

    def on_new_iterations(self, at: Instant) -> list[Finding]:
        """The slow stretch that goes on cannot be followed further, and the level is learnt anew."""
        followed = [*self._series.stop(), *self._cycles.stop()]
        self._begin()
        return [finding.next_version(Over(why="iterations changed"), relief=at) for finding in followed]

    def on_tick(self, moment: Moment) -> list[Said]:
        """The next step of time has other rounds."""
        self._measured.forget_rounds()
        return []

    def on_iteration(self, iteration: Iteration, moment: Moment) -> list[Said]:
        """One finished iteration."""
        record, numbers = self._measured.record_of(iteration, moment.clocks), self._measured.numbers
        observe = partial(self.observed, moment)
        cycles_tell = self._cycles.told is not None
        said = self._series.follow(record, numbers, observe, cycles_tell=cycles_tell)
        rhythm = self._series.rhythm
        if rhythm or self._cycles.is_followed:
            is_known = self._series.names_somebody
            said += self._cycles.follow(self.records, rhythm, numbers, observe, is_known=is_known)
        return said

    def is_crowded(self, moment: Moment, since_ns: int, share: float) -> bool:
        """Whether the machines of the job may be what took such a share of the time since then, as far as is known."""
        world = self.records[-1].ranks.tolist() if self.records else ()
        observed = self.observed(moment)
        since_ns = max(since_ns, moment.now_ns - CROWD_LOOKED_AT_NS)
        return observed.crowd(world, since_ns, MIN_EXPLAINED * share, is_apart=False) != ()
