"""How far every rank is on every sequence of a job, as columns.

A sequence is a line of calls in which a sequence number names the same operation on all its ranks: the collectives of
a communicator, or the calls from one rank to another on it (those are numbered apart, per pair and direction). Each
sequence owns a stretch of neighbouring slots, one per rank, so that a question about thousands of ranks is a few array
operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

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
from streams.rounds.signatures import packed, signature_of

Int64Array = npt.NDArray[np.int64]

NOT_OPEN = -1
"""In `open_seq`: the rank has no open call on this sequence."""

_launched = attrgetter("launch_ns", "seq")
_COLUMNS = ("rank", "sequence", "launched", "completed", "open_seq", "open_ns", "signature", "reported_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSequence:
    """A line of calls."""

    communicator: str
    ranks: tuple[int, ...]  # world ranks, in the order of their slots; of a pair the sender and the receiver
    first_slot: int  # where its slots begin
    is_pair: bool


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """What a snapshot has of the open calls: slots in ascending order, and those of each."""

    slots: tuple[int, ...]
    calls: tuple[tuple[OpenCall, ...], ...]


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
        self._collective: dict[str, int] = {}  # sequence of a communicator's collectives
        self._pair: dict[tuple[str, int, int], int] = {}
        self._slot: dict[tuple[int, int], int] = {}  # (sequence, rank)
        self._open: dict[int, tuple[OpenCall, ...]] = {}  # by slot, oldest first
        self._paired: dict[tuple[str, int], set[int]] = {}  # slots of a rank's pairs on a communicator
        self._early: dict[str, dict[str, Progress]] = {}  # by communicator and host: of members not known yet
        self._length = 0
        self._columns = {name: np.zeros(64, np.int64) for name in _COLUMNS}

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the sequences, and of columns what is in use."""
        derived = ("_collective", "_pair", "_slot", "_length")
        state = {name: value for name, value in self.__dict__.items() if name not in derived}
        state["_columns"] = {name: self.column(name) for name in _COLUMNS}
        state["_paired"] = np.array(sorted(chain.from_iterable(self._paired.values())), np.int64)
        slots = sorted(self._open)
        state["_open"] = OpenCalls(tuple(slots), tuple([self._open[slot] for slot in slots]))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Whoever asks makes arrays as long as the highest rank: one that cannot be is refused (`ValueError`)."""
        self.__dict__.update(state)
        columns = [self._columns[name] for name in _COLUMNS]
        if any(column.dtype != np.int64 or column.shape != columns[0].shape for column in columns):
            raise ValueError("the columns of a progress table differ in type or length")
        self._length = len(columns[0])
        for name, end in (("rank", MAX_WORLD_RANKS), ("sequence", len(self.sequences))):
            if (odd := self.column(name)[(self.column(name) < 0) | (self.column(name) >= end)]).size:
                raise ValueError(f"a progress table has the {name} {odd[0]}; it must be in 0..{end - 1}")
        self._collective, self._pair, self._slot = {}, {}, {}
        end = 0
        for number, sequence in enumerate(self.sequences):
            if sequence.first_slot != end:
                raise ValueError(f"sequence {number} of a progress table begins at {sequence.first_slot}, not at {end}")
            end += len(sequence.ranks)
            self._index(number, sequence)
        self._paired = {}
        for slot, rank, number in self._rows(state["_paired"]):
            self._paired.setdefault((self.sequences[number].communicator, rank), set()).add(slot)
        self._open = dict(zip(state["_open"].slots, state["_open"].calls, strict=True))
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
        slot = self._slot.get((sequence, rank))
        calls = () if slot is None else self._open.get(slot, ())
        return next((call for call in calls if call.seq == seq), None)

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
        self._collective_sequence(topology.communicator, topology.members)
        for progress in self._early.pop(topology.communicator, {}).values():
            self.on_progress(progress)

    def on_progress(self, progress: Progress) -> list[int]:
        """Take over how far a host's ranks are on a communicator; the ranks that have moved.

        Progress is sent for an instant that lies a little back, so that the first of it may come before the topology
        and names but those ranks that had joined by then. It is held: only the topology says who the members are.
        """
        if progress.edges:
            self.seen_edges.add(progress)
        if progress.captured_total:
            self.blind.add(progress.communicator)
        if progress.sees_completion:
            self.launch_only.discard(progress.communicator)
        else:
            self.launch_only.add(progress.communicator)
        sequence = self._collective.get(progress.communicator)
        if sequence is None:
            self._early.setdefault(progress.communicator, {})[progress.host] = progress
            return []
        return [theirs.rank for theirs in progress.ranks if self._take(sequence, theirs, progress)]

    def _take(self, sequence: int, theirs: RankProgress, progress: Progress) -> bool:
        slot = self._slot.get((sequence, theirs.rank))
        if slot is None:
            return False  # no member: stage one refuses such progress
        communicator = progress.communicator
        open_calls = () if progress.closed else theirs.open
        collectives = tuple([call for call in open_calls if call.direction == "none"]) if open_calls else ()
        has_moved = self._set(slot, theirs.last_launched, theirs.last_completed, collectives)
        known = self._paired.setdefault((communicator, theirs.rank), set())
        self._columns["reported_ns"][slot] = progress.time_ns
        if not (known or theirs.pairs or open_calls):
            return has_moved  # it is in no pair here, as nearly always
        reported: set[int] = set()
        for pair in _pairs(theirs.pairs, open_calls):
            ends = (theirs.rank, pair.peer) if pair.direction == "send" else (pair.peer, theirs.rank)
            pair_slot = self._slot[self._pair_sequence(communicator, *ends), theirs.rank]
            calls = open_calls and tuple(
                [c for c in open_calls if c.peer == pair.peer and c.direction == pair.direction]
            )
            has_moved |= self._set(pair_slot, pair.last_launched, pair.last_completed, calls)
            reported.add(pair_slot)
        for forgotten in known - reported:  # a source that reports open calls alone: it has none there any more
            launched, completed = self._columns["launched"][forgotten], self._columns["completed"][forgotten]
            has_moved |= self._set(forgotten, int(launched), int(completed), ())
        known |= reported
        self._columns["reported_ns"][list(known)] = progress.time_ns
        return has_moved

    def _set(self, slot: int, launched: int, completed: int, calls: tuple[OpenCall, ...]) -> bool:
        columns = self._columns
        oldest = min(calls, key=_launched) if calls else None
        seq, open_ns = (NOT_OPEN, 0) if oldest is None else (oldest.seq, oldest.launch_ns)
        # A call that is given up when its job is ended is not open any more, and nobody has moved.
        has_moved = bool(launched > columns["launched"][slot] or completed > columns["completed"][slot])
        columns["launched"][slot], columns["completed"][slot] = launched, completed
        columns["open_seq"][slot], columns["open_ns"][slot] = seq, open_ns
        is_collective = oldest is not None and oldest.direction == "none"
        columns["signature"][slot] = packed(signature_of(oldest)) if oldest is not None and is_collective else 0
        if calls:
            self._open[slot] = calls
        else:
            self._open.pop(slot, None)
        return has_moved

    def _collective_sequence(self, communicator: str, members: tuple[int, ...]) -> int:
        number = self._collective.get(communicator)
        return self._add(communicator, members, is_pair=False) if number is None else number

    def _pair_sequence(self, communicator: str, source: int, destination: int) -> int:
        number = self._pair.get((communicator, source, destination))
        return self._add(communicator, (source, destination), is_pair=True) if number is None else number

    def _add(self, communicator: str, ranks: tuple[int, ...], *, is_pair: bool) -> int:
        number, first = len(self.sequences), self._length
        sequence = CallSequence(communicator=communicator, ranks=ranks, first_slot=first, is_pair=is_pair)
        self.sequences.append(sequence)
        self._length += len(ranks)
        if self._length > len(self._columns["rank"]):
            for name, values in self._columns.items():
                self._columns[name] = np.concatenate([values, np.zeros(max(len(values), len(ranks)), np.int64)])
        slots = slice(first, self._length)
        self._columns["rank"][slots] = ranks
        self._columns["sequence"][slots] = number
        self._columns["launched"][slots] = NEVER
        self._columns["completed"][slots] = NEVER
        self._columns["open_seq"][slots] = NOT_OPEN
        self._index(number, sequence)
        return number

    def _index(self, number: int, sequence: CallSequence) -> None:
        """By what a sequence and its slots are found."""
        if sequence.is_pair:
            source, destination = sequence.ranks
            self._pair[sequence.communicator, source, destination] = number
        else:
            self._collective[sequence.communicator] = number
        for slot, rank in enumerate(sequence.ranks, sequence.first_slot):
            self._slot[number, rank] = slot


def _pairs(counted: tuple[PairProgress, ...], open_calls: Iterable[OpenCall]) -> list[PairProgress]:
    """Every pair that is counted, and those of which open calls are all that is known."""
    pairs = {(pair.peer, pair.direction): pair for pair in counted}
    for call in open_calls:
        key = (call.peer, call.direction)
        if call.direction != "none" and (key not in pairs or pairs[key].last_launched < call.seq):
            completed = pairs[key].last_completed if key in pairs else NEVER
            pairs[key] = PairProgress(
                peer=call.peer, direction=call.direction, last_launched=call.seq, last_completed=completed
            )
    return [pairs[key] for key in sorted(pairs)]
