"""What the ranks of one host have done on every communicator: records in, rows and promises out.

Pure: the time is an argument and nothing here opens a file. All state is in `LedgerState`, which is saved with the
events that came of it, so that an agent that starts again goes on exactly where its saved events end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from collector import rows as call_rows
from collector.communicators import Communicator, GroupReader, Lane, PendingGroup, sees
from collector.rows import Int64Array
from collector.sources import rings
from collector.sources.rings import CALL, MARKER_BODY, RAW, Records
from pacehound.calls import DIRECTIONS, DTYPES, OPS, SOURCES, CallBatch, Sees
from pacehound.clock import ClockPair
from pacehound.errors import InvalidEvent
from pacehound.events import MARKER_NAMES, OPTIMIZER_STEP, Markers, OpenCall, Progress, RankProgress, Topology

OPEN_CALLS_SHOWN = 4
MAX_OPEN = 1 << 17
"""Open calls that are remembered; beyond it the oldest are given up (a script that never waits for its sends)."""
MAX_HELD = 1 << 17
ORPHAN_HELD_NS = 2_000_000_000
"""How long a completion waits for its launch: the launch was written first and comes with the next look."""
STRANGER_HELD_NS = 30_000_000_000
"""How long a call waits for the group it belongs to."""
FUTURE_NS = 1_000_000_000
"""A time this far ahead of the clock is no time."""
FOREVER_NS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What was read from one ring: by which attempt, and how many records were lost before the first of them."""

    attempt: int
    rank: int
    records: Records
    lost: int = 0


class LedgerState(msgspec.Struct, kw_only=True):
    """Everything the ledger knows, as it is saved."""

    communicators: list[Communicator] = []
    lanes: dict[int, Lane] = {}
    open_records: bytes = b""
    uncertain: list[bytes] = []
    held: bytes = b""
    held_attempts: list[int] = []
    held_since_ns: list[int] = []
    pending: dict[bytes, PendingGroup] = {}
    destroyed: list[tuple[bytes, int]] = []
    promised_ns: int = 0
    has_lost: bool = False
    first_ordinal: int = 0
    """Where batches are counted from: above 0 after an outbox was lost, so that no number is used twice."""


