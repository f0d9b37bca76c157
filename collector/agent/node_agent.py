"""What the agent does, one step at a time: it reads what the ranks write, and puts what it says of it into the outbox.

Every `flush_s` one transaction saves the new messages with the state they came from (collector/agent/outbox.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collector.agent.blindness import BlindWatch
from collector.agent.command_poll import CommandPoll
from collector.agent.delivery import Delivery
from collector.agent.flush_times import FlushTimes
from collector.agent.group_limits import GroupLimits
from collector.agent.holding import Holder
from collector.agent.host_processes import HostProcesses, KnownProcess
from collector.agent.host_watch import HostWatch
from collector.agent.measuring import Measuring
from collector.agent.obedience import Obedience, ObeyedOrders, Trusted
from collector.agent.orders import HostNow, OrderBook
from collector.agent.outbox import Outbox, Outgoing
from collector.agent.own_cost import OwnCost, resident_bytes
from collector.agent.profiling import Profiling
from collector.agent.run_folder import Ended, RunFolder
from collector.agent.saying import outgoing, room_bytes
from collector.agent.seen import Seen
from collector.agent.speaker import Speaker
from collector.agent.trainer_listener import TrainerListener
from collector.agent.trainers import Trainers
from collector.agent.unplaced_calls import UnnamedCalls
from collector.agent.why_unseen import WhyUnseen
from collector.calls import rings
from collector.calls.assembler import AssemblerState, CallAssembler
from collector.calls.frame_set import FrameSet
from collector.calls.kept_calls import is_one_of
from collector.calls.markers import marker_records
from collector.calls.operations import operations_of
from collector.calls.pending_records import RingRecords
from collector.calls.ring_set import Refused, RingSet
from collector.calls.transfer_rates import TransferSampler
from collector.host.processes import PROC
from collector.host.processes_of_run import ranks_of_run
from pacehound.model.events import AgentCost, CommandResult, HostEvidence
from pacehound.runtime.watched import Watched, write_why_unseen
from pacehound.settings import AgentSettings, MessageForm, Settings

logger = logging.getLogger("pacehound.agent")

GUARD_NS = 100_000_000
"""How far a promise stays behind the clock.

A completion is stamped and then written, by a thread that may lose its core in between: with several ranks per core
that takes tens of milliseconds. What comes later still is sent, and counted as `late_rows`.
"""
LOOK_NS = 200_000_000
SILENT_LOOK_NS = 10_000_000_000
"""While ranks wait for others to join, processes that have not are looked for so often: all of /proc is read for it."""
UNSETTLED_RECORDS = 50_000
UNREADABLE_END_NS = 2_000_000_000
LAST_READS = 100
CALM_SHARE = 1 / 16
"""Of a ring, that may be filled by the next look (chosen: one that fills sixteen times as fast is not full by then)."""
_PROGRESS_ROOM_BYTES = 64 * 1024
_KEPT_WHILE_BYTES = 4 * 1024 * 1024
"""Calls behind digests are told while no more than this waits: two flushes of them."""


class AgentState(msgspec.Struct, kw_only=True):
    """What an agent that starts again must know, saved with the messages that it belongs to."""

    assembler: AssemblerState
    positions: dict[str, int] = {}
    finished_rings: list[str] = []
    processes: list[KnownProcess] = []
    closed_attempts: list[int] = []
    unnamed_calls: dict[str, int] = {}
    obeyed: ObeyedOrders = msgspec.field(default_factory=ObeyedOrders)
    groups: GroupLimits = msgspec.field(default_factory=GroupLimits)
    seen: Seen = msgspec.field(default_factory=Seen)
    messages: MessageForm = MessageForm.APART
    """How this run's agent began: the streams of a job do not change their keys. (Before there was a choice, apart.)"""
    sharded_from_ranks: int = 0
    """As `messages`: from which size on jobs that are told of in iterations have large shards; 0: none has."""
    has_homes: bool = False
    """As `messages`: hosts of large jobs say all they have to say of calls to one shard. (Before, to each its own.)"""
    has_closed: bool = False


@dataclass(slots=True)
class AgentCounts:
    """What did not go the ordinary way, since this process started."""

    refused_rings: int = 0
    refused_frames: int = 0
    failed_steps: int = 0


