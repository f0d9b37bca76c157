"""Stage two: everything about one job, from all its communicators and hosts in one order of time."""

from __future__ import annotations

from collections import deque

from pacehound.model.events import (
    CHECKPOINT_BEGIN,
    CHECKPOINT_END,
    EVALUATION_BEGIN,
    Changepoint,
    EarlierRun,
    Finding,
    GroupOutlier,
    HostEvidence,
    HostSample,
    HostVitals,
    Incident,
    Instant,
    IterationSample,
    JobHistory,
    Markers,
    Progress,
    SignatureMismatch,
    Topology,
    Watermark,
    WhatIfPrice,
)
from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from pacehound.model.routing import host_stream
from pacehound.settings import Settings
from streams.hang.divergence import LastIterations
from streams.hang.exits import ExitWatch
from streams.hang.hang_watch import MIN_ITERATIONS, HangWatch
from streams.hang.shared_name import SharedName
from streams.hang.silent_hosts import SilenceWatch
from streams.hang.unseen_libraries import UnseenCalls
from streams.job.incidents import IncidentTracker
from streams.job.repeats import Repeats
from streams.rounds.clocks import HostClocks
from streams.rounds.communicator import StageOneEvent
from streams.rounds.giving_up import GIVEN_UP, Patience
from streams.rounds.merge import CLOSED_NS, Merge
from streams.rounds.recurring import RecurringIterations
from streams.slow.attribution.observations import Observations
from streams.slow.connections import ConnectionTracker
from streams.slow.critical_path import RoundIndex
from streams.slow.gpu_state import GpuStates
from streams.slow.processors import ProcessorTracker
from streams.slow.rates import RateTracker
from streams.slow.slow_rounds import SlowRounds
from streams.slow.slow_watch import SlowWatch
from streams.slow.transfer_times import TransferTracker
from streams.whatif.price_watch import PriceWatch

_Merged = (
    IterationSample
    | Progress
    | Topology
    | Markers
    | SignatureMismatch
    | HostSample
    | HostVitals
    | HostEvidence
    | Operations
)
StageTwoEvent = IterationSample | Changepoint | GroupOutlier | Finding | WhatIfPrice | Incident

_CLOCK_JUMP_TICKS = 3_600
"""Every host speaks once a second; where nobody has for so many ticks a clock has jumped, and time jumps with it."""

_PATIENCE_NS = 30_000_000_000
"""Recurring calls count as iterations when their period has held for so long and no optimizer step been seen."""

_BEFORE_FIRST_NS = 60_000_000_000

_REMEMBERED_IDS = 256
"""Of events that a host may send twice: more than one has on its way."""

_LATE_NS = 2_500_000_000
"""A host speaks once a second; what one that is so late has said last need not hold any more."""

_MAX_PLANNED_SHARE = 0.2
"""Where more iterations than this hold an evaluation or a checkpoint, it is part of the iteration."""