@dataclass(slots=True)
class LedgerCounts:
    """What did not go the ordinary way, since this process started."""

    refused: int = 0
    unmatched: int = 0
    late_rows: int = 0
    lost_records: int = 0
    reasons: list[str] = field(default_factory=list)

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count records that make no sense; the first few reasons are kept for the log."""
        self.refused += count
        if len(self.reasons) < 20:
            self.reasons.append(reason)


class Ledger:
    """The calls, groups and markers of one host and job.

    Parameters
    ----------
    job, host
        As in the events.
    clock
        Maps the rings' monotonic times to Unix time.
    state
        What an earlier agent of the same run had saved.

    """

    def __init__(self, job: str, host: str, clock: ClockPair, state: LedgerState | None = None) -> None:
        state = state or LedgerState()
        self.counts = LedgerCounts()
        self._job, self._host, self._clock = job, host, clock
        self._communicators = state.communicators
        self._lanes = state.lanes
        self._groups = GroupReader(state.pending)
        open_records = np.frombuffer(state.open_records, RAW)
        self._open = dict(
            zip(call_rows.join_keys(open_records.view(CALL)), open_records.tolist(), strict=True)
        )  # join key -> PH_LAUNCH record
        self._uncertain = set(state.uncertain)
        self._held = np.frombuffer(state.held, RAW)
        self._held_attempts = np.array(state.held_attempts, np.int64)
        self._held_since_ns = np.array(state.held_since_ns, np.int64)
        self._destroyed = [(bytes(handle), rank) for handle, rank in state.destroyed]
        self._promised_ns = state.promised_ns
        self._has_lost = state.has_lost
        self._first_ordinal = state.first_ordinal
        self._closing: set[int] = set()
        self._index()

    @property
    def communicators(self) -> Sequence[Communicator]:
        """Every communicator joined so far, in the order in which they were first seen."""
        return self._communicators

    def state(self) -> LedgerState:
        """What must be saved together with the events given out so far."""
        return LedgerState(
            communicators=self._communicators,
            lanes=self._lanes,
            open_records=b"".join(self._open.values()),
            uncertain=sorted(self._uncertain),
            held=self._held.tobytes(),
            held_attempts=self._held_attempts.tolist(),
            held_since_ns=self._held_since_ns.tolist(),
            pending=self._groups.pending,
            destroyed=self._destroyed,
            promised_ns=self._promised_ns,
            has_lost=self._has_lost,
            first_ordinal=self._first_ordinal,
        )

    def note_dropped(self, communicator: str, calls: int, reported: int) -> None:
        """Batches had to be dropped on their way, with so many calls, and reports of so many lost before."""
        for known in self._communicators:
            if known.id == communicator:
                known.drop(calls)
                known.dropped_unsaid += reported

    def settle(
        self,
        intakes: Iterable[Intake],
        now_ns: int,
        *,
        gone: Iterable[tuple[int, int]] = (),
        local_ranks: Iterable[tuple[int, int]] = (),
        ended: bool = False,
    ) -> list[Topology | CallBatch | Markers]:
        """Take in what was read, and give out what is final now, in the order in which it must be sent.

        Parameters
        ----------
        intakes
            What every ring gave since the last time.
        now_ns
            Monotonic time.
        gone
            (attempt, rank) of processes that had left before the rings were read: nothing of theirs will complete.
        local_ranks
            (attempt, rank) of all processes of this host: a communicator is over when all of them have left it.
        ended
            The job is over: every open call is given up.

        """
        intakes = list(intakes)
        # A rank's last records may stand in several rings; its destroyed groups are closed one look later.
        destroyed, self._destroyed = self._destroyed, []
        records, attempts, since_ns = self._join_held(intakes, now_ns)
        kinds = records.view(CALL)["kind"]
        self._take_groups(records, attempts, kinds)
        self._take_destroys(records, kinds)
        if ended:
            destroyed, self._destroyed = destroyed + self._destroyed, []
        is_held = np.zeros(len(records), np.bool_)
        finished, communicator = self._take_calls(records, kinds, now_ns, is_held)
        markers = self._take_markers(records, attempts, kinds, is_held)
        self._hold(records, attempts, since_ns, is_held, FOREVER_NS if ended else now_ns)
        self._note_loss(intakes, now_ns)
        self._note_left(destroyed, gone)
        given_up, of_given_up = self._give_up(ended)
        if len(given_up):
            finished = np.concatenate((finished, given_up))
            communicator = np.concatenate((communicator, of_given_up))
        self._note_closing(local_ranks, ended)
        self._note_missing()
        sent: list[Topology | CallBatch | Markers] = list(self._announce())
        sent += call_rows.batches(
            finished, communicator, self._communicators, job=self._job, host=self._host, clock=self._clock
        )
        return sent + markers

    def promise(self, until_ns: int) -> list[Progress]:
        """One progress per communicator: every row that ended by `until_ns` has been given out by `settle`."""
        self._promised_ns = max(self._promised_ns, until_ns)
        time_ns = self._clock.to_unix_ns(self._promised_ns)
        open_calls = self._open_calls()
        promised = []
        for number, known in enumerate(self._communicators):
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
                    ranks=tuple(self._rank_progress(number, rank, open_calls) for rank in sorted(known.host_ranks)),
                    announced=self._announced(known.attempt) if known.is_world else (),
                    dropped_total=known.dropped_total,
                    closed=known.closed,
                )
            )
        if self._closing:
            self._lanes = {
                number: lane
                for number, lane in self._lanes.items()
                if number >> call_rows.COMMUNICATOR_SHIFT not in self._closing
            }
            self._closing.clear()
        return promised

    # How records are sorted out.

    def _index(self) -> None:
        """Lookup tables: handle -> number of the communicator, and which ranks have joined which."""
        handles = np.frombuffer(b"".join(c.handle for c in self._communicators), np.uint64).reshape(-1, 2)
        order = np.argsort(handles[:, 0], kind="stable")
        self._handle_high, self._handle_low = handles[order, 0], handles[order, 1]
        self._number_at = order.astype(np.int64)
        self._sees_end = np.array(
            [[bool(sees(source, c.backend) & Sees.END) for source in range(len(SOURCES))] for c in self._communicators],
            np.bool_,
        ).reshape(-1, len(SOURCES))
        self._joined = np.array(
            sorted(
                call_rows.collective_lane(n, rank) for n, c in enumerate(self._communicators) for rank in c.host_ranks
            ),
            np.int64,
        )

    def _numbers(self, handles: Records) -> Int64Array:
        """The number of each record's communicator, -1 where it is not known."""
        if len(self._communicators) == 0:
            return np.full(len(handles), -1, np.int64)
        at = np.searchsorted(self._handle_high, handles["handle_high"])
        at = np.minimum(at, len(self._handle_high) - 1)
        is_known = (self._handle_high[at] == handles["handle_high"]) & (self._handle_low[at] == handles["handle_low"])
        numbers: Int64Array = np.where(is_known, self._number_at[at], -1)
        return numbers

    def _join_held(self, intakes: list[Intake], now_ns: int) -> tuple[Records, Int64Array, Int64Array]:
        parts = [intake for intake in intakes if len(intake.records)]
        records = np.concatenate([self._held, *(intake.records for intake in parts)])
        attempts = np.concatenate([self._held_attempts, *(np.full(len(i.records), i.attempt, np.int64) for i in parts)])
        since_ns = np.concatenate([self._held_since_ns, np.full(len(records) - len(self._held), now_ns, np.int64)])
        return records, attempts, since_ns

    def _hold(
        self, records: Records, attempts: Int64Array, since_ns: Int64Array, is_held: np.ndarray, now_ns: int
    ) -> None:
        """Keep for the next look what waits for a group or a launch, as long as that may still come."""
        calls = records.view(CALL)
        is_orphan = (calls["kind"] == rings.COMPLETE) & (self._numbers(calls) >= 0)
        deadline_ns = since_ns + np.where(is_orphan, ORPHAN_HELD_NS, STRANGER_HELD_NS)
        is_late = is_held & (deadline_ns <= now_ns)
        kept = np.flatnonzero(is_held & ~is_late)
        too_many = kept[: max(len(kept) - MAX_HELD, 0)]
        is_late[too_many] = True
        kept = kept[len(too_many) :]
        self.counts.unmatched += int((is_late & is_orphan).sum())
        strangers = np.flatnonzero(is_late & ~is_orphan)
        if len(strangers):
            self.counts.refuse(
                f"{len(strangers)} records of rank {int(calls['rank'][strangers[0]])} name communicator "
                f"{bytes(calls['handle'][strangers[0]]).hex()}, which that rank never joined",
                len(strangers),
            )
            for attempt in np.unique(attempts[strangers]).tolist():
                world = self._world(attempt)
                launches = (attempts[strangers] == attempt) & (calls["kind"][strangers] == rings.LAUNCH)
                if world is not None:
                    self._communicators[world].drop(int(launches.sum()))
        self._held, self._held_attempts, self._held_since_ns = records[kept], attempts[kept], since_ns[kept]

    def _take_groups(self, records: Records, attempts: Int64Array, kinds: np.ndarray) -> None:
        has_joined = False
        for at in np.flatnonzero((kinds == rings.GROUP) | (kinds == rings.MEMBERS)).tolist():
            try:
                joined = self._groups.take(records[at : at + 1], int(attempts[at]))
                if joined is None:
                    continue
                has_joined |= self._join(joined.communicator, joined.rank)
            except InvalidEvent as error:
                self.counts.refuse(str(error))
        if has_joined:
            self._index()

    def _join(self, communicator: Communicator, rank: int) -> bool:
        for known in self._communicators:
            if known.handle[:8] != communicator.handle[:8]:
                continue
            if known.handle != communicator.handle or known.members != communicator.members:
                raise InvalidEvent(
                    f"rank {rank} says {communicator.id} has members {list(communicator.members)}, "
                    f"others say {known.id} has {list(known.members)}"
                )
            if rank not in known.host_ranks:
                known.host_ranks.append(rank)
                known.closed = False
                return True
            return False
        communicator.host_ranks.append(rank)
        communicator.first_ordinal = self._first_ordinal
        self._communicators.append(communicator)
        return True

    def _take_destroys(self, records: Records, kinds: np.ndarray) -> None:
        for record in records[kinds == rings.DESTROY].view(CALL):
            self._destroyed.append((bytes(record["handle"]), int(record["rank"])))

    def _take_calls(
        self, records: Records, kinds: np.ndarray, now_ns: int, is_held: np.ndarray
    ) -> tuple[Records, Int64Array]:
        """The rows that are final now and the number of each one's communicator."""
        at = np.flatnonzero((kinds == rings.LAUNCH) | (kinds == rings.COMPLETE))
        calls = records.view(CALL)[at]
        is_sane = _is_sane(calls, now_ns)
        if not is_sane.all():
            odd = calls[~is_sane][0]
            self.counts.refuse(
                f"a call of rank {int(odd['rank'])} cannot be: seq {int(odd['seq'])}, peer {int(odd['peer'])}, "
                f"direction {int(odd['direction'])}, launch {int(odd['launch_ns'])}, end {int(odd['end_ns'])}",
                int((~is_sane).sum()),
            )
            at, calls = at[is_sane], calls[is_sane]
        calls["source"] = np.where(calls["source"] < len(SOURCES), calls["source"], 0)
        numbers = self._numbers(calls)
        lanes_of_ranks = (numbers << call_rows.COMMUNICATOR_SHIFT) | (
            calls["rank"].astype(np.int64) << call_rows.RANK_SHIFT
        )
        has_joined = (numbers >= 0) & _is_in(lanes_of_ranks, self._joined)
        is_held[at[~has_joined]] = True
        at, calls, numbers = at[has_joined], calls[has_joined], numbers[has_joined]
        if len(calls) == 0:
            return call_rows.no_rows(), np.empty(0, np.int64)
        is_launch = calls["kind"] == rings.LAUNCH
        sees_end = self._sees_end[numbers, calls["source"]]
        is_captured = (calls["flags"] & rings.CAPTURED) != 0
        self._note_launches(call_rows.lane_numbers(numbers[is_launch], calls[is_launch]), calls[is_launch])
        is_final = is_launch & (is_captured | ~sees_end)
        final = calls[is_final]
        final["start_ns"] = 0
        final["end_ns"] = 0
        is_opened = is_launch & ~is_final
        opened = calls[is_opened]
        raw = records[at]
        self._open.update(zip(call_rows.join_keys(opened), raw[is_opened].tolist(), strict=True))
        is_complete = ~is_launch & sees_end
        matched, is_orphan = self._match(calls[is_complete])
        orphans = np.flatnonzero(is_complete)[is_orphan]
        is_held[at[orphans]] = True
        of_matched = numbers[np.flatnonzero(is_complete)[~is_orphan]]
        self._note_completions(call_rows.lane_numbers(of_matched, matched), matched)
        return np.concatenate((final, matched)), np.concatenate((numbers[is_final], of_matched))

    def _match(self, completes: Records) -> tuple[Records, np.ndarray]:
        """Rows of the completions whose launch is open, and which completions have none."""
        keys = call_rows.join_keys(completes)
        found = [self._open.pop(key, b"") for key in keys]
        is_orphan = np.array([not record for record in found], np.bool_)
        if self._uncertain:
            self._uncertain.difference_update(keys)
        launches = np.frombuffer(b"".join(found), RAW).view(CALL)
        return call_rows.completed_rows(launches, completes[~is_orphan]), is_orphan

    def _note_launches(self, lanes: Int64Array, launches: Records) -> None:
        for number, seq in _by_lane(lanes, launches["seq"]):
            lane = self._lane(number)
            first = int(seq.min())
            lane.first_seq = first if lane.first_seq < 0 else min(lane.first_seq, first)
            lane.last_launched = max(lane.last_launched, int(seq.max()))
            lane.launched += len(seq)

    def _note_completions(self, lanes: Int64Array, rows: Records) -> None:
        self.counts.late_rows += int(((rows["end_ns"] > 0) & (rows["end_ns"] <= self._promised_ns)).sum())
        last_ends_ns = {number: self._lane(number).last_end_ns for number in np.unique(lanes).tolist()}
        call_rows.gloo_starts(lanes, rows, last_ends_ns)
        for number, end_ns in last_ends_ns.items():
            self._lane(number).last_end_ns = end_ns
        for number, seq in _by_lane(lanes, rows["seq"]):
            lane = self._lane(number)
            lane.last_completed = max(lane.last_completed, int(seq.max()))

    def _lane(self, number: int) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = Lane()
        return lane

    def _take_markers(
        self, records: Records, attempts: Int64Array, kinds: np.ndarray, is_held: np.ndarray
    ) -> list[Markers]:
        columns: dict[int, list[tuple[int, int, str, int]]] = {}
        for at in np.flatnonzero(kinds == rings.MARKER).tolist():
            marker = records[at : at + 1].view(MARKER_BODY)[0]
            code, step, time_ns = int(marker["marker"]), int(marker["step"]), int(marker["time_ns"])
            if code >= len(MARKER_NAMES) or step < 0 or time_ns >= 1 << 62:
                self.counts.refuse(f"a marker of rank {int(marker['rank'])} cannot be: code {code}, step {step}")
                continue
            if MARKER_NAMES[code] == OPTIMIZER_STEP and int(marker["ordinal"]) != 0:
                continue  # only the process's first optimizer marks the iteration
            world = self._world(int(attempts[at]), int(marker["rank"]))
            if world is None:
                is_held[at] = True
                continue
            columns.setdefault(world, []).append(
                (self._clock.to_unix_ns(time_ns), int(marker["rank"]), MARKER_NAMES[code], step)
            )
        return [
            Markers(
                job=self._job,
                attempt=self._communicators[world].attempt,
                host=self._host,
                communicator=self._communicators[world].id,
                ranks=tuple(rank for _, rank, _, _ in said),
                names=tuple(name for _, _, name, _ in said),
                steps=tuple(step for _, _, _, step in said),
                times_ns=tuple(time_ns for time_ns, _, _, _ in said),
            )
            for world, said in ((world, sorted(said)) for world, said in sorted(columns.items()))
        ]

    # What has been lost, left and given up.

    def _note_loss(self, intakes: list[Intake], now_ns: int) -> None:
        """After a loss, a call that is open here may have completed in the part that was lost."""
        for intake in intakes:
            if intake.lost == 0:
                continue
            self._has_lost = True
            self.counts.lost_records += intake.lost
            until_ns = _first_time(intake.records, now_ns)
            ranks = {intake.rank, *np.unique(intake.records.view(CALL)["rank"]).tolist()}
            for key, record in self._open.items():
                call = np.frombuffer(record, CALL)[0]
                if int(call["rank"]) in ranks and int(call["launch_ns"]) <= until_ns:
                    self._uncertain.add(key)

    def _note_left(self, destroyed: list[tuple[bytes, int]], gone: Iterable[tuple[int, int]]) -> None:
        left = set(destroyed)
        gone = set(gone)
        for known in self._communicators:
            for rank in known.host_ranks:
                has_left = (known.handle, rank) in left or (known.attempt, rank) in gone
                if has_left and rank not in known.left:
                    known.left.append(rank)

    def _give_up(self, ended: bool) -> tuple[Records, Int64Array]:
        """Rows, without an end, of the calls that can no longer complete; uncertain ones count as lost."""
        if not self._open:
            return call_rows.no_rows(), np.empty(0, np.int64)
        keys = list(self._open)
        calls = np.frombuffer(b"".join(self._open.values()), RAW).view(CALL)
        numbers = self._numbers(calls)
        lanes_of_ranks = (numbers << call_rows.COMMUNICATOR_SHIFT) | (
            calls["rank"].astype(np.int64) << call_rows.RANK_SHIFT
        )
        left = np.array(
            sorted(call_rows.collective_lane(n, rank) for n, c in enumerate(self._communicators) for rank in c.left),
            np.int64,
        )
        is_over = np.ones(len(calls), np.bool_) if ended else _is_in(lanes_of_ranks, left)
        excess = len(calls) - MAX_OPEN
        if excess > 0:
            is_over[np.argsort(calls["launch_ns"], kind="stable")[:excess]] = True
        is_uncertain = np.zeros(len(calls), np.bool_)
        if self._uncertain:
            is_uncertain = np.array([key in self._uncertain for key in keys], np.bool_)
            lanes = call_rows.lane_numbers(numbers, calls)
            for at in np.flatnonzero(is_uncertain).tolist():
                is_over[at] |= self._lane(int(lanes[at])).last_completed > int(calls["seq"][at])
        for at in np.flatnonzero(is_over).tolist():
            del self._open[keys[at]]
            self._uncertain.discard(keys[at])
            if is_uncertain[at]:
                self._communicators[int(numbers[at])].drop(1)
        is_row = is_over & ~is_uncertain
        rows = calls[is_row].copy()
        rows["start_ns"] = 0
        rows["end_ns"] = 0
        return rows, numbers[is_row]

    def _note_missing(self) -> None:
        for number, lane in self._lanes.items():
            if not lane.has_gap(self._has_lost):
                continue
            at = number >> call_rows.COMMUNICATOR_SHIFT
            for _ in range(2 if at in self._closing else 1):  # there is no later look at one that closes
                self._communicators[at].drop(lane.newly_missing(self._has_lost))

    def _note_closing(self, local_ranks: Iterable[tuple[int, int]], ended: bool) -> None:
        local = set(local_ranks)
        for number, known in enumerate(self._communicators):
            here = set(known.host_ranks) | {
                r for attempt, r in local if attempt == known.attempt and r in known.members
            }
            if not known.closed and (ended or here <= set(known.left)):
                self._closing.add(number)

    # What is said.

    def _announce(self) -> Iterable[Topology]:
        for known in self._communicators:
            if known.announced_ranks < len(known.host_ranks):
                known.announced_ranks = len(known.host_ranks)
                yield known.topology(self._job, self._host, self._clock)

    def _world(self, attempt: int, rank: int | None = None) -> int | None:
        """The number of an attempt's latest world communicator (that `rank` has joined)."""
        worlds = [
            (known.generation, number)
            for number, known in enumerate(self._communicators)
            if known.is_world and known.attempt == attempt and (rank is None or rank in known.host_ranks)
        ]
        return max(worlds)[1] if worlds else None

    def _announced(self, attempt: int) -> tuple[str, ...]:
        return tuple(sorted(known.id for known in self._communicators if known.attempt == attempt))

    def _open_calls(self) -> dict[tuple[int, int], list[OpenCall]]:
        """The oldest open calls by (communicator, rank); what may have completed unseen is not among them."""
        certain = [record for key, record in self._open.items() if key not in self._uncertain]
        shown: dict[tuple[int, int], list[OpenCall]] = {}
        calls = np.frombuffer(b"".join(certain), RAW).view(CALL)
        numbers = self._numbers(calls)
        order = np.lexsort((calls["seq"], calls["launch_ns"], calls["rank"], numbers))
        pair = (numbers[order] << call_rows.COMMUNICATOR_SHIFT) | calls["rank"][order].astype(np.int64)
        first = np.concatenate(([True], pair[1:] != pair[:-1])) if len(pair) else np.zeros(0, np.bool_)
        begins = np.maximum.accumulate(np.where(first, np.arange(len(pair)), 0)) if len(pair) else np.zeros(0, np.int64)
        for at in order[np.arange(len(pair)) - begins < OPEN_CALLS_SHOWN].tolist():
            call = calls[at]
            shown.setdefault((int(numbers[at]), int(call["rank"])), []).append(
                OpenCall(
                    seq=int(call["seq"]),
                    op=_name(OPS, call["op"]),
                    count=int(call["count"]),
                    dtype=_name(DTYPES, call["dtype"]),
                    launch_ns=self._clock.to_unix_ns(int(call["launch_ns"])),
                    peer=int(call["peer"]),
                    direction=_name(DIRECTIONS, call["direction"]),
                )
            )
        return shown

    def _rank_progress(self, number: int, rank: int, open_calls: dict[tuple[int, int], list[OpenCall]]) -> RankProgress:
        lane = self._lanes.get(call_rows.collective_lane(number, rank)) or Lane()
        return RankProgress(
            rank=rank,
            last_launched=lane.last_launched,
            last_completed=lane.last_completed,
            open=tuple(open_calls.get((number, rank), ())),
        )


