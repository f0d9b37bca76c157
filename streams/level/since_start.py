"""A whole run that is slower than the runs of its job before it, from its first step on.

Nothing within such a run tells: there is no faster level before it. Only earlier attempts of the job on as many ranks
and hosts do, as the store remembers them (`JobHistory`). One may have been fast by chance, so that there must be two;
and where attempts differ anyway it must lie beyond that. What a command starts after other ranks of its own is compared
with nothing: folds, phases and evaluations are not the same work.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence

from pacehound.model.events import EarlierRun, Finding, HostSample, Instant
from pacehound.model.events.store import PACE_STEPS, WARM_UP_STEPS
from pacehound.model.evidence.levels import Relieved, SlowerThanEarlier
from pacehound.model.evidence.life import Over
from pacehound.model.identity import event_id
from streams.level.thresholds import AGAIN_AS_FAST, COMPARED_RUNS, FEWEST_RUNS, SPREADS
from streams.watching.moment import Iteration, Moment
from streams.watching.waking import slowness_wakes
from streams.watching.watch import Heard, Said, Watch


class SinceStart(Watch):
    """Compares the pace of one attempt with that of the last ones.

    A run is slower when its pace is `min_change` beyond the slowest of them. Where its iterations have become slower
    within the run, that is told by itself and not here.
    """

    def __init__(self, job: str, attempt: int, min_change: float, by_iterations: Sequence[Watch]) -> None:
        self._job = job
        self._attempt = attempt
        self._min_change = min_change
        self._by_iterations = tuple(by_iterations)
        self._runs: tuple[EarlierRun, ...] = ()
        self._is_first_launch = True
        self._first: Instant | None = None
        self._times_s: deque[float] = deque(maxlen=PACE_STEPS)
        self._n_seen = 0
        self._finding: Finding | None = None
        self._usual_s = 0.0  # of the runs that it is compared with
        self._excess_s = 0.0

    def on_history(self, runs: Sequence[EarlierRun]) -> None:
        """Earlier attempts of the job, the latest first."""
        self._runs = tuple(runs)

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """Whether it is the first launch of its run."""
        self._is_first_launch &= not (isinstance(event, HostSample) and event.is_later_launch)
        return []

    def on_new_iterations(self, at: Instant) -> list[Finding]:
        """Of another kind of iteration earlier runs may have told, too."""
        self._first, self._n_seen = None, 0
        self._times_s.clear()
        told, self._finding = self._finding, None
        return [] if told is None else [told.next_version(Over(why="iterations changed"), relief=at)]

    def on_iteration(self, iteration: Iteration, moment: Moment) -> list[Said]:
        """One finished iteration."""
        sample = iteration.sample
        if not 0 < sample.step_time_s < float("inf"):
            return []
        if self._first is None:
            self._first = Instant(step=iteration.previous.step, time_ns=iteration.previous.time_ns)
        self._n_seen += 1
        if self._n_seen <= WARM_UP_STEPS:
            return []
        self._times_s.append(sample.step_time_s)
        if self._finding is not None:
            self._excess_s += max(sample.step_time_s - self._usual_s, 0.0)
        if len(self._times_s) < PACE_STEPS or (self._n_seen - WARM_UP_STEPS) % PACE_STEPS:
            return []
        at = Instant(step=sample.step, time_ns=sample.time_ns)
        return self._compared(at, moment) if self._finding is None else self._over(at)

    def _compared(self, at: Instant, moment: Moment) -> list[Said]:
        shape = (moment.world_size, len(moment.ranks_of))
        alike = [run for run in self._runs if run.step_time_s > 0 and (run.world_size, run.hosts) == shape]
        runs = alike[:COMPARED_RUNS] if self._is_first_launch else []
        # What has become slower since the start is no slowness since the start.
        if self._first is None or len(runs) < FEWEST_RUNS or self._n_seen > WARM_UP_STEPS + PACE_STEPS:
            return []
        paces_s = [run.step_time_s for run in runs]
        pace_s, slowest_s = statistics.median(self._times_s), max(paces_s)
        beyond_s = max(self._min_change * slowest_s, SPREADS * (slowest_s - min(paces_s)))
        if pace_s - slowest_s < beyond_s or any(watch.ongoing(at.time_ns) for watch in self._by_iterations):
            return []
        self._usual_s = statistics.median(paces_s)
        self._excess_s = (pace_s - self._usual_s) * self._n_seen
        magnitude = pace_s / self._usual_s - 1
        earlier = tuple((run.name, run.step_time_s) for run in runs)
        self._finding = Finding(
            id=event_id("slow", self._job, self._attempt, "since the start"),
            job=self._job,
            attempt=self._attempt,
            kind="slow",
            verdict="unknown",
            cause=None,
            onset=self._first,
            detected=at,
            magnitude=magnitude,
            lasting=True,
            pages=slowness_wakes(magnitude, is_lasting=True, is_named=False, min_change=self._min_change),
            evidence=(SlowerThanEarlier(pace_s=pace_s, magnitude=magnitude, earlier=earlier),),
            unseen=("what is different: its work, its hosts, or the machine; no part of this run is faster",),
        )
        return [self._finding]

    def _over(self, at: Instant) -> list[Said]:
        assert self._finding is not None
        pace_s = statistics.median(self._times_s)
        slow_s = self._usual_s * (1 + (self._finding.magnitude or 0.0))
        if pace_s > self._usual_s + AGAIN_AS_FAST * (slow_s - self._usual_s):
            return []
        told, self._finding = self._finding, None
        return [told.next_version(Relieved(after_s=pace_s, measure="as earlier attempts"), relief=at)]

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """What it has cost since the start, against the earlier runs' usual pace."""
        return {} if self._finding is None else {self._finding.id: self._excess_s}

    def excess_s(self, finding: Finding, now_ns: int) -> float:
        """What it has cost, also when it has just ended."""
        return self._excess_s
