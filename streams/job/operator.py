"""Stage two: everything about one job, from all its communicators and hosts in one order of time."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from pacehound.model.events import (
    Changepoint,
    Finding,
    GroupOutlier,
    HostEvidence,
    HostSample,
    HostVitals,
    Incident,
    IterationSample,
    JobHistory,
    LearntRounds,
    Markers,
    Progress,
    Topology,
    Watermark,
    WhatIfPrice,
)
from pacehound.model.evidence.leaving import JobShape
from pacehound.model.operations import Operations
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import HOST_STREAM, host_stream
from pacehound.settings import Settings
from streams.job.host_promises import HostPromises
from streams.job.hosts import JobHosts
from streams.job.incidents import IncidentTracker
from streams.job.iterations import JobIterations
from streams.job.measurements import Measurements
from streams.job.repeats import Repeats
from streams.job.shape import ShapeWatch
from streams.job.thresholds import CLOCK_JUMP_TICKS
from streams.job.watches import Watches
from streams.rounds.clocks import ClockOffsets, HostClocks, clocks_apart
from streams.rounds.communicator import StageOneEvent
from streams.rounds.iterations import ends_long_iteration
from streams.rounds.merge import CLOSED_NS, Merge
from streams.rounds.rough_clocks import rough_clocks
from streams.rounds.round_table import RoundTable
from streams.watching.moment import Moment
from streams.watching.watch import Heard, Said, Watch

_Merged = IterationSample | Heard
StageTwoEvent = IterationSample | Changepoint | GroupOutlier | LearntRounds | Finding | WhatIfPrice | Incident

_REMEMBERED_IDS = 256
"""Of events that a host may send twice: more than one has on its way."""


class JobOperator:
    """One attempt of one job.

    Streams (communicators, hosts) arrive in any interleaving; they are merged by event time up to the lowest
    watermark and worked on in steps of `stream.tick_s`, and up to the end of each long iteration
    (`pacehound.model.long_iteration`), so the same streams give the same events. What is looked for is in
    `streams/job/watches.py`.
    """

    def __init__(self, job: str, attempt: int, settings: Settings) -> None:
        self.job = job
        self.attempt = attempt
        self._tick_ns = round(settings.stream.tick_s * 1e9)
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._merge: Merge[_Merged] = Merge()
        self._repeats = Repeats()
        self._operation_ids: deque[str] = deque(maxlen=_REMEMBERED_IDS)
        self._done_ns: int | None = None  # everything up to this boundary has been worked on
        self._ends_ns: list[int] = []  # of long iterations that have not been worked on, a heap
        self._world: str | None = None
        self._world_size = 0
        self._communicators: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._clocks = HostClocks()
        self._hosts = JobHosts(self._lateness_ns)
        self._host_promises = HostPromises()
        self._iterations = JobIterations()
        self._was_hung = False
        self._watches = Watches(job, attempt, settings)
        self._incidents = IncidentTracker(job, attempt, settings.incidents)
        self._measurements = Measurements(settings.slow.min_change)
        self._shape = ShapeWatch()
        self.ended = False

    @property
    def repeated_host_events(self) -> int:
        """How many samples, vitals and evidences came again, and were not used."""
        return self._repeats.count

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts whose silence matters: those of the job that have not said that it has ended there.

        While it has joined no process group all that have been heard of, also those where it has ended: another one may
        yet join, and it is given up when none does.
        """
        begin = host_stream(self.job, "")
        told = {stream for stream in self._merge.streams if stream.startswith(begin)}
        if self._world is not None:
            told = {stream for stream in told if not self._merge.has_ended(stream)}
        known = self._hosts.ranks_of.keys() | {stream.removeprefix(begin) for stream in told}
        return tuple(sorted(known - self._hosts.closed.keys()))

    def open_incidents(self) -> list[str]:
        """Ids of its incidents that are not closed."""
        return self._incidents.open_ids()

    @property
    def layout(self) -> JobShape | None:
        """How its ranks are laid out now; nothing where that is irregular or not known."""
        return self._shape.shape(self._communicators, self._iterations.step_time_s)

    def on_stage_one(self, event: StageOneEvent) -> list[StageTwoEvent]:
        """One event of a communicator."""
        match event:
            case Rounds() | PairRounds():
                self._merge.push_rounds(event)
                return []
            case Watermark():
                if event.stream.startswith(HOST_STREAM):
                    if event.stream not in self._merge.streams:
                        return []  # it has no rank here and nobody waits for it
                    return self._on_host_promise(event)
                self._merge.advance(event.stream, event.time_ns)
                return self._work()
            case Topology():
                self._expect(event)
            case Progress() if event.communicator == self._world:
                for communicator in event.announced:
                    self._merge.expect(communicator)
            case _:
                pass
        due_ns = self._merge.push(event.communicator, event)
        if due_ns is not None and ends_long_iteration(event, self._tick_ns):
            heapq.heappush(self._ends_ns, due_ns)
        return []

    def on_host(self, sample: HostSample) -> list[StageTwoEvent]:
        """The processes of one host."""
        promised_ns = self._host_promises.heard_ns(sample.host, sample.time_ns)
        if self._repeats.is_one(sample) or (self._world is None and not sample.processes):
            return []
        stream = host_stream(self.job, sample.host)
        if not sample.processes and stream not in self._merge.streams:
            return []  # it has no rank here and nobody waits for it (`streams/job/returns.py`)
        self._hosts.is_heard(sample.host)
        self._merge.push(stream, sample)
        self._merge.advance(stream, CLOSED_NS if sample.closed else sample.time_ns)
        return [*self._work(), *self._on_unchanged(sample.host, promised_ns)]

    def on_host_report(self, event: HostVitals | HostEvidence) -> list[StageTwoEvent]:
        """What a host has to say besides its calls and processes; time passes if promises have waited for it."""
        promised_ns = self._host_promises.heard_ns(event.host, event.time_ns)
        if not self._repeats.is_one(event):
            self._merge.push(host_stream(self.job, event.host), event)
        return self._on_unchanged(event.host, promised_ns)

    def _on_host_promise(self, promise: Watermark) -> list[StageTwoEvent]:
        host = promise.stream.removeprefix(host_stream(self.job, ""))
        self._hosts.is_heard(host)
        promised_ns = self._host_promises.promised_ns(host, promise.time_ns, promise.behind_ns)
        return self._on_unchanged(host, promised_ns)

    def _on_unchanged(self, host: str, until_ns: int | None) -> list[StageTwoEvent]:
        """The processes of a host are as its last sample has them, up to a time if that is known."""
        if until_ns is None:
            return []
        self._hosts.is_unchanged(host, until_ns)
        self._watches.shared_name.is_unchanged(host, until_ns)
        self._merge.advance(host_stream(self.job, host), until_ns)
        return self._work()

    def on_operations(self, event: Operations) -> None:
        """Operations of recorded steps of one host; no time passes with them."""
        if event.identity() not in self._operation_ids:
            self._operation_ids.append(event.identity())
            self._merge.push(host_stream(self.job, event.host), event)

    def on_history(self, history: JobHistory) -> None:
        """What earlier runs of the job, and of the fleet, did."""
        self._watches.slow.on_history(history.runs)
        self._watches.since_start.on_history(history.runs)
        self._watches.slow_rounds.on_history(history.usual)

    def on_host_silence(self, stream: str, tick_ns: int) -> list[StageTwoEvent]:
        """A host's samples have stopped: go on without it, and give it up at last."""
        is_given_up = self._hosts.ticks_silently(stream.removeprefix(host_stream(self.job, "")), tick_ns)
        self._merge.advance(stream, CLOSED_NS if is_given_up else tick_ns - self._lateness_ns)
        return self._work()

    def _expect(self, topology: Topology) -> None:
        self._merge.expect(topology.communicator)
        if topology.is_world:
            if self._world is None:
                self._iterations.on_world(topology)
            self._world = topology.communicator
            self._world_size = topology.world_size
            self._merge.expect(host_stream(self.job, topology.host))
            self._hosts.expect(topology)

    def _work(self) -> list[StageTwoEvent]:
        """Work on every boundary up to the lowest watermark."""
        if self._world is None or self.ended:
            # Its command has never joined a process group, and its machines are gone.
            self.ended |= bool(self._hosts.given_up) and self._merge.watermark_ns >= CLOSED_NS
            return []
        watermark_ns = self._merge.watermark_ns
        if self._done_ns is None:
            first_ns = self._merge.first_time_ns if watermark_ns >= 0 else None
            if first_ns is None:
                return []
            self._done_ns = first_ns // self._tick_ns * self._tick_ns
        events: list[StageTwoEvent] = []
        is_closing = watermark_ns >= CLOSED_NS
        until_ns = self._merge.last_time_ns if is_closing else watermark_ns
        while (next_ns := self._boundary_after(self._done_ns, until_ns)) <= until_ns:
            self._done_ns = next_ns
            events += self._step_to(next_ns)
        if is_closing:
            last_ns = max(until_ns, self._done_ns)
            events += self._step_to(last_ns, is_last=True)
            events += self._end(last_ns)
        return events

    def _boundary_after(self, done_ns: int, until_ns: int) -> int:
        """The next whole tick, or the end of a long iteration before it; where a clock has jumped time jumps, too."""
        next_ns = (done_ns // self._tick_ns + 1) * self._tick_ns
        if next_ns + CLOCK_JUMP_TICKS * self._tick_ns <= until_ns:
            first_ns = min(self._merge.first_time_ns or until_ns, until_ns) // self._tick_ns * self._tick_ns
            next_ns = first_ns if first_ns - done_ns > CLOCK_JUMP_TICKS * self._tick_ns else next_ns
        while self._ends_ns and self._ends_ns[0] <= done_ns:
            heapq.heappop(self._ends_ns)
        return min(next_ns, self._ends_ns[0]) if self._ends_ns else next_ns

    def _step_to(self, until_ns: int, *, is_last: bool = False) -> list[StageTwoEvent]:
        arrived = RoundTable(self._merge.take_rounds(until_ns))
        self._clocks.add(arrived)
        for watch in self._watches:
            watch.on_rounds(arrived)
        released = self._merge.take_events(until_ns)
        released += self._iterations.on_rounds(arrived, CLOSED_NS if is_last else until_ns)
        events: list[StageTwoEvent] = []
        samples = [event for event in released if isinstance(event, IterationSample)]
        hearing, following = self._watches.hearing(), self._watches.following()
        for event in released:
            if isinstance(event, IterationSample):
                events += self._on_sample(event, samples, following)
            else:
                events += self._on_event(event, hearing)
        self._shape.on_rounds(arrived)  # their communicators have been heard of by now
        self._iterations.forget_rounds()
        moment = self._moment(until_ns)
        for watch in self._watches:
            events += self._note(watch, watch.on_tick(moment), until_ns)
        self._was_hung = self._was_hung or self._watches.hang.is_hung
        for short in self._incidents.adding_up(moment.at, partial(self._watches.slow.is_crowded, moment)):
            events += [short, *self._incidents.on_finding(short, until_ns, self._incidents.short_excess_s(short))]
        return [*events, *self._incidents.on_tick(until_ns, self._ongoing_s(until_ns))]

    def _on_event(self, event: Heard, hearing: Sequence[Watch]) -> list[StageTwoEvent]:
        match event:
            case Topology():
                self._communicators[event.communicator] = (event.name, event.members)
                self._clocks.on_topology(event)
                self._hosts.on_topology(event)
                self._incidents.ranks = max(self._incidents.ranks, self._world_size)
                if event.is_world:
                    pace_s = self._iterations.step_time_s
                    self._shape.on_world(event, self._communicators, pace_s)
            case Progress():
                self._hosts.on_progress(event)
                if event.marks_iterations:
                    self._iterations.are_marked()
            case HostSample():
                self._hosts.on_sample(event)
                event = self._watches.shared_name.of_the_first(event)
            case Markers():
                self._hosts.on_markers(event)
            case HostEvidence() if event.judged:
                return self._on_judged(event)
            case _:
                pass
        step = self._iterations.step
        events: list[StageTwoEvent] = []
        for watch in hearing:
            if found := watch.hear(event, step):
                events += self._note(watch, found, event.time_ns)
        return events

    def _on_judged(self, event: HostEvidence) -> list[StageTwoEvent]:
        events: list[StageTwoEvent] = []
        cost_s = self._ongoing_s(event.time_ns)
        known = range(self._world_size)
        judged = tuple(one for one in event.judged if one.ranks and all(rank in known for rank in one.ranks[:2]))
        for finding in self._measurements.on_judged(judged, event.time_ns):
            events += [finding, *self._incidents.on_finding(finding, event.time_ns, cost_s.get(finding.id, 0.0))]
        return events

    def _on_sample(
        self, sample: IterationSample, with_it: Sequence[IterationSample], following: Sequence[Watch]
    ) -> list[StageTwoEvent]:
        events: list[StageTwoEvent] = []
        if at := self._iterations.replaces(sample):
            for watch in self._watches:
                events += self._note(watch, watch.on_new_iterations(at), at.time_ns)
        if not self._iterations.counts(sample):
            return events
        events.append(sample)
        iteration = self._iterations.add(sample, was_hung=self._was_hung, with_it=with_it)
        self._shape.on_step(sample.time_ns)
        self._was_hung = self._watches.hang.is_hung
        if iteration is None:
            return events
        moment = self._moment(sample.time_ns)
        for watch in following:
            if said := watch.on_iteration(iteration, moment):
                events += self._note(watch, said, sample.time_ns)
        return events

    def _note(self, watch: Watch, said: Iterable[Said], now_ns: int) -> list[StageTwoEvent]:
        """What a watch says, each finding followed by what becomes of its incident."""
        events: list[StageTwoEvent] = []
        for one in said:
            if isinstance(one, WhatIfPrice):
                events += [one, *self._incidents.on_price(one)]
            elif isinstance(one, Finding):
                finding = self._watches.hang.with_notes(one, now_ns) if one.kind in ("slow", "exit") else one
                finding = self._measurements.weighed(self._incidents.with_spells(finding))
                finding = self._shape.noted(finding, self._communicators, self._iterations.step_time_s)
                events += [finding, *self._incidents.on_finding(finding, now_ns, watch.excess_s(finding, now_ns))]
            else:
                events.append(one)
        return events

    def _ongoing_s(self, now_ns: int) -> dict[str, float]:
        return {id_: cost_s for watch in self._watches for id_, cost_s in watch.ongoing(now_ns).items()}

    def _end(self, now_ns: int) -> list[StageTwoEvent]:
        self.ended = True
        moment = self._moment(now_ns)
        left = [said for watch in self._watches for said in self._note(watch, watch.on_end(moment), now_ns)]
        left += self._incidents.short_in_all(moment.at)
        left += self._iterations.not_judged(self.job, self.attempt, moment.at)
        return [*left, *self._incidents.on_end(now_ns, self._hosts.why_closed, self._ongoing_s(now_ns))]

    def _moment(self, now_ns: int) -> Moment:
        silent = self._hosts.silent_since_ns(now_ns)
        return Moment(
            now_ns=now_ns,
            step=self._iterations.step,
            step_time_s=self._iterations.step_time_s,
            recurring_s=self._iterations.recurring_s,
            n_iterations=self._iterations.count,
            world_size=self._world_size,
            is_paused=self._hosts.is_paused,
            finished_ns=self._iterations.finished_ns,
            is_prompt=(self._done_ns or 0) % self._tick_ns != 0,
            is_host_late=self._hosts.is_one_late(now_ns, silent),
            unseen=partial(self._unseen, silent),
            communicators=self._communicators,
            clocks=self._clocks.offsets(),
            rough_clocks=self._rough_clocks,
            host_of=self._hosts.host_of,
            ranks_of=self._hosts.ranks_of,
            silent_since_ns=silent,
            given_up=self._hosts.given_up,
            last_iterations=self._iterations.last,
        )

    def _rough_clocks(self) -> ClockOffsets:
        """How far clocks are apart, roughly where nothing tells it exactly: of thousands of ranks that takes time."""
        known, last = self._clocks.offsets(), None
        if not known.are_known and len(self._hosts.ranks_of) > 1:
            last = self._iterations.last()
        return known if last is None else rough_clocks(last, self._hosts.host_of)

    def _unseen(self, silent: dict[str, int]) -> tuple[str, ...]:
        of_watches = (words for watch in self._watches for words in watch.unseen())
        of_clocks = clocks_apart(self._clocks.offsets(), self._hosts.host_of)
        return (*self._hosts.unseen(self._communicators, silent), *self._iterations.unseen(), *of_clocks, *of_watches)