def _is_sane(calls: Records, now_ns: int) -> np.ndarray:
    """Which calls can be: a whole sequence number and peer, and no time in the future."""
    latest = np.uint64(now_ns + FUTURE_NS)
    is_pair = calls["direction"] != 0
    sane: np.ndarray = (calls["seq"] >= 0) & (calls["direction"] < len(DIRECTIONS))
    sane &= ~is_pair | ((calls["peer"] >= 0) & (calls["peer"] <= call_rows.MAX_PEER))
    for name in ("launch_ns", "start_ns", "end_ns"):
        sane &= calls[name] <= latest
    return sane


def _is_in(values: Int64Array, known: Int64Array) -> np.ndarray:
    if len(known) == 0:
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: np.ndarray = known[at] == values
    return found


def _by_lane(lanes: Int64Array, seq: np.ndarray) -> Iterable[tuple[int, np.ndarray]]:
    if len(lanes) == 0:
        return []
    order = np.argsort(lanes, kind="stable")
    lanes = lanes[order]
    edges = np.flatnonzero(lanes[1:] != lanes[:-1]) + 1
    return zip(lanes[np.concatenate(([0], edges))].tolist(), np.split(seq[order], edges), strict=True)


def _first_time(records: Records, now_ns: int) -> int:
    """When the first call among `records` was launched or ended: what is lost before them is older."""
    calls = records.view(CALL)
    is_call = (calls["kind"] == rings.LAUNCH) | (calls["kind"] == rings.COMPLETE)
    if not is_call.any():
        return now_ns
    first = calls[is_call][0]
    return int(first["end_ns"]) if int(first["kind"]) == rings.COMPLETE else int(first["launch_ns"])


def _name(names: tuple[str, ...], code: int) -> str:
    return names[int(code)] if int(code) < len(names) else names[0]
