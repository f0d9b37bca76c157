"""How far every rank is on every sequence of a job, as columns.

A sequence is a line of calls in which a sequence number names the same operation on all its ranks: the collectives of
a communicator, or the calls from one rank to another on it (those are numbered apart, per pair and direction). Each
sequence owns a stretch of neighbouring slots, one per rank, so that a question about thousands of ranks is a few array
operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pacehound.model.codes import JOINING
from pacehound.model.events import (
    MAX_WORLD_RANKS,
    NEVER,
    UNTOLD,
    OpenCall,
    PairProgress,
    Progress,
    RankProgress,
    Topology,
)
from streams.rounds.edges import SeenEdges
from streams.rounds.room import with_room
from streams.rounds.signatures import packed_signature_of

Int64Array = npt.NDArray[np.int64]

NOT_OPEN = -1
"""In `open_seq`: the rank has no open call on this sequence."""

_launched = attrgetter("launch_ns", "seq")
_UNHEARD = {"launched": NEVER, "completed": NEVER, "open_seq": NOT_OPEN}  # what a new slot holds; 0 in other columns
_DERIVED = ("_collective", "_pair", "_length", "_items")

_OPEN_CALLS = msgspec.msgpack.Decoder(dict[int, tuple[OpenCall, ...]])  # by slot

_PairKey = tuple[int, str]  # peer and direction
_PairCalls = Mapping[_PairKey, tuple[OpenCall, ...]]  # open calls, in the order in which they are told
_NO_CALLS: _PairCalls = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSequence:
    """A line of calls."""

    communicator: str
    ranks: tuple[int, ...]  # world ranks, in the order of their slots; of a pair the sender and the receiver
    first_slot: int  # where its slots begin
    is_pair: bool


@dataclass(frozen=True, slots=True)
class _Items:
    """The memory of all columns: one item of it is read and written in half the time that it takes in an array."""

    rank: memoryview
    sequence: memoryview
    launched: memoryview
    completed: memoryview
    open_seq: memoryview
    open_ns: memoryview
    signature: memoryview
    reported_ns: memoryview

    @classmethod
    def of(cls, columns: Mapping[str, Int64Array]) -> _Items:
        return cls(**{name: column.data for name, column in columns.items()})


_COLUMNS = tuple(field.name for field in fields(_Items))


class ProgressTable:
    """The latest progress of every rank of a job.

    Attributes
    ----------
    sequences
        All lines of calls, by number.
    names
        Names of communicators.
    blind
        Communicators whose calls are not all seen (captured into graphs): nothing follows from their counters.
    launch_only
        Communicators of which no completion is seen.
    seen_edges
        Over which edges their calls were seen to send.
    """

    def __init__(self) -> None:
        self.sequences: list[CallSequence] = []
        self.names: dict[str, str] = {}
        self.blind: set[str] = set()
        self.launch_only: set[str] = set()
        self.seen_edges = SeenEdges()
        self._collective: dict[str, dict[int, int]] = {}  # by communicator and rank, slots of collectives
        self._pair: dict[tuple[str, int, int], int] = {}  # by communicator, sender and receiver, first slots
        self._open: dict[int, tuple[OpenCall, ...]] = {}  # by slot, oldest first
        # By the slot of a rank's collectives, its pairs on that communicator by their slots, in the order in which its
        # host tells of them: they are told so again.
        self._paired: dict[int, dict[int, _PairKey]] = {}
        self._early: dict[str, dict[str, Progress]] = {}  # by communicator and host: of members not known yet
        self._length = 0
        self._columns = {name: np.full(64, _UNHEARD.get(name, 0), np.int64) for name in _COLUMNS}
        self._items = _Items.of(self._columns)

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the sequences, and of columns what is in use."""
        state = {name: value for name, value in self.__dict__.items() if name not in _DERIVED}
        state["_columns"] = {name: self.column(name) for name in _COLUMNS}
        state["_paired"] = np.array(sorted(chain.from_iterable(self._paired.values())), np.int64)
        # There may be tens of thousands: as columns or one by one they take three times as long.
        state["_open"] = msgspec.msgpack.encode(dict(sorted(self._open.items())))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Whoever asks makes arrays as long as the highest rank: one that cannot be is refused (`ValueError`)."""
        self.__dict__.update(state)
        columns = [self._columns[name] for name in _COLUMNS]
        if any(column.dtype != np.int64 or column.shape != columns[0].shape for column in columns):
            raise ValueError("the columns of a progress table differ in type or length")
        self._length = len(columns[0])
        self._items = _Items.of(self._columns)
        for name, end in (("rank", MAX_WORLD_RANKS), ("sequence", len(self.sequences))):
            if (odd := self.column(name)[(self.column(name) < 0) | (self.column(name) >= end)]).size:
                raise ValueError(f"a progress table has the {name} {odd[0]}; it must be in 0..{end - 1}")
        self._collective, self._pair = {}, {}
        end = 0
        for number, sequence in enumerate(self.sequences):
            if sequence.first_slot != end:
                raise ValueError(f"sequence {number} of a progress table begins at {sequence.first_slot}, not at {end}")
            end += len(sequence.ranks)
            self._index(sequence)
        self._paired = {}
        for slot, rank, number in self._rows(state["_paired"]):
            sequence = self.sequences[number]
            slots = self._collective.get(sequence.communicator, {})
            if not sequence.is_pair or rank not in slots:
                raise ValueError(f"slot {slot} of a progress table is in no pair of a member")
            sender, receiver = sequence.ranks
            key = (receiver, "send") if rank == sender else (sender, "recv")
            self._paired.setdefault(slots[rank], {})[slot] = key
        self._open = _OPEN_CALLS.decode(state["_open"])
        if any(not 0 <= slot < self._length for slot in self._open):
            raise ValueError(f"a progress table of {self._length} slots has open calls in others")
        ranks = np.fromiter(chain.from_iterable(one.ranks for one in self.sequences), np.int64, count=end)
        numbers = np.repeat(np.arange(len(self.sequences)), [len(one.ranks) for one in self.sequences])
        if not np.array_equal(self.column("rank"), ranks) or not np.array_equal(self.column("sequence"), numbers):
            raise ValueError("the slots of a progress table are not those of its sequences")

    def _rows(self, slots: Int64Array) -> Iterable[tuple[int, int, int]]:
        """Some slots with the rank and the sequence of each."""
        if slots.ndim != 1 or slots.dtype != np.int64 or not ((slots >= 0) & (slots < self._length)).all():
            raise ValueError(f"a progress table of {self._length} slots has pairs in others")
        columns = (slots, self.column("rank")[slots], self.column("sequence")[slots])
        return zip(*(column.tolist() for column in columns), strict=True)

    def __len__(self) -> int:
        return self._length

    def column(self, name: str) -> Int64Array:
        """One column, shape `(n_slots,)`.

        `rank`, `sequence`, `launched`, `completed`; of the oldest open call its number `open_seq`, launch
        `open_ns` and packed `signature` (0 for pairs); `reported_ns`, when its host last reported it.
        """
        return self._columns[name][: self._length]

    def open_calls(self, slot: int) -> tuple[OpenCall, ...]:
        """The open calls of a slot that its host has reported, oldest first."""
        return self._open.get(slot, ())

    def open_call(self, sequence: int, rank: int, seq: int) -> OpenCall | None:
        """A rank's open call with this number on a sequence where its host has reported it."""
        slot = self._slot(self.sequences[sequence], rank)
        calls = () if slot is None else self._open.get(slot, ())
        return next((call for call in calls if call.seq == seq), None)

    def have_completed(self, communicator: str, ranks: Iterable[int], seq: int) -> bool:
        """Whether all of these have completed that collective of a communicator."""
        slots = self._collective.get(communicator, {})
        return all(rank in slots and self._items.completed[slots[rank]] >= seq for rank in ranks)

    def behind(self, *, in_collectives: bool = False) -> tuple[int, ...]:
        """Ranks that have launched fewer calls than another member of a sequence, where all calls are seen.

        A receive may be posted that nobody means to answer: `in_collectives` leaves pairs out.
        """
        if not self._length:
            return ()
        slots, launched = self.column("sequence"), self.column("launched")
        most = np.full(len(self.sequences), np.iinfo(np.int64).min)
        np.maximum.at(most, slots, launched)
        counts = [
            one.communicator not in self.blind
            and self.names.get(one.communicator) != JOINING
            and not (in_collectives and one.is_pair)
            for one in self.sequences
        ]
        is_less = (launched < most[slots]) & (launched != UNTOLD) & np.array(counts, np.bool_)[slots]
        return tuple(np.unique(self.column("rank")[is_less]).tolist())

    def name_of(self, sequence: int) -> str:
        """The name of a sequence's communicator."""
        communicator = self.sequences[sequence].communicator
        return self.names.get(communicator, communicator)

    def on_topology(self, topology: Topology) -> None:
        """A communicator exists: every member is to make its calls, also those that have not been heard of."""
        self.names[topology.communicator] = topology.name
        if topology.communicator not in self._collective:
            self._add(topology.communicator, topology.members, is_pair=False)
        for progress in self._early.pop(topology.communicator, {}).values():
            self.on_progress(progress)

    def on_progress(self, progress: Progress) -> list[int]:
        """Take over how far a host's ranks are on a communicator; the ranks that have moved.

        Progress is sent for an instant that lies a little back, so that the first of it may come before the topology
        and names but those ranks that had joined by then. It is held: only the topology says who the members are.
        """
        communicator = progress.communicator
        if progress.edges:
            self.seen_edges.add(progress)
        if progress.captured_total:
            self.blind.add(communicator)
        if progress.sees_completion:
            self.launch_only.discard(communicator)
        else:
            self.launch_only.add(communicator)
        slots = self._collective.get(communicator)
        if slots is None:
            self._early.setdefault(communicator, {})[progress.host] = progress
            return []
        moved = []
        for theirs in progress.ranks:
            slot = slots.get(theirs.rank)
            # Who is no member is left out: stage one refuses such progress.
            if slot is not None and self._take(slot, theirs, progress):
                moved.append(theirs.rank)
        return moved

    def _take(self, slot: int, theirs: RankProgress, progress: Progress) -> bool:
        """Take over how far a rank is, with the slot of its collectives; whether it has moved."""
        if progress.closed or not theirs.open:
            collectives: tuple[OpenCall, ...] = ()
            calls = _NO_CALLS
        else:
            collectives, calls = _by_line(theirs.open)
        has_moved = self._set(slot, theirs.last_launched, theirs.last_completed, collectives, progress.time_ns)
        if theirs.pairs or calls or slot in self._paired:
            has_moved |= self._take_pairs(slot, theirs, calls, progress)
        return has_moved

    def _take_pairs(self, slot: int, theirs: RankProgress, calls: _PairCalls, progress: Progress) -> bool:
        """Take over how far a rank is with its pairs, and their open calls; whether it has moved in one."""
        known = self._paired.get(slot)
        if known is None and not calls:
            known = self._paired[slot] = self._first_pairs(progress.communicator, theirs)
        if known is None or not _are_told(known, theirs.pairs, calls):
            return self._take_other_pairs(slot, theirs, calls, progress)
        has_moved = False
        for (pair_slot, key), pair in zip(known.items(), theirs.pairs, strict=True):
            launched, open_calls = pair.last_launched, calls.get(key, ())
            for call in open_calls:
                launched = max(launched, call.seq)
            has_moved |= self._set(pair_slot, launched, pair.last_completed, open_calls, progress.time_ns)
        return has_moved

    def _first_pairs(self, communicator: str, theirs: RankProgress) -> dict[int, _PairKey]:
        """The pairs of a rank of which none was known yet, by their slots."""
        told = [(pair.peer, pair.direction) for pair in theirs.pairs]
        slots = {key: self._pair_slot(communicator, theirs.rank, *key) for key in sorted(told)}
        return {slots[key]: key for key in told}

    def _take_other_pairs(self, slot: int, theirs: RankProgress, calls: _PairCalls, progress: Progress) -> bool:
        """Take over pairs that are not those of before, one for one: some are new, or nothing is said of some."""
        known, has_moved, time_ns = self._paired.get(slot, {}), False, progress.time_ns
        reported: dict[int, _PairKey] = {}
        for key, launched, completed in _counted(theirs.pairs, calls):
            pair_slot = self._pair_slot(progress.communicator, theirs.rank, *key)
            has_moved |= self._set(pair_slot, launched, completed, calls.get(key, ()), time_ns)
            reported[pair_slot] = key
        items = self._items
        for forgotten in known.keys() - reported.keys():
            # A source that reports open calls alone: it has none there any more.
            has_moved |= self._set(forgotten, items.launched[forgotten], items.completed[forgotten], (), time_ns)
        order = {(pair.peer, pair.direction): number for number, pair in enumerate(theirs.pairs)}
        pairs = sorted((known | reported).items(), key=lambda pair: order.get(pair[1], len(order)))
        self._paired[slot] = dict(pairs)
        return has_moved

    def _set(self, slot: int, launched: int, completed: int, calls: tuple[OpenCall, ...], time_ns: int) -> bool:
        """Set what one slot holds; whether its rank has moved there."""
        items = self._items
        # A call that is given up when its job is ended is not open any more, and nobody has moved.
        has_moved = launched > items.launched[slot] or completed > items.completed[slot]
        items.launched[slot] = launched
        items.completed[slot] = completed
        items.reported_ns[slot] = time_ns
        if calls:
            oldest = calls[0] if len(calls) == 1 else min(calls, key=_launched)
            items.open_seq[slot] = oldest.seq
            items.open_ns[slot] = oldest.launch_ns
            if oldest.direction == "none":
                items.signature[slot] = packed_signature_of(oldest)
            self._open[slot] = calls
        elif slot in self._open:
            items.open_seq[slot], items.open_ns[slot], items.signature[slot] = NOT_OPEN, 0, 0
            del self._open[slot]
        return has_moved

    def _pair_slot(self, communicator: str, rank: int, peer: int, direction: str) -> int:
        """The slot of a rank's calls to or from a peer, which there is from now on."""
        sender, receiver = (rank, peer) if direction == "send" else (peer, rank)
        first = self._pair.get((communicator, sender, receiver))
        if first is None:
            first = self._add(communicator, (sender, receiver), is_pair=True)
        return first + (rank == receiver)

    def _slot(self, sequence: CallSequence, rank: int) -> int | None:
        if not sequence.is_pair:
            return self._collective[sequence.communicator].get(rank)
        return sequence.first_slot + (rank == sequence.ranks[1]) if rank in sequence.ranks else None

    def _add(self, communicator: str, ranks: tuple[int, ...], *, is_pair: bool) -> int:
        """Add a line of calls; its first slot."""
        number, first = len(self.sequences), self._length
        sequence = CallSequence(communicator=communicator, ranks=ranks, first_slot=first, is_pair=is_pair)
        self.sequences.append(sequence)
        self._length += len(ranks)
        if self._length > len(self._columns["rank"]):
            self._grow()
        items = self._items
        for slot, rank in enumerate(ranks, first):
            items.rank[slot] = rank
            items.sequence[slot] = number
        self._index(sequence)
        return first

    def _grow(self) -> None:
        """Make room for all slots, and for new ones."""
        for name, column in self._columns.items():
            self._columns[name] = grown = with_room(column, self._length)
            grown[len(column) :] = _UNHEARD.get(name, 0)
        self._items = _Items.of(self._columns)

    def _index(self, sequence: CallSequence) -> None:
        """By what the slots of a sequence are found."""
        if sequence.is_pair:
            sender, receiver = sequence.ranks
            self._pair[sequence.communicator, sender, receiver] = sequence.first_slot
        else:
            slots = enumerate(sequence.ranks, sequence.first_slot)
            self._collective[sequence.communicator] = {rank: slot for slot, rank in slots}


