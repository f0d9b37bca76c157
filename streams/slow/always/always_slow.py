"""Who is slow from the first steps on: no quiet time came before, so that ranks and links are held against their peers.

Ranks that play the same part (`peers`) do the same work. One whose own time stays above theirs (`standing_apart`), and
on the critical path lengthens the iterations by `slow.min_change`, is slow; so is a communicator or pair whose
transfers take longer than those of its kind. What becomes slow while the level is learnt is looked for without the
first iterations, and against these (`grown`). What becomes slow later has a quiet time before it, and is for
`SlowWatch`, whose measurements are used here; where iterations are so uneven that it is no new level, whoever stands
apart in the last of them is slow since a while ago (`lately_slow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pacehound.model.events import SURENESS, Finding, Instant
from pacehound.model.evidence.life import Over
from pacehound.model.identity import event_id
from streams.rounds.round_columns import TransferKey
from streams.slow.always.found import AlwaysSlow, level_begins, typical_step_ns
from streams.slow.always.grown import grown
from streams.slow.always.links import slow_links, transfers_ns
from streams.slow.always.peers import Parts, parts_of
from streams.slow.always.ranks import apart_since, slow_ranks
from streams.slow.attribution.observations import Observations, members_of
from streams.slow.attribution.records import IterationRecord, columns_of
from streams.slow.slow_watch import SlowWatch
from streams.slow.thresholds import LATELY, LEFT_OUT, LOOKS, PERIODIC_SHARE, PERSISTS, RELIEF_ITERATIONS, RELOOK
from streams.watching.moment import Iteration, Moment
from streams.watching.waking import slowness_wakes
from streams.watching.watch import Said, Watch


@dataclass(frozen=True, slots=True)
class _SinceStart:
    """What goes on since the first steps, of which so many are left out."""

    finding: Finding
    slow: AlwaysSlow
    skipped: int = 0


class AlwaysSlowWatch(Watch):
    """Looks at the first iterations of one job; what it has found it follows until it ends.

    `min_change` is the share of an iteration that is worth telling, `min_duration_s` how long it has to have gone on.
    """

    def __init__(self, job: str, attempt: int, min_change: float, min_duration_s: float, slow: SlowWatch) -> None:
        self._job = job
        self._attempt = attempt
        self._min_change = min_change
        self._min_duration_s = min_duration_s
        self._slow = slow
        self._n_iterations = 0
        self._next_look = LOOKS[0]
        self._told_at = 0  # the last iteration of which somebody was named, or it was said why nobody is
        self._began: Instant | None = None
        self._episode: _SinceStart | None = None
        self._excess_s = 0.0

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """What it has cost since the first step."""
        return {self._episode.finding.id: self._excess_s} if self._episode is not None else {}

    def excess_s(self, finding: Finding, now_ns: int) -> float:
        """The same, also when it has just ended."""
        return self._excess_s

    def on_new_iterations(self, at: Instant) -> list[Finding]:
        """The first of the new ones is the first step that is seen."""
        episode, self._episode = self._episode, None
        self._n_iterations, self._next_look, self._told_at, self._began = 0, LOOKS[0], 0, None
        if episode is None:
            return []
        return [episode.finding.next_version(Over(why="iterations changed"), relief=at)]

    def on_iteration(self, iteration: Iteration, moment: Moment) -> list[Said]:
        """One finished iteration."""
        if self._began is None:
            begun_ns = iteration.sample.time_ns - round(iteration.sample.step_time_s * 1e9)
            self._began = Instant(step=iteration.previous.step, time_ns=begun_ns)
        self._n_iterations += 1
        if self._episode is not None:
            self._excess_s += self._episode.slow.cost_ns / 1e9
        if self._episode is not None or (self._slow.ongoing(moment.now_ns) and not self._slow.finds_nobody):
            self._told_at = self._n_iterations
        return self._look(moment)

    def on_tick(self, moment: Moment) -> list[Said]:
        """What was put off at the end of an iteration."""
        return self._look(moment)

    def _look(self, moment: Moment) -> list[Said]:
        """What follows from the iterations so far, where it is time to look: of thousands of ranks that takes long."""
        is_first = self._n_iterations <= LOOKS[-1]
        if self._n_iterations < self._next_look or moment.is_prompt:
            return []
        assert self._began is not None, "an iteration has ended"
        if self._episode is None:
            self._next_look = next((at for at in LOOKS if at > self._n_iterations), self._n_iterations + LATELY)
        else:
            self._next_look = self._n_iterations + RELOOK
        records = self._slow.marked(self._slow.records[-self._n_iterations :])
        if self._episode is not None:
            relieved = self._relieved(self._episode, records[-RELIEF_ITERATIONS:], moment)
            return relieved or (self._look_again(self._episode, records, moment) if is_first else [])
        lasted_s = (records[-1].time_ns - self._began.time_ns) / 1e9
        if lasted_s < self._min_duration_s:
            return []
        observed, is_told = self._slow.observed(moment), bool(self._slow.ongoing(moment.now_ns))
        if is_first:
            begins = self._level_begins(records)
            for skipped in (0,) if is_told else (0, begins or LEFT_OUT):  # what has a level before it is told by that
                slow = self._found(records, skipped, begins, observed)
                if slow is not None and not self._slow.names(slow.found):  # else it is told since when
                    return self._begin(slow, records, skipped, self._began)
        if self._n_iterations < max(self._told_at, LEFT_OUT) + LATELY:
            return []
        slow = self._lately(records, observed)
        return [] if slow is None else self._begin(slow, records, 0, slow.since or self._began)

    def _lately(self, records: Sequence[IterationRecord], observed: Observations) -> AlwaysSlow | None:
        """Who is slow since a while ago, for long enough; where all that is kept is no longer nobody is asked for."""
        began_ns = records[-1].time_ns - self._min_duration_s * 1e9
        if records[0].time_ns > began_ns:
            return None
        slow = lately_slow(records, self._slow.keys, observed, self._min_change)
        return slow if slow is not None and slow.since is not None and slow.since.time_ns <= began_ns else None

    def _begin(
        self, slow: AlwaysSlow, records: Sequence[IterationRecord], skipped: int, known_by: Instant
    ) -> list[Said]:
        finding, began = self._finding(slow, records, known_by), slow.since or known_by
        self._episode = _SinceStart(finding, slow, skipped)
        self._excess_s = slow.cost_ns / 1e9 * sum(record.time_ns >= began.time_ns for record in records)
        return [finding]

    def _level_begins(self, records: Sequence[IterationRecord]) -> int:
        return level_begins([record.step_time_s for record in records], LEFT_OUT, self._min_change)

    def _found(
        self, records: Sequence[IterationRecord], skipped: int, begins: int, observed: Observations
    ) -> AlwaysSlow | None:
        """Who is slow in all but the first `skipped` of them, whose level begins at the one with number `begins`."""
        if len(records) < max(self._n_iterations, skipped + LOOKS[0]):
            return None
        keys, min_change = self._slow.keys, self._min_change
        slow = always_slow(records[skipped:], keys, observed, min_change)
        if not skipped or not begins:
            return slow
        if slow is None:
            slow = grown(records, begins, keys, _parts(records, keys, observed), observed, min_change)
        since = Instant(step=records[begins].step, time_ns=records[begins].time_ns)
        return None if slow is None else slow.begun(since)

    def _look_again(self, episode: _SinceStart, records: Sequence[IterationRecord], moment: Moment) -> list[Said]:
        """A reading of a network or a machine that has come since may tell more than the first ones."""
        if episode.finding.verdict == "culprit":
            return []
        begins = self._level_begins(records)
        slow, said = self._found(records, episode.skipped, begins, self._slow.observed(moment)), episode.slow.found
        if slow is None or SURENESS[slow.found.verdict] <= SURENESS[said.verdict]:
            return []
        if said.cause is not None and slow.found.cause != said.cause:
            return []
        if not (set(said.culprits) <= set(slow.found.culprits) and set(said.links) <= set(slow.found.links)):
            return []
        version = episode.finding.version + 1
        assert self._began is not None
        finding = replace(
            self._finding(slow, records, self._began),
            id=episode.finding.id,
            detected=episode.finding.detected,
            version=version,
        )
        self._episode = _SinceStart(finding, slow, episode.skipped)
        return [finding]

    def _finding(self, slow: AlwaysSlow, records: Sequence[IterationRecord], known_by: Instant) -> Finding:
        assert self._began is not None
        last, found = records[-1], slow.found
        magnitude = slow.cost_ns / (typical_step_ns(records) - slow.cost_ns)
        is_named = bool(found.culprits or found.links)
        return Finding(
            id=event_id("finding", self._job, self._attempt, "always slow", known_by.time_ns),
            job=self._job,
            attempt=self._attempt,
            kind="slow",
            verdict=found.verdict,
            cause=found.cause,
            culprits=found.culprits,
            candidates=found.candidates,
            victims=tuple(r for r in last.ranks.tolist() if r not in found.culprits) if found.culprits else (),
            links=found.links,
            onset=slow.since or self._began,
            detected=Instant(step=last.step, time_ns=last.time_ns),
            magnitude=magnitude,
            lasting=True,
            pages=slowness_wakes(magnitude, is_lasting=True, is_named=is_named, min_change=self._min_change),
            evidence=found.evidence,
            unseen=found.unseen,
        )

    def _relieved(self, episode: _SinceStart, records: Sequence[IterationRecord], moment: Moment) -> list[Said]:
        """Its end, when less than half of it is left."""
        slow = episode.slow
        if slow.keys:
            numbers = [self._slow.keys[key] for key in slow.keys if key in self._slow.keys]
            left_ns = transfers_ns(records, len(self._slow.keys))[:, numbers].sum(axis=1) - slow.usual_ns
        elif not slow.found.culprits:
            left_ns = 1e9 * np.array([record.step_time_s for record in records]) - slow.before_ns
        else:
            ranks = records[-1].ranks
            parts = _parts(records, self._slow.keys, self._slow.observed(moment))
            own = columns_of(records, "own_ns", ranks)
            left_ns = np.zeros(len(records))
            for rank in slow.found.culprits:
                (at,) = np.flatnonzero(ranks == rank) if rank in ranks else (None,)
                if at is None:
                    continue
                peers = [p for p in parts.of_part(int(parts.part[at])) if int(ranks[p]) not in slow.found.culprits]
                before_ns = slow.own_before_ns.get(rank, own[:, at])
                usual_ns = np.median(own[:, peers], axis=1) if peers else before_ns
                left_ns = np.maximum(left_ns, np.nan_to_num(own[:, at] - usual_ns))
        is_left = left_ns >= PERSISTS * slow.level_ns
        if len(records) < RELIEF_ITERATIONS or is_left.mean() > 1.0 - PERIODIC_SHARE:
            return []
        last = records[int(np.flatnonzero(is_left)[-1])] if is_left.any() else records[0]
        relief = Instant(step=last.step, time_ns=last.time_ns)
        self._episode = None
        return [
            episode.finding.next_version(
                Over(why="as fast as before" if slow.before_ns else "as fast as peers"), relief=relief
            )
        ]


def always_slow(
    records: Sequence[IterationRecord], keys: Mapping[TransferKey, int], observed: Observations, min_change: float
) -> AlwaysSlow | None:
    """Who lengthens the iterations by `min_change` since the first of them, ranks before links; nothing where nobody.

    `keys` numbers the communicators and pairs of the records' transfers.
    """
    if not all(record.sees_transfers for record in records) or not len(records[-1].ranks):
        return None
    parts = _parts(records, keys, observed)
    return slow_ranks(records, parts, observed, min_change) or slow_links(records, keys, parts, observed, min_change)


def lately_slow(
    records: Sequence[IterationRecord], keys: Mapping[TransferKey, int], observed: Observations, min_change: float
) -> AlwaysSlow | None:
    """Which ranks lengthen the last `LATELY` of the iterations by `min_change`, and since when among all of them."""
    recent = records[-LATELY:]
    if not all(record.sees_transfers for record in records) or not len(records[-1].ranks):
        return None
    parts = _parts(records, keys, observed)
    slow = slow_ranks(recent, parts, observed, min_change)
    if slow is None:
        return None
    first = records[apart_since(records, parts, slow.found.culprits)]
    return slow.begun(Instant(step=first.step, time_ns=first.time_ns))


def _parts(records: Sequence[IterationRecord], keys: Mapping[TransferKey, int], observed: Observations) -> Parts:
    return parts_of(records[-1].ranks.tolist(), {key: members_of(key, observed) for key in keys})
