"""What the ranks of one host have done on every communicator: records in, rows and promises out.

Pure: the time is an argument and nothing here opens a file. All state is in `AssemblerState`, which is saved with the
events that came of it, so that an agent that starts again goes on exactly where its saved events end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from collector.calls import rings
from collector.calls import rows as call_rows
from collector.calls.communicator_table import CommunicatorTable
from collector.calls.communicators import CallSequence, Communicator, GroupReader, PendingGroup
from collector.calls.digests import DigestState, IterationDigests, Told, marks_of
from collector.calls.frames import CHANNELS, Operation
from collector.calls.kept_calls import CALLS_OF_A_JOB, MOST_AT_ONCE, MOST_KEPT, KeptCalls
from collector.calls.markers import FOREVER_NS, markers_event, read_markers
from collector.calls.open_calls import OpenCalls
from collector.calls.pending_records import PendingRecords, PendingState, RecordColumns, RingRecords
from collector.calls.progress import pair_progress, rank_progress
from collector.calls.representative_rank import Representatives, choose_representatives
from collector.calls.rings import CALL, BoolArray, Int64Array, Records
from collector.calls.transfer_rates import Transfers
from pacehound.clock import ClockPair
from pacehound.errors import InvalidEvent
from pacehound.model.calls import DIRECTIONS, SOURCES, CallBatch
from pacehound.model.codes import ALGORITHMS, JOINING
from pacehound.model.events import OPTIMIZER_STEP, Markers, Progress, Topology

SEND, RECV = DIRECTIONS.index("send"), DIRECTIONS.index("recv")

FUTURE_NS = 1_000_000_000
"""A time this far ahead of the clock is no time."""
MAX_SEQ = 1 << 48
"""A rank that made a million calls a second would get there in nine years. What is missing below a number is counted
as lost: sums of it over all sequences of a communicator must fit into 64 bits."""


class AssemblerState(msgspec.Struct, kw_only=True):
    """Everything the assembler knows, as it is saved."""

    communicators: list[Communicator] = []
    sequences: dict[int, CallSequence] = {}
    open_records: bytes = b""
    uncertain: list[bytes] = []
    failed: dict[bytes, int] = {}
    pending_records: PendingState = msgspec.field(default_factory=PendingState)
    pending_groups: dict[bytes, PendingGroup] = {}
    destroyed: list[tuple[bytes, int]] = []
    promised_ns: int = 0
    has_lost: bool = False
    marked_attempts: list[int] = []
    """Attempts in which an optimizer step was seen."""
    digests: DigestState = msgspec.field(default_factory=DigestState)
    first_ordinal: int = 0
    """Where batches are counted from: above 0 after an outbox was lost, so that no number is used twice."""


@dataclass(slots=True)
class AssemblerCounts:
    """What did not go the ordinary way, since this process started."""

    refused: int = 0
    unmatched: int = 0
    late_rows: int = 0
    lost_records: int = 0
    unnamed: int = 0
    represented_rows: int = 0
    reasons: list[str] = field(default_factory=list)

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count records that make no sense; the first few reasons are kept for the log."""
        self.refused += count
        self.say(reason)

    def say(self, reason: str) -> None:
        """Keep a sentence for the log, one of the first few."""
        if len(self.reasons) < 20 and reason not in self.reasons:
            self.reasons.append(reason)