def _are_told(known: Mapping[int, _PairKey], told: tuple[PairProgress, ...], calls: _PairCalls) -> bool:
    """Whether the pairs that are told of are those that are known, one for one, and no call is open in another one."""
    if len(told) != len(known):
        return False
    for pair, (peer, direction) in zip(told, known.values(), strict=True):
        if pair.peer != peer or pair.direction != direction:
            return False
    return not calls or calls.keys() <= set(known.values())


def _by_line(open_calls: tuple[OpenCall, ...]) -> tuple[tuple[OpenCall, ...], _PairCalls]:
    """Open calls of one rank: the collectives, and those of each pair."""
    collectives: list[OpenCall] = []
    of_pairs: dict[_PairKey, tuple[OpenCall, ...]] = {}
    for call in open_calls:
        if call.direction == "none":
            collectives.append(call)
        else:
            key = (call.peer, call.direction)
            of_pairs[key] = (*of_pairs.get(key, ()), call)
    return tuple(collectives), of_pairs


def _counted(counted: tuple[PairProgress, ...], calls: _PairCalls) -> list[tuple[_PairKey, int, int]]:
    """Last launched and completed calls of every pair that is counted, and of those that have open calls alone."""
    pairs = {(pair.peer, pair.direction): (pair.last_launched, pair.last_completed) for pair in counted}
    for key, open_calls in calls.items():
        launched = max([call.seq for call in open_calls])
        if key in pairs:
            pairs[key] = (max(launched, pairs[key][0]), pairs[key][1])
        else:
            pairs[key] = (launched, NEVER)
    return [(key, *pairs[key]) for key in sorted(pairs)]