class Agent:
    """Everything the daemon does, one step at a time; the time is an argument.

    Parameters
    ----------
    folder
        The run folder; its `job.json` must be there.
    outbox
        Where messages wait; its state is where this agent goes on.
    delivery
        Takes them to the receiver.
    settings
        `agent.*` are used.
    proc
        Where /proc is.
    host_watch
        Sees what is besides calls; `None`: nobody looks.
    commands
        Where commands come from, whose are obeyed, and by which address others reach this host; `None`: nobody's.
    cpu_ns
        Processor time that this process has used.

    Raises
    ------
    InvalidInput
        `job.json` is missing or wrong.

    """

    def __init__(
        self,
        folder: RunFolder,
        outbox: Outbox,
        delivery: Delivery,
        settings: Settings,
        *,
        proc: Path = PROC,
        host_watch: HostWatch | None = None,
        commands: tuple[CommandPoll, Trusted, str] | None = None,
        cpu_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self._folder = folder
        self._job = folder.job()
        self._proc = proc
        self._outbox = outbox
        self.delivery = delivery
        self._cpu_ns = cpu_ns
        longest_flush_s = settings.stream.lateness_s / 2
        self._cost = OwnCost(settings.agent.flush_s, longest_flush_s, budget_cores=settings.agent.cpu_budget_cores)
        self._flush_times = FlushTimes(settings.stream, guard_ns=GUARD_NS, unix_ns=self._job.clock.to_unix_ns(0))
        self.counts = AgentCounts()
        state = self._restored(settings.agent)
        # Workers that read calls apart know no digests.
        is_together = state.messages is MessageForm.TOGETHER
        self.assembler = CallAssembler(
            self._job.job,
            self._job.host,
            self._job.clock,
            state.assembler,
            digests_from_ranks=settings.agent.digests_from_ranks if is_together else 0,
            tells_kept=is_one_of(self._job.job, settings.agent.calls_of_one_job_in),
        )
        self._speaker = Speaker(self.assembler, state.messages, state.sharded_from_ranks, has_homes=state.has_homes)
        self.processes = HostProcesses(state.processes, state.closed_attempts, proc)
        self._host_watch = host_watch
        self._blindness = BlindWatch(proc)
        self._why_unseen = WhyUnseen(folder.path, proc)
        self._groups = state.groups
        self._poll: CommandPoll | None = None
        self._orders: OrderBook | None = None
        self._answers: list[CommandResult] = []
        self._measured: list[HostEvidence] = []
        if commands is not None:
            self._poll, trusted, address = commands
            obedience = Obedience(trusted, self._job.job, self._job.host, state.obeyed)
            holder, measuring = Holder(folder.control), Measuring(folder.path / "measuring", self._job.host)
            look_closely = host_watch.look_closely if host_watch is not None else None
            profiling = Profiling(holder.block_of, look_closely, self.assembler.ask_for_kept)
            self._orders = OrderBook(
                obedience,
                holder,
                measuring,
                profiling,
                Trainers(TrainerListener(folder.path)),
                self._job.job,
                self._job.host,
                address,
            )
        self._rings = RingSet(folder.rings, state.positions, set(state.finished_rings))
        self._unnamed = UnnamedCalls(folder.control, state.unnamed_calls)
        self._frames = FrameSet(folder.frames)
        self._transfers = TransferSampler()
        self._seen_so_far = state.seen
        self.has_closed = state.has_closed
        self._went_on = 0  # ranks that were there when the job was closed
        self._read_records: list[RingRecords] = []
        self._unsettled = 0
        self._next_look_ns = self._next_silent_look_ns = 0
        self._ended_file_since_ns: int | None = None
        self._has_exit_news = False
        self._has_one_ended = False
        self._read_at_ns = 0
        self._filled_per_s = 0.0  # the share of a ring, of that which filled fastest between the last two looks
        self._warned: set[str] = set()

    def step(self, now_ns: int) -> None:
        """Read, and once per `flush_s` or when a process has changed, settle and save; send what waits.

        Parameters
        ----------
        now_ns
            Monotonic time, read before the call: what is promised never runs ahead of what was read.

        """
        if self.has_closed:
            self.delivery.step(now_ns)
            return
        has_news = self._look(now_ns)
        has_news |= self._read(now_ns)
        has_news |= self._obey(now_ns)
        self._look_at_frames(now_ns)
        self._look_for_unseen(now_ns)
        ended = self._ended(now_ns)
        if ended is not None:
            self.close(now_ns, ended.why)
        elif has_news or self._is_due(now_ns) or self._unsettled >= UNSETTLED_RECORDS:
            self.flush(now_ns, has_news=has_news)
        if self._host_watch is not None and not self.has_closed:  # behind a flush, which would wait for it
            may_wait = self._flush_times.awaits_heartbeat(now_ns, tells_iterations=self.assembler.tells_iterations)
            self._host_watch.look_at_hardware(self.processes.alive(), now_ns, may_wait=may_wait)
        self.delivery.step(now_ns)

    def may_wait_s(self, now_ns: int) -> float:
        """For how long nobody needs another look, unless he says so; 0.0 while something is under way."""
        is_busy = self._orders is not None and self._orders.is_busy
        if is_busy or self.assembler.tells_iterations or not self._frames.is_empty:
            return 0.0
        if not self.delivery.is_all_under_way:
            return 0.0
        until_flush_s = self._flush_times.until_next_ns(now_ns) / 1e9
        filled = self._filled_per_s * until_flush_s
        return until_flush_s if filled <= CALM_SHARE else until_flush_s * CALM_SHARE / filled

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Can be read while somebody waits for the next step: then `heed` first."""
        asking = () if self._orders is None else (self._orders.trainers.listener.descriptor,)
        return (*asking, *self.processes.descriptors)

    def heed(self, now_ns: int) -> bool:
        """Somebody woke the agent: look at processes that have just ended; whether one has, and a step is due."""
        self._has_one_ended |= self.processes.look_at_ended(self._job.clock.to_unix_ns(now_ns))
        return self._has_one_ended

    def flush(self, now_ns: int, *, has_news: bool = True) -> None:
        """Settle what was read so far, and save it with the promise that goes with it."""
        if slower := self._cost.look(now_ns, self._cpu_ns()):
            self._warn_once(slower)
        times, tells_iterations = self._flush_times, self.assembler.tells_iterations
        is_usual = tells_iterations and not has_news and times.is_usual(now_ns)
        held_ns = 0 if has_news else times.quiet_behind_promises_ns(now_ns, tells_iterations=tells_iterations)
        times.flushed(now_ns, self._cost.flush_s)
        promise_ns = now_ns - GUARD_NS
        self._settle(now_ns, promise_ns=promise_ns, closed_why="", is_usual=is_usual, held_ns=held_ns)

    def _is_due(self, now_ns: int) -> bool:
        n_ended, ended_ns = self._seen_so_far.ended_iterations
        self._flush_times.note_iterations(n_ended, now_ns, ended_ns)
        return self._flush_times.is_due(now_ns, tells_iterations=self.assembler.tells_iterations)

    def close(self, now_ns: int, why: str) -> None:
        """The job has ended: read everything, give up what is open, and say so on every stream."""
        self._next_look_ns = 0
        self._look(now_ns)
        for _ in range(LAST_READS):  # a process that outlives its job may write for ever
            if not self._read_once():
                break
        self.has_closed = True
        self._went_on = len({process.rank for process in self.processes.alive()})
        self._settle(now_ns, promise_ns=now_ns, closed_why=why or "job ended")
        logger.info("closed: %s", why)

    def watched(self) -> Watched:
        """What was seen so far, and what became of it."""
        seen, delivered = self._seen_so_far, self.delivery.counts
        return Watched(
            ranks=seen.ranks or len({rank for _, rank in self.processes.local_ranks()}),
            calls=seen.calls,
            iterations=seen.iterations,
            lost_calls=seen.lost_calls,
            refused=delivered.refused_messages + delivered.rejected_records,
            sent=delivered.taken_messages,
            unsent=len(self._outbox),
            is_saved=self._outbox.is_saved,
            receiver_said=self.delivery.receiver_said,
            went_on=self._went_on,
        )

    def let_go(self) -> None:
        """Close files; everything that matters has been saved."""
        if self._orders is not None:
            self._orders.close()
        self._rings.close()
        self._frames.close()
        self.processes.close()
        if self._host_watch is not None:
            self._host_watch.close()

    def _look(self, now_ns: int) -> bool:
        """Find new rings and look at the processes; whether a process has changed."""
        opened, refused = self._rings.discover()
        for file in refused:
            self._note_refused(file)
        has_changed, self._has_one_ended = self._has_one_ended, False
        if now_ns < self._next_look_ns and not opened:
            return has_changed
        unix_ns = self._job.clock.to_unix_ns(now_ns)
        # Who has left by now is not of the attempt of those that begin.
        has_changed |= bool(opened) and self.processes.look(unix_ns)
        for header in opened:
            self.processes.add(header)
        self._next_look_ns = now_ns + LOOK_NS
        if self.assembler.waits_for_others and now_ns >= self._next_silent_look_ns:
            self._next_silent_look_ns = now_ns + SILENT_LOOK_NS
            for process in ranks_of_run(self._folder.path, self._proc):
                self.processes.add_silent(process)
        return self.processes.look(unix_ns) or has_changed

    def _look_for_unseen(self, now_ns: int) -> None:
        """While no call is seen: whether the command has begun processes of which none can be."""
        if self._seen_so_far.calls:
            return

        def command_of() -> int | None:
            command = self._folder.command()
            return None if command is None else command.pid

        if self._why_unseen.look(command_of, now_ns):
            write_why_unseen(self._folder.path, self._why_unseen.reason)

    def _obey(self, now_ns: int) -> bool:
        """Carry out what came, and look after a hold; whether there is something to answer."""
        if self._poll is None or self._orders is None:
            return False
        commands = self._poll.step(now_ns, is_busy=self._orders.is_busy)
        has_word = self._orders.trainers.look(self.processes.alive())
        if commands or self._orders.is_busy or has_word:
            host = HostNow(
                processes=tuple(self.processes.alive()),
                timeouts_ms=self._groups.timeouts_ms,
                world_sizes=self._groups.world_sizes,
                now_ns=now_ns,
                unix_ns=time.time_ns(),
            )
            answers = [*self._orders.take(commands, host), *self._orders.step(host)]
            self._answers += answers
            self._measured += [self._evidence_of(one, now_ns) for one in answers if one.judged]
            self._note_holds(self._orders.holder)
        return bool(self._answers)

    def _evidence_of(self, result: CommandResult, now_ns: int) -> HostEvidence:
        """What was measured, for who judges the slowdown that it was measured in."""
        return HostEvidence(
            job=self._job.job,
            attempt=result.attempt,
            time_ns=self._job.clock.to_unix_ns(now_ns),
            host=self._job.host,
            reason="the ranks were measured by a validation",
            judged=result.judged,
        )

    def _note_holds(self, holder: Holder) -> None:
        """A rank that is held is not slow, and hangs nowhere."""
        marks, holder.marks = holder.marks, []
        for process, name, time_ns in marks:
            records = marker_records([(process.rank, name, time_ns)])
            self._read_records.append(RingRecords(attempt=process.attempt, rank=process.rank, records=records))

    def _read(self, now_ns: int) -> bool:
        """Read every ring once; whether a process said that it leaves."""
        gone = self.processes.gone()
        since_s = max(now_ns - (self._read_at_ns or now_ns), 1) / 1e9
        self._read_at_ns = now_ns
        has_news = self._read_once() and self._has_exit_news
        self._filled_per_s = self._fullest / since_s
        self.processes.are_off(self._rings.switched_off())
        self._rings.retire(gone)
        return has_news

    def _read_once(self) -> bool:
        """Whether any ring had something new."""
        had_any = False
        self._has_exit_news = False
        self._fullest = 0.0
        for found in self._rings.read():
            if isinstance(found, Refused):
                self._note_refused(found)
                if found.header is not None:
                    self._take_in(self.processes.placed(found.header), rings.NO_RECORDS, lost=1)
                continue
            had_any = True
            self._fullest = max(self._fullest, len(found.read.records) / found.header.capacity)
            header = self.processes.placed(found.header)
            mark = self.processes.mark_of((header.pid, header.process_start_ticks))
            records = rings.marked(found.read.records, mark)
            self._take_in(header, records, found.read.lost)
            self._note_own_words(header, records)
        return had_any

    def _take_in(self, header: rings.RingHeader, records: rings.Records, lost: int) -> None:
        self._seen_so_far.take(header, records, lost)
        self._groups.take(header, records)
        if len(records):
            self.processes.note_rank(header, int(records.view(rings.CALL)[-1]["rank"]))
            if self.processes.was_found_gone(header) and (said_ns := rings.last_time_ns(records)):
                self.processes.note_last_word(header, self._job.clock.to_unix_ns(said_ns))
        self._read_records.append(RingRecords(attempt=header.attempt, rank=header.rank, records=records, lost=lost))
        self._unsettled += len(records)

    def _note_own_words(self, header: rings.RingHeader, records: rings.Records) -> None:
        """What a process says of the worlds that it joins and leaves, and of its end."""
        self._has_exit_news |= self.processes.note_worlds(header, records)
        exits = records[records.view(rings.CALL)["kind"] == rings.EXIT].view(rings.EXIT_BODY)
        for record in exits:
            text = rings.text_of(record["text"])
            self._has_exit_news |= self.processes.note_exit(header, text, bool(record["failed"]))

    def _note_refused(self, file: Refused) -> None:
        self.counts.refused_rings += 1
        logger.warning("ring %s is not read: %s", file.name, file.reason)

    def _look_at_frames(self, now_ns: int) -> None:
        looks, refused = self._frames.look(self.processes.mark_of)
        self._transfers.look(looks, now_ns)
        for file in refused:
            self.counts.refused_frames += 1
            logger.warning("probing frame %s is not read: %s", file.name, file.reason)
        for rank in sorted(look.rank for look in looks if look.unkept):
            self._warn_once(f"rank {rank} has had more than 8 calls under way at once: how far some came is not seen")

    def _ended(self, now_ns: int) -> Ended | None:
        ended = self._folder.ended()
        if ended is not None or not self._folder.has_ended_file():
            return ended
        if self._ended_file_since_ns is None:
            self._ended_file_since_ns = now_ns
        return Ended() if now_ns - self._ended_file_since_ns >= UNREADABLE_END_NS else None

    def _settle(
        self, now_ns: int, *, promise_ns: int, closed_why: str, is_usual: bool = False, held_ns: int = 0
    ) -> None:
        records_by_ring, self._read_records, self._unsettled = self._read_records, [], 0
        running = self._transfers.running
        settled = self.assembler.settle(
            records_by_ring,
            now_ns,
            gone=self.processes.gone_ranks(),
            local_ranks=self.processes.local_ranks(),
            ended=bool(closed_why),
            running=running,
            uses_representatives=self._cost.uses_representatives and not closed_why,
        )
        self._frames.retire(self.processes.gone())
        speaker = self._speaker
        detail: list[Outgoing] = []
        if closed_why or self._outbox.held_bytes < _KEPT_WHILE_BYTES:
            detail = speaker.kept_calls(self.assembler.kept(ended=bool(closed_why)))
        # Before the sample that lets the host's time go on, so that nobody has to think of them as late.
        operations = operations_of(records_by_ring, job=self._job.job, host=self._job.host, clock=self._job.clock)
        if operations:
            speaker.operations_are_told()
        speaker.are_refused(self.delivery.counts.rejected_records + self.delivery.counts.refused_messages)
        seen = [*self._seen(), *map(outgoing, operations)]
        coming_bytes = sum(len(message.payload) for message in [*detail, *seen])
        coming_bytes += room_bytes(settled) + _PROGRESS_ROOM_BYTES
        gone = self._outbox.counts.gone
        dropped = self._outbox.make_room(coming_bytes)
        if self._outbox.counts.gone > gone:
            speaker.are_gone()
        for communicator, lost in dropped.items():
            self.assembler.note_dropped(communicator, lost.calls, lost.reported)
            self._seen_so_far.lost_calls += lost.calls
            self._warn_once("the receiver is away too long: the oldest calls are dropped and counted")
        for process, calls in self._unnamed.look(self.processes.known):
            self.assembler.note_unnamed(process.attempt, process.rank, calls)
        unix_ns = self._job.clock.to_unix_ns(now_ns)
        promised = self.assembler.promise(promise_ns, now_ns, running)
        unseen = self._blindness.look(self.processes.alive(), self.assembler.callers, now_ns)
        claimed = None if self.processes.known else self._folder.attempt()
        samples = self.processes.samples(
            self._job.job, self._job.host, unix_ns, closed_why, unseen=unseen, claimed=claimed
        )
        answers, self._answers = self._answers, []
        told = speaker.time_goes_on(
            settled,
            promised,
            samples,
            short_for_ns=self._flush_times.quiet_ns if is_usual else 0,
            held_ns=held_ns,
            speaks_of_processes=self._may_leave_out_samples,
        )
        if told.is_short:
            self._flush_times.may_be_quiet(now_ns)
        elif held_ns and told.speaks_of_processes:
            self._flush_times.has_promised_to_be_quiet(now_ns)
        messages = [*seen, *told.samples, *told.calls, *detail, *told.last_samples, *map(outgoing, answers)]
        self._outbox.save(messages, msgspec.msgpack.encode(self._state()), now_ns)
        if self._outbox.is_saved:
            self._rings.remove_finished()
        else:
            self._warn_once(f"the outbox lives in memory alone: {self._outbox.counts.last_file_error}")
        for reason in self.assembler.counts.reasons:
            self._warn_once(reason)
        if self._host_watch is not None and not closed_why:
            self._host_watch.consider(promised, self.processes.alive(), now_ns, unix_ns)

    @property
    def _may_leave_out_samples(self) -> bool:
        """Promises may speak for processes.

        While the receiver is away all is said: it may take the host for a silent one, of which a sample says that it is
        back. So it is while somebody looks: what he has seen is of a time that could have been promised by then.
        """
        is_looking = self._host_watch is not None and self._host_watch.is_looking
        return not self.delivery.receiver_said and not is_looking

    def _seen(self) -> list[Outgoing]:
        """What was seen and measured besides calls; what cannot be said must not take the calls with it."""
        measured, self._measured = self._measured, []
        found = [*(self._host_watch.seen() if self._host_watch is not None else ()), *measured]
        messages = []
        for event in sorted(found, key=lambda event: event.time_ns):
            try:
                messages.append(self._speaker.seen(event, self._own()))
            except ValueError as error:
                self._warn_once(f"{type(event).__name__} cannot be said: {error}")
        return messages

    def _own(self) -> AgentCost:
        return AgentCost(
            cpu_cores=self._cost.cpu_cores,
            resident_bytes=resident_bytes(),
            flush_s=self._cost.flush_s,
            dropped_calls=self._outbox.counts.dropped_calls,
            told_by_others=self.assembler.counts.represented_rows,
            shim_ns_per_call=self._rings.measured_ns_per_call(),
        )

    def _state(self) -> AgentState:
        return AgentState(
            assembler=self.assembler.state(),
            positions=self._rings.positions,
            finished_rings=self._rings.finished,
            processes=self.processes.known,
            closed_attempts=self.processes.closed_attempts,
            unnamed_calls=self._unnamed.told,
            obeyed=self._orders.obedience.state if self._orders is not None else ObeyedOrders(),
            groups=self._groups,
            messages=self._speaker.form,
            sharded_from_ranks=self._speaker.sharded_from_ranks,
            has_homes=self._speaker.has_homes,
            seen=self._seen_so_far,
            has_closed=self.has_closed,
        )

    def _restored(self, settings: AgentSettings) -> AgentState:
        if self._outbox.state is not None:
            try:
                return msgspec.msgpack.decode(self._outbox.state, type=AgentState)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                self._outbox.discard(error)
        if not self._outbox.was_damaged:
            return _begun(AssemblerState(), settings)
        logger.warning(
            "the outbox was damaged and is set aside (%s); the rings are read from the start",
            self._outbox.counts.last_file_error,
        )
        # Rows that had been sent come again, in batches with numbers of their own; readers go by a row's identity.
        return _begun(AssemblerState(first_ordinal=time.time_ns() // 1_000_000), settings)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < 100:
            self._warned.add(text)
            logger.warning("%s", text)


def _begun(assembler: AssemblerState, settings: AgentSettings) -> AgentState:
    """Of an agent that has nothing to go on from."""
    return AgentState(
        assembler=assembler,
        messages=settings.messages,
        sharded_from_ranks=settings.digests_from_ranks,
        has_homes=True,
    )