class JobOperator:
    """One attempt of one job.

    Streams (communicators, hosts) arrive in any interleaving; they are merged by event time up to the lowest
    watermark and worked on in steps of `stream.tick_s`, so the same streams give the same events.
    """

    def __init__(self, job: str, attempt: int, settings: Settings) -> None:
        self.job = job
        self.attempt = attempt
        self._tick_ns = round(settings.stream.tick_s * 1e9)
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._merge: Merge[_Merged] = Merge()
        self._world: str | None = None
        self._world_size = 0
        self._done_ns: int | None = None  # everything up to this boundary has been worked on
        self._recent: list[Rounds] = []  # of the iteration that is going on
        self._rounds_before: list[Rounds] = []  # and those from which these were left when it began
        self._communicators: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._last_report_ns: dict[str, int] = {}
        self._repeats = Repeats()
        self._hosts: set[str] = set()
        self._host_ranks: dict[str, tuple[int, ...]] = {}
        self._dropped: dict[tuple[str, str], int] = {}
        self._skipped: dict[str, int] = {}  # by communicator, rounds that nobody has told of
        self._previous: IterationSample | None = None
        self._before_previous: IterationSample | None = None
        self._step: int | None = None
        self._recurring: RecurringIterations | None = None  # while no optimizer step is seen
        self._recurring_locks = 0
        self._recurring_since_ns = 0
        self._transfers = TransferTracker()
        self._clocks = HostClocks()
        self._rates = RateTracker()
        self._slow_rounds = SlowRounds(job, attempt)
        self._connections = ConnectionTracker()
        self._gpus = GpuStates()
        self._processors = ProcessorTracker()
        self._host_of: dict[int, str] = {}
        self._iteration_count = 0
        self._planned_count = 0
        self._was_hung = False
        self._paused: set[int] = set()  # ranks in a checkpoint or an evaluation now
        self._closed_hosts: dict[str, str] = {}
        self._patience: dict[str, Patience] = {}  # by stream of a host that is silent
        self._min_change = settings.slow.min_change
        self._slow = SlowWatch(job, attempt, self._min_change)
        self._earlier: tuple[EarlierRun, ...] = ()
        self._ended: list[Finding] = []  # of iterations that are none any more
        self._hang = HangWatch(job, attempt, settings.hang)
        self._silence = SilenceWatch(job, attempt)
        self._shared_name = SharedName(job, attempt)
        self._unseen_calls = UnseenCalls(job, attempt)
        self._exits = ExitWatch(job, attempt)
        self._operation_ids: deque[str] = deque(maxlen=_REMEMBERED_IDS)
        self._prices = PriceWatch(job, attempt, settings.ops.window_steps)
        self._incidents = IncidentTracker(job, attempt)
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
        known = self._hosts | {stream.removeprefix(begin) for stream in told}
        return tuple(sorted(known - set(self._closed_hosts)))

    def on_stage_one(self, event: StageOneEvent) -> list[StageTwoEvent]:
        """One event of a communicator."""
        match event:
            case Rounds():
                self._merge.push_rounds(event)
                return []
            case Watermark():
                self._merge.advance(event.stream, event.time_ns)
                return self._work()
            case Topology():
                self._expect(event)
            case Progress() if event.communicator == self._world:
                for communicator in event.announced:
                    self._merge.expect(communicator)
            case _:
                pass
        self._merge.push(event.communicator, event)
        return []

    def on_host(self, sample: HostSample) -> list[StageTwoEvent]:
        """The processes of one host."""
        if self._repeats.is_one(sample) or (self._world is None and not sample.processes):
            return []
        stream = host_stream(self.job, sample.host)
        self._patience.pop(stream, None)
        self._merge.push(stream, sample)
        self._merge.advance(stream, CLOSED_NS if sample.closed else sample.time_ns)
        return self._work()

    def on_host_report(self, event: HostVitals | HostEvidence) -> None:
        """What a host has to say besides its calls and processes; no time passes with it."""
        if not self._repeats.is_one(event):
            self._merge.push(host_stream(self.job, event.host), event)

    def on_operations(self, event: Operations) -> None:
        """Operations of recorded steps of one host; no time passes with them."""
        if event.identity() not in self._operation_ids:
            self._operation_ids.append(event.identity())
            self._merge.push(host_stream(self.job, event.host), event)

    def on_history(self, history: JobHistory) -> None:
        """What earlier runs of the job did."""
        self._earlier = history.runs
        self._slow.on_history(self._earlier)

    def on_host_silence(self, stream: str, tick_ns: int) -> list[StageTwoEvent]:
        """A host's samples have stopped: go on without it, and give it up at last."""
        is_given_up = self._patience.setdefault(stream, Patience()).ends(tick_ns)
        if is_given_up:
            self._closed_hosts.setdefault(stream.removeprefix(host_stream(self.job, "")), GIVEN_UP)
        self._merge.advance(stream, CLOSED_NS if is_given_up else tick_ns - self._lateness_ns)
        return self._work()

    def _expect(self, topology: Topology) -> None:
        self._merge.expect(topology.communicator)
        if topology.is_world:
            if self._world is None:
                self._recurring = RecurringIterations(self.job, self.attempt, min(topology.members))
            self._world = topology.communicator
            self._world_size = topology.world_size
            self._merge.expect(host_stream(self.job, topology.host))
            self._hosts.add(topology.host)
            self._host_ranks[topology.host] = topology.host_ranks

    def _work(self) -> list[StageTwoEvent]:
        """Work on every whole tick up to the lowest watermark."""
        if self._world is None or self.ended:
            # Its command has never joined a process group, and its machines are gone.
            self.ended |= GIVEN_UP in self._closed_hosts.values() and self._merge.watermark_ns >= CLOSED_NS
            return []
        watermark_ns = self._merge.watermark_ns
        first_ns = self._merge.first_time_ns
        if self._done_ns is None:
            if watermark_ns < 0 or first_ns is None:
                return []
            self._done_ns = first_ns // self._tick_ns * self._tick_ns
        events: list[StageTwoEvent] = []
        is_closing = watermark_ns >= CLOSED_NS
        until_ns = self._merge.last_time_ns if is_closing else watermark_ns
        while self._done_ns + self._tick_ns <= until_ns:
            next_ns = min(self._merge.first_time_ns or until_ns, until_ns) // self._tick_ns * self._tick_ns
            if next_ns - self._done_ns > _CLOCK_JUMP_TICKS * self._tick_ns:
                self._done_ns = next_ns - self._tick_ns
            self._done_ns += self._tick_ns
            events += self._step_to(self._done_ns)
        if is_closing:
            last_ns = max(until_ns, self._done_ns)
            events += self._step_to(last_ns, is_last=True)
            events += self._end(last_ns)
        return events

    def _step_to(self, until_ns: int, *, is_last: bool = False) -> list[StageTwoEvent]:
        arrived = self._merge.take_rounds(until_ns)
        for rounds in arrived:
            self._transfers.add(rounds)
            self._clocks.add(rounds)
            self._rates.add(rounds)
            self._slow_rounds.add(rounds)
        self._recent += arrived
        released = self._merge.take_events(until_ns)
        if self._recurring is not None:
            released += self._recurring.add(arrived, CLOSED_NS if is_last else until_ns)
        events: list[StageTwoEvent] = []
        index: RoundIndex | None = None
        for event in released:
            match event:
                case Topology():
                    self._hang.on_topology(event)
                    self._communicators[event.communicator] = (event.name, event.members)
                    self._clocks.on_topology(event)
                    self._rates.on_topology(event)
                    self._host_of.update(dict.fromkeys(event.host_ranks, event.host))
                    self._incidents.ranks = max(self._incidents.ranks, self._world_size)
                case Progress():
                    self._last_report_ns[event.host] = event.time_ns
                    if event.marks_iterations:
                        self._recurring = None
                    self._dropped[event.host, event.communicator] = event.dropped_total
                    self._skipped[event.communicator] = event.skipped_rounds
                    self._rates.on_progress(event)
                    events += self._note(self._hang.on_progress(event, self._step), event.time_ns)
                case HostSample():
                    self._last_report_ns[event.host] = event.time_ns
                    if event.closed:
                        self._closed_hosts[event.host] = event.closed_why
                    sample = self._shared_name.on_host(event)
                    self._hang.on_host(sample)
                    self._exits.on_host(sample)
                    self._unseen_calls.on_host(sample)
                case HostVitals():
                    self._connections.on_vitals(event)
                    self._gpus.on_vitals(event)
                    self._processors.on_vitals(event)
                    self._hang.on_host(event)
                case HostEvidence():
                    self._hang.on_host(event)
                case SignatureMismatch():
                    self._hang.on_mismatch(event)
                case Operations():
                    self._prices.on_operations(event)
                case Markers():
                    self._on_pauses(event)
                case IterationSample() if self._counts(event):
                    index = index or RoundIndex(self._recent, self._clocks.offsets())
                    events += [event, *self._on_iteration(event, index)]
                case _:
                    pass
        self._forget_rounds()
        ended, self._ended = self._ended, []
        events += self._note(ended, until_ns)
        silent = self._silent_hosts(until_ns)
        self._hang.host_reports.silent = frozenset(silent)
        given_up = {host for host, why in self._closed_hosts.items() if why == GIVEN_UP}
        findings = self._silence.on_tick(until_ns, self._step, silent, self._host_ranks, given_up)
        findings += self._unseen_calls.on_tick(until_ns, self._step)
        findings += self._shared_name.on_tick(until_ns, self._step)
        findings += self._hang.on_tick(
            until_ns,
            step=self._step,
            step_time_s=self._slow.median_step_time_s,
            is_setup=self._iteration_count < MIN_ITERATIONS,
            planned=bool(self._paused),
            unseen=self._unseen(until_ns),
            iterations=self._last_iterations(),
            is_host_late=any(
                until_ns - last_report_ns > _LATE_NS
                for host, last_report_ns in self._last_report_ns.items()
                if host not in silent and host not in self._closed_hosts
            ),
            finished_ns=min(self._previous.ends_ns) if self._previous is not None else 0,
        )
        findings += self._exits_until(until_ns)
        findings += self._slow_rounds.on_tick(until_ns, self._communicators, has_iterations=self._iteration_count > 0)
        events += self._note(findings, until_ns)
        self._was_hung = self._was_hung or self._hang.is_hung
        for rounds in arrived:  # after the operations: the very first of them say that rounds are to be kept
            self._prices.on_rounds(rounds)
        for price in self._prices.on_tick(until_ns, self._world_size):
            events += [price, *self._incidents.on_price(price)]
        return [*events, *self._incidents.on_tick(until_ns, self._ongoing_s(until_ns))]

    def _on_pauses(self, markers: Markers) -> None:
        for rank, name, time_ns in zip(markers.ranks, markers.names, markers.times_ns, strict=True):
            if name == CHECKPOINT_END:
                self._hang.checkpoint_ns = max(self._hang.checkpoint_ns or 0, time_ns)
            if name in (CHECKPOINT_BEGIN, EVALUATION_BEGIN):
                self._paused.add(rank)
            else:
                self._paused.discard(rank)  # an optimizer step ends an evaluation too, however it was begun

    def _counts(self, sample: IterationSample) -> bool:
        """Optimizer steps are the iterations of a job; recurring periods only where none are seen."""
        if sample.boundary == "optimizer_step":
            if self._recurring is not None and self._iteration_count:
                self._forget_iterations(sample)  # what was followed until now were parts of the first iteration
            self._recurring = None
            return True
        if self._recurring is None:
            return False
        if self._recurring.locks != self._recurring_locks:
            self._recurring_locks = self._recurring.locks
            self._recurring_since_ns = sample.time_ns
            self._forget_iterations(sample)
        return sample.time_ns >= self._recurring_since_ns + _PATIENCE_NS

    def _forget_iterations(self, sample: IterationSample) -> None:
        """What was an iteration until now is none."""
        self._ended += self._slow.end(Instant(step=sample.step, time_ns=sample.time_ns))
        self._slow, self._previous = SlowWatch(self.job, self.attempt, self._min_change), None
        self._before_previous = None
        self._slow.on_history(self._earlier)

    def _on_iteration(self, sample: IterationSample, index: RoundIndex) -> list[StageTwoEvent]:
        previous, self._previous = self._previous, sample
        self._before_previous, self._rounds_before = previous, self._recent
        self._step = sample.step
        if previous is None or sample.step_time_s <= 0:
            return []
        self._iteration_count += 1
        self._planned_count += bool(sample.planned)
        is_planned = sample.planned and self._planned_count <= _MAX_PLANNED_SHARE * self._iteration_count
        was_hung, self._was_hung = self._was_hung, self._hang.is_hung
        if is_planned or was_hung:
            return []  # a pause that is accounted for elsewhere says nothing about the level
        record = self._slow.measured(previous, sample, index)
        observed = Observations(
            communicators=self._communicators,
            outliers=lambda: self._transfers.outliers(self.job, self.attempt, sample.time_ns),
            unseen=self._unseen(sample.time_ns),
            clocks=self._clocks.offsets(),
            hosts=self._host_of,
            slow_edges=self._rates.slow_edges,
            connections=self._connections.slow_links,
            gpu_problems=self._gpus.problems,
            shortages=self._processors.shortages,
            slow_rounds=self._slow_rounds.sentence_about,
            replaying=self._hang.replaying_ranks(),
        )
        found = self._slow.on_iteration(sample, record, observed)
        findings = [event for event in found if isinstance(event, Finding)]
        others = [event for event in found if not isinstance(event, Finding)]
        return [*others, *self._note(findings, sample.time_ns)]

    def _note(self, findings: list[Finding], now_ns: int) -> list[StageTwoEvent]:
        events: list[StageTwoEvent] = []
        for finding in findings:
            if finding.kind in ("slow", "exit"):
                finding = self._hang.with_notes(finding, now_ns)
            excess_s = self._slow.excess_s if finding.kind == "slow" else 0.0
            if finding.kind == "hang" and finding.onset is not None:
                until_ns = finding.relief.time_ns if finding.relief is not None else now_ns
                excess_s = (until_ns - finding.onset.time_ns) / 1e9
            events += [finding, *self._incidents.on_finding(finding, now_ns, excess_s)]
        return events

    def _ongoing_s(self, now_ns: int) -> dict[str, float]:
        return {**self._slow.ongoing, **self._hang.ongoing(now_ns)}

    def _end(self, now_ns: int) -> list[StageTwoEvent]:
        self.ended = True
        reasons = set(self._closed_hosts.values())
        why = next((why for why in ("job killed", GIVEN_UP) if why in reasons), "job ended")
        left = self._exits_until(now_ns, is_end=True)
        return self._note(left, now_ns) + list(self._incidents.on_end(now_ns, why, self._ongoing_s(now_ns)))

    def _exits_until(self, now_ns: int, *, is_end: bool = False) -> list[Finding]:
        return self._exits.on_tick(
            now_ns,
            self._step,
            is_hung=self._hang.is_hung,
            disagreement=lambda until_ns: self._hang.disagreement(self._last_iterations(), until_ns),
            standstill=self._hang.standstill,
            unheard=self._hang.host_reports.unheard(),
            is_end=is_end,
        )

    def _forget_rounds(self) -> None:
        """Keep the rounds of the iteration that is going on, however long it is; before the first, of a minute."""
        if self._previous is not None:
            keep_ns = min(self._previous.ends_ns)
        else:
            keep_ns = max((rounds.time_ns for rounds in self._recent), default=0) - _BEFORE_FIRST_NS
        self._recent = [rounds for rounds in self._recent if rounds.time_ns > keep_ns]

    def _last_iterations(self) -> LastIterations | None:
        """The calls of this iteration and of the one before; looked at only when something hangs."""
        if self._previous is None or self._before_previous is None:
            return None
        begins, before = self._previous, self._before_previous
        known = {id(rounds) for rounds in self._recent}
        return LastIterations(
            rounds=[*(rounds for rounds in self._rounds_before if id(rounds) not in known), *self._recent],
            begins_ns=dict(zip(begins.ranks, begins.ends_ns, strict=True)),
            previous_begins_ns=dict(zip(before.ranks, before.ends_ns, strict=True)),
        )

    def _unseen(self, now_ns: int) -> tuple[str, ...]:
        sentences = []
        dropped = sum(self._dropped.values())
        if dropped:
            sentences.append(f"{dropped} calls were lost before they could be read")
        for communicator, skipped in sorted(self._skipped.items()):
            if skipped:
                name, _ = self._communicators.get(communicator, (communicator, ()))
                sentences.append(f"{skipped} rounds of {name} were told of by nobody; it was begun anew behind them")
        silent = self._silent_hosts(now_ns)
        if silent:
            sentences.append(f"hosts {', '.join(sorted(silent))} are silent: their agents or machines may be gone")
        if self._prices.unpriced:
            sentences.append(f"what stragglers cost: {self._prices.unpriced}")
        return tuple(sentences)

    def _silent_hosts(self, now_ns: int) -> dict[str, int]:
        """Hosts that have not been heard of for longer than is usual, with their last word."""
        return {
            host: self._last_report_ns[host]
            for host in self._hosts
            if host in self._last_report_ns
            and host not in self._closed_hosts
            and now_ns - self._last_report_ns[host] > self._lateness_ns
        }