class CallAssembler:
    """The calls, groups and markers of one host and job.

    Parameters
    ----------
    job, host
        As in the events.
    clock
        Maps the rings' monotonic times to Unix time.
    state
        What an earlier agent of the same run had saved.
    digests_from_ranks
        Of attempts with so many ranks iterations are told in digests instead of their calls; 0: of none.
    tells_kept
        The calls behind digests are told all the same, beside them.

    """

    def __init__(
        self,
        job: str,
        host: str,
        clock: ClockPair,
        state: AssemblerState | None = None,
        *,
        digests_from_ranks: int = 0,
        tells_kept: bool = False,
    ) -> None:
        state = state or AssemblerState()
        self._digests_from_ranks = digests_from_ranks
        self._digests = IterationDigests(state.digests)
        self._kept = KeptCalls(is_told=tells_kept)
        self.counts = AssemblerCounts()
        self._job, self._host, self._clock = job, host, clock
        self._table = CommunicatorTable(state.communicators)
        self._sequences = state.sequences
        self._open = OpenCalls(state.open_records, state.uncertain, state.failed)
        self._pending_records = PendingRecords(state.pending_records)
        self._groups = GroupReader(state.pending_groups)
        self._destroyed = state.destroyed
        self._promised_ns = state.promised_ns
        self._has_lost = state.has_lost
        self._marked_attempts = state.marked_attempts
        self._first_ordinal = state.first_ordinal
        self._closing: set[int] = set()

    @property
    def communicators(self) -> Sequence[Communicator]:
        """Every communicator joined so far, in the order in which they were first seen."""
        return self._table.known

    @property
    def waits_for_others(self) -> bool:
        """Some ranks have waited for long to join the others, and do so still."""
        return any(known.name == JOINING and not known.closed for known in self._table.known)

    @property
    def tells_iterations(self) -> bool:
        """Whether there is something new to say when an iteration is over, and little before.

        So it is from the first iterations on, which are told call by call: by then nobody waits for a second.
        """
        return self._digests.have_begun or bool(self._large_attempts())

    def callers(self) -> dict[tuple[int, int], set[int]]:
        """By (attempt, rank): the backends (positions in `BACKENDS`) on which a call of it was seen."""
        seen: dict[tuple[int, int], set[int]] = {}
        for sequence in self._sequences:
            number, rank, _, _ = call_rows.sequence_parts(sequence)
            known = self._table.known[number]
            seen.setdefault((known.attempt, rank), set()).add(known.backend)
        return seen

    def state(self) -> AssemblerState:
        """What must be saved together with the events given out so far."""
        return AssemblerState(
            communicators=self._table.known,
            sequences=self._sequences,
            open_records=self._open.records,
            uncertain=self._open.uncertain,
            failed=self._open.failed,
            pending_records=self._pending_records.state(),
            pending_groups=self._groups.pending,
            destroyed=self._destroyed,
            promised_ns=self._promised_ns,
            has_lost=self._has_lost,
            marked_attempts=self._marked_attempts,
            digests=self._digests.state(),
            first_ordinal=self._first_ordinal,
        )

    def note_dropped(self, communicator: str, calls: int, reported: int) -> None:
        """Batches had to be dropped on their way, with so many calls, and reports of so many lost before."""
        for number, known in enumerate(self._table.known):
            if known.id == communicator:
                known.drop(calls)
                known.dropped_unsaid += reported
                if known.closed:
                    self._closing.add(number)  # its last word is said again, with the right count

    def note_unnamed(self, attempt: int, rank: int, calls: int) -> None:
        """A rank made so many calls on communicators whose making nobody saw: the world's data say that they lack."""
        self.counts.unnamed += calls
        self.counts.say(
            f"rank {rank} calls NCCL on communicators that were made where the shim did not look: "
            "those calls are counted as lost"
        )
        world = self._table.world(attempt)
        if world is not None:
            self._table.known[world].drop(calls)

    def settle(
        self,
        records_by_ring: Sequence[RingRecords],
        now_ns: int,
        *,
        gone: Iterable[tuple[int, int]] = (),
        local_ranks: Iterable[tuple[int, int]] = (),
        ended: bool = False,
        running: Mapping[Operation, Transfers],
        uses_representatives: bool = False,
    ) -> list[Topology | CallBatch | Markers]:
        """Take in what was read, and give out what is final now, in the order in which it must be sent.

        Parameters
        ----------
        records_by_ring
            What every ring gave since the last time.
        now_ns
            Monotonic time.
        gone
            (attempt, rank) of processes that had left before the rings were read: nothing of theirs will complete.
        local_ranks
            (attempt, rank) of all processes of this host: a communicator is over when all of them have left it.
        ended
            The job is over: every open call is given up.
        running
            How far the calls are that were seen to run.
        uses_representatives
            One rank may represent the others in small calls that all ranks here made alike.

        """
        batch = self._pending_records.with_new(records_by_ring, now_ns)
        kinds = batch.records.view(CALL)["kind"]
        self._take_groups(batch, kinds)
        # Another thread's ring may still hold completions from before: a destroyed group is over one look later.
        destroyed, self._destroyed = self._destroyed, _destroyed_handles(batch.records[kinds == rings.DESTROY])
        if ended:
            destroyed, self._destroyed = destroyed + self._destroyed, []
        must_wait = np.zeros(len(kinds), np.bool_)
        finished, numbers = self._take_calls(batch, kinds, now_ns, must_wait)
        markers = self._take_markers(batch, kinds, must_wait)
        self._take_edges(batch, kinds, must_wait)
        self._hold(batch[must_wait], FOREVER_NS if ended else now_ns)
        self._note_loss(records_by_ring, now_ns)
        self._note_left(set(destroyed), set(gone))
        given_up, of_given_up = self._give_up(ended, running)
        self._note_closing(set(local_ranks), ended)
        self._note_missing()
        announced: list[Topology | CallBatch | Markers] = [
            known.topology(self._job, self._host, self._clock)
            for known in self._table.known
            if known.needs_announcing()
        ]
        rows, numbers = np.concatenate((finished, given_up)), np.concatenate((numbers, of_given_up))
        told = self._told(rows, numbers, markers, set(local_ranks) if ended else set(gone))
        self._kept.keep(told.behind, told.of_behind, now_ns)
        cut = self._cut()
        chosen = self._representatives(told.calls, told.of_calls, now_ns) if uses_representatives else None
        batches = cut(told.calls, told.of_calls, representatives=chosen)
        digests = cut(told.digests, told.of_digests, told_as=call_rows.ToldAs.DIGESTS)
        return [*announced, *batches, *digests, *markers]

    def ask_for_kept(self, until_ns: int, now_ns: int) -> None:
        """The calls behind digests are to be told, the latest of before and those until then; monotonic time."""
        worlds = [known for known in self._table.known if known.is_world]
        shares = [CALLS_OF_A_JOB * len(known.host_ranks) // max(known.world_size, 1) for known in worlds[-1:]]
        self._kept.ask(until_ns, now_ns, max(shares, default=0))

    def kept(self, *, ended: bool = False) -> list[CallBatch]:
        """Those that are told now, all where the job is over. Their times are long promised, and nobody judges them."""
        rows, numbers = self._kept.take(MOST_KEPT if ended else MOST_AT_ONCE)
        return list(self._cut()(rows, numbers, told_as=call_rows.ToldAs.KEPT))

    def _cut(self) -> Callable[..., Iterable[CallBatch]]:
        return partial(call_rows.batches, known=self._table.known, job=self._job, host=self._host, clock=self._clock)

    def _told(self, rows: Records, numbers: Int64Array, markers: Sequence[Markers], over: set[tuple[int, int]]) -> Told:
        """What is said of these calls: where there are many ranks, of iterations instead of calls."""
        large = self._large_attempts()
        if not large:
            return Told.one_by_one(rows, numbers)
        marks = [mark for event in markers if event.attempt in large for mark in marks_of(event, self._clock)]
        attempts = np.array([known.attempt for known in self._table.known], np.int64)
        return self._digests.take(rows, numbers, attempts, marks, self._open.oldest_collectives(), over)

    def _large_attempts(self) -> set[int]:
        """Those with so many ranks that iterations are told of."""
        worlds = [known for known in self._table.known if known.is_world]
        return {known.attempt for known in worlds if 0 < self._digests_from_ranks <= known.world_size}

    def promise(self, until_ns: int, now_ns: int, running: Mapping[Operation, Transfers]) -> list[Progress]:
        """One progress per communicator: every row that ended by `until_ns` has been given out by `settle`.

        `running` says how far open calls were at `now_ns`, in monotonic time.
        """
        self._promised_ns = max(self._promised_ns, until_ns)
        time_ns = self._clock.to_unix_ns(self._promised_ns)
        shown = self._open.shown(self._table, self._clock, running, now_ns)
        pairs = pair_progress(self._table, self._sequences)
        promised = []
        for number, known in enumerate(self._table.known):
            if known.closed and number not in self._closing:
                continue
            known.closed = number in self._closing
            promised.append(
                Progress(
                    job=self._job,
                    attempt=known.attempt,
                    time_ns=time_ns,
                    host=self._host,
                    communicator=known.id,
                    ranks=tuple(
                        rank_progress(self._sequences, number, rank, shown, pairs) for rank in sorted(known.host_ranks)
                    ),
                    announced=self._table.ids(known.attempt) if known.is_world else (),
                    dropped_total=known.dropped_total,
                    marks_iterations=known.attempt in self._marked_attempts,
                    sees_completion=known.sees_completion,
                    captured_total=known.captured_total,
                    closed=known.closed,
                    edges=known.take_edges(),
                )
            )
        self._closing.clear()
        return promised

    def _take_groups(self, batch: RecordColumns, kinds: npt.NDArray[np.uint8]) -> None:
        has_joined = False
        is_group = np.isin(kinds, (rings.GROUP, rings.MEMBERS, rings.PLACE))
        for at in np.flatnonzero(is_group).tolist():
            try:
                joined = self._groups.take(batch.records[at : at + 1], int(batch.attempts[at]))
                if joined is not None:
                    joined.communicator.first_ordinal = self._first_ordinal
                    has_joined |= self._table.join(joined.communicator, joined.rank)
            except InvalidEvent as error:
                self.counts.refuse(str(error))
        if has_joined:
            self._table.index()

    def _take_edges(self, batch: RecordColumns, kinds: npt.NDArray[np.uint8], must_wait: BoolArray) -> None:
        """Where the calls of communicators send; what cannot be an edge is refused."""
        at = np.flatnonzero(kinds == rings.EDGE)
        calls = batch.records[at].view(CALL)
        numbers = self._table.numbers(calls)
        has_joined = self._table.has_joined(numbers, calls)
        must_wait[at[~has_joined]] = True
        edges = batch.records[at[has_joined]].view(rings.EDGE_BODY)
        for number, edge in zip(numbers[has_joined].tolist(), edges, strict=True):
            known = self._table.known[number]
            algorithm, channel = int(edge["algorithm"]), int(edge["channel"])
            ends = int(edge["index"]), int(edge["peer"])
            is_edge = algorithm < len(ALGORITHMS) and channel < CHANNELS and edge["direction"] in (SEND, RECV)
            if is_edge and all(0 <= end < len(known.members) for end in ends):
                known.edges.append((algorithm, channel, *(ends if edge["direction"] == SEND else ends[::-1])))
            else:
                self.counts.refuse(
                    f"an edge from place {ends[0]} to {ends[1]} of {len(known.members)}, channel {channel}"
                )

    def _take_calls(
        self, batch: RecordColumns, kinds: npt.NDArray[np.uint8], now_ns: int, must_wait: BoolArray
    ) -> tuple[Records, Int64Array]:
        """The rows that are final now and the number of each one's communicator."""
        raw = batch.records
        at = np.flatnonzero((kinds == rings.LAUNCH) | (kinds == rings.COMPLETE))
        calls = raw[at].view(CALL)
        is_sane = _is_sane(calls, now_ns)
        if not is_sane.all():
            self.counts.refuse(_describe(calls[~is_sane][0]), int((~is_sane).sum()))
            at, calls = at[is_sane], calls[is_sane]
        calls["source"] = np.where(calls["source"] < len(SOURCES), calls["source"], 0)
        numbers = self._table.numbers(calls)
        has_joined = self._table.has_joined(numbers, calls)
        must_wait[at[~has_joined]] = True
        at, calls, numbers = at[has_joined], calls[has_joined], numbers[has_joined]
        is_wrong = self._table.name_peers(numbers, calls)
        if is_wrong.any():
            self.counts.refuse(f"{_describe(calls[is_wrong][0])}: no such peer", int(is_wrong.sum()))
            at, calls, numbers = at[~is_wrong], calls[~is_wrong], numbers[~is_wrong]
        raw[at] = calls.view(rings.RAW)
        if len(calls) == 0:
            return call_rows.no_rows(), np.empty(0, np.int64)
        is_launch = calls["kind"] == rings.LAUNCH
        self._note_sources(numbers, calls, is_launch)
        sees_end = self._table.sees_end(numbers, calls) | ((calls["flags"] & rings.TIMED) != 0)
        self._note_launches(call_rows.sequence_keys(numbers[is_launch], calls[is_launch]), calls[is_launch])
        is_final = is_launch & (~sees_end | ((calls["flags"] & rings.CAPTURED) != 0))
        final = calls[is_final]
        final["start_ns"] = 0
        final["end_ns"] = 0
        self._open.launch(raw[at[is_launch & ~is_final]])
        completes = np.flatnonzero(~is_launch & sees_end)  # elsewhere a Work completes at launch: that says nothing
        is_failed = (calls["flags"][completes] & rings.FAILED) != 0
        failures, completes = completes[is_failed], completes[~is_failed]
        must_wait[at[failures[self._open.fail(calls[failures])]]] = True
        rows, is_orphan = self._open.complete(calls[completes])
        of_rows = numbers[completes[~is_orphan]]
        orphans = completes[is_orphan]
        # Rings lose records, and a launch that is not there at the second look is lost; its completion repeats it.
        is_second_look = batch.since_ns[at[orphans]] < now_ns
        is_alone = is_second_look & (calls["launch_ns"][orphans] > 0) & self._has_lost
        must_wait[at[orphans[~is_alone]]] = True
        alone = orphans[is_alone]
        self._note_launches(call_rows.sequence_keys(numbers[alone], calls[alone]), calls[alone])
        rows = np.concatenate((rows, calls[alone]))
        of_rows = np.concatenate((of_rows, numbers[alone]))
        self._note_completions(call_rows.sequence_keys(of_rows, rows), rows)
        return np.concatenate((final, rows)), np.concatenate((numbers[is_final], of_rows))

    def _note_sources(self, numbers: Int64Array, calls: Records, is_launch: BoolArray) -> None:
        is_captured = is_launch & ((calls["flags"] & rings.CAPTURED) != 0)
        for number in np.unique(numbers).tolist():
            known = self._table.known[number]
            is_here = numbers == number
            known.sources = sorted({*known.sources, *np.unique(calls["source"][is_here]).tolist()})
            known.captured_total += int((is_captured & is_here).sum())

    def _representatives(self, rows: Records, numbers: Int64Array, now_ns: int) -> Representatives:
        """Which of the rows that are final stand for others."""
        oldest_ns = self._open.oldest_launch_ns
        chosen = choose_representatives(rows, numbers, self._table.known, now_ns if oldest_ns is None else oldest_ns)
        self.counts.represented_rows += int(chosen.is_represented.sum())
        return chosen

    def _note_launches(self, sequences: Int64Array, launches: Records) -> None:
        for number, seq in _by_sequence(sequences, launches["seq"]):
            sequence = self._sequences.setdefault(number, CallSequence())
            first = int(seq.min())
            sequence.first_seq = first if sequence.first_seq < 0 else min(sequence.first_seq, first)
            sequence.last_launched = max(sequence.last_launched, int(seq.max()))
            sequence.launched += len(seq)

    def _note_completions(self, sequences: Int64Array, rows: Records) -> None:
        self.counts.late_rows += int(((rows["end_ns"] > 0) & (rows["end_ns"] <= self._promised_ns)).sum())
        last_ends_ns = {number: self._sequences[number].last_end_ns for number in np.unique(sequences).tolist()}
        call_rows.gloo_starts(sequences, rows, last_ends_ns)
        for number, seq in _by_sequence(sequences, rows["seq"]):
            sequence = self._sequences[number]
            sequence.last_end_ns = last_ends_ns[number]
            sequence.last_completed = max(sequence.last_completed, int(seq.max()))

    def _take_markers(self, batch: RecordColumns, kinds: npt.NDArray[np.uint8], must_wait: BoolArray) -> list[Markers]:
        at = np.flatnonzero(kinds == rings.MARKER)
        found = read_markers(batch, at, self._table, self._clock)
        for reason in found.refused:
            self.counts.refuse(reason)
        must_wait[found.too_early] = True
        known = self._table.known
        for number in sorted(found.by_world):
            attempt = known[number].attempt
            if attempt not in self._marked_attempts and any(
                name == OPTIMIZER_STEP for _, _, name, _ in found.by_world[number]
            ):
                self._marked_attempts.append(attempt)
        return [markers_event(self._job, self._host, known[n], found.by_world[n]) for n in sorted(found.by_world)]

    def _hold(self, batch: RecordColumns, now_ns: int) -> None:
        """Keep for the next look what cannot be placed; count what has waited too long."""
        calls = batch.records.view(CALL)
        for_a_launch = self._table.has_joined(self._table.numbers(calls), calls)
        for_a_launch &= calls["kind"] == rings.COMPLETE
        over, was_for_a_launch = self._pending_records.hold(batch, for_a_launch, now_ns)
        self.counts.unmatched += int(was_for_a_launch.sum())
        unjoined = over[~was_for_a_launch]
        if len(unjoined.records) == 0:
            return
        calls = unjoined.records.view(CALL)
        self.counts.refuse(
            f"{len(calls)} records name a communicator that their rank never joined, the first one rank "
            f"{int(calls['rank'][0])} and communicator {bytes(calls['handle'][0]).hex()}",
            len(calls),
        )
        for attempt in np.unique(unjoined.attempts).tolist():
            world = self._table.world(attempt)
            if world is not None:
                is_lost = (unjoined.attempts == attempt) & (calls["kind"] == rings.LAUNCH)
                self._table.known[world].drop(int(is_lost.sum()))

    def _note_loss(self, records_by_ring: Sequence[RingRecords], now_ns: int) -> None:
        """After a loss, a call that is open here may have completed in the part that was lost."""
        for ring in records_by_ring:
            if ring.lost:
                self._has_lost = True
                self.counts.lost_records += ring.lost
                ranks = {ring.rank, *np.unique(ring.records.view(CALL)["rank"]).tolist()}
                self._open.doubt(ranks, _first_time(ring.records, now_ns))

    def _note_left(self, destroyed: set[tuple[bytes, int]], gone: set[tuple[int, int]]) -> None:
        for known in self._table.known:
            for rank in known.host_ranks:
                has_left = (known.handle, rank) in destroyed or (known.attempt, rank) in gone
                if has_left and rank not in known.left:
                    known.left.append(rank)

    def _give_up(self, ended: bool, running: Mapping[Operation, Transfers]) -> tuple[Records, Int64Array]:
        """Rows, without an end, of the calls that can no longer complete; uncertain ones count as lost."""
        last_completed = {number: sequence.last_completed for number, sequence in self._sequences.items()}
        rows, numbers, lost = self._open.give_up(self._table, last_completed, ended, running)
        for number in lost.tolist():
            self._table.known[number].drop(1)
        return rows, numbers

    def _note_closing(self, local: set[tuple[int, int]], ended: bool) -> None:
        for number, known in enumerate(self._table.known):
            # Others may yet join it; whoever has not waited to join will not.
            others = local if known.name != JOINING else set()
            here = {rank for attempt, rank in others if attempt == known.attempt and rank in known.members}
            if not known.closed and (ended or here | set(known.host_ranks) <= set(known.left)):
                self._closing.add(number)

    def _note_missing(self) -> None:
        for number, sequence in self._sequences.items():
            if not sequence.has_gap(self._has_lost):
                continue
            at = number >> call_rows.COMMUNICATOR_SHIFT
            for _ in range(2 if at in self._closing else 1):  # there is no later look at one that closes
                self._table.known[at].drop(sequence.newly_missing(self._has_lost))


def _destroyed_handles(records: Records) -> list[tuple[bytes, int]]:
    return [(bytes(record["handle"]), int(record["rank"])) for record in records.view(CALL)]


def _is_sane(calls: Records, now_ns: int) -> BoolArray:
    """Which calls can be: a whole sequence number and peer, and no time in the future."""
    is_pair = calls["direction"] != 0
    sane: BoolArray = (calls["seq"] >= 0) & (calls["seq"] <= MAX_SEQ) & (calls["direction"] < len(DIRECTIONS))
    sane &= ~is_pair | ((calls["peer"] >= 0) & (calls["peer"] <= call_rows.MAX_PEER))
    for name in ("launch_ns", "start_ns", "end_ns"):
        sane &= calls[name] <= np.uint64(now_ns + FUTURE_NS)
    return sane


def _describe(call: np.void) -> str:
    return (
        f"a call of rank {int(call['rank'])} cannot be: seq {int(call['seq'])}, peer {int(call['peer'])}, "
        f"direction {int(call['direction'])}, launch {int(call['launch_ns'])}, end {int(call['end_ns'])}"
    )


def _by_sequence(sequences: Int64Array, seq: Int64Array) -> Iterable[tuple[int, Int64Array]]:
    if len(sequences) == 0:
        return []
    order = np.argsort(sequences, kind="stable")
    sequences = sequences[order]
    edges = np.flatnonzero(sequences[1:] != sequences[:-1]) + 1
    return zip(sequences[np.concatenate(([0], edges))].tolist(), np.split(seq[order], edges), strict=True)


def _first_time(records: Records, now_ns: int) -> int:
    """When the first call among `records` was launched or ended: what is lost before them is older."""
    calls = records.view(CALL)
    is_call = (calls["kind"] == rings.LAUNCH) | (calls["kind"] == rings.COMPLETE)
    if not is_call.any():
        return now_ns
    first = calls[is_call][0]
    return int(first["end_ns"]) if int(first["kind"]) == rings.COMPLETE else int(first["launch_ns"])
