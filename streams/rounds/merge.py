"""Puts the streams of one job into one order: event time first, up to the lowest watermark.

Streams arrive in any interleaving. What is released for a boundary depends on the streams' contents alone, so the
same recording gives the same order at any speed.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from pacehound.model.pair_rounds import PairRounds, joined_pairs
from pacehound.model.rounds import Lines, Rounds
from streams.rounds.round_loops import times_of
from streams.rounds.round_table import joined

Int64Array = npt.NDArray[np.int64]

CLOSED_NS = (1 << 63) - 1
"""The watermark of a stream that has ended."""


class Timed(Protocol):
    """Anything with an event time and an id."""

    @property
    def time_ns(self) -> int:
        """Event time."""
        ...

    def identity(self) -> str:
        """The id that a replay writes again."""
        ...


EventT = TypeVar("EventT", bound=Timed)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Rounds, and when each of those that have not left is due, the earliest first.

    Which they are is in `lines`; where that is nothing the last ones. So the columns of what waits are not copied each
    time that some of it is due, nor are its times looked through: a flush of eight seconds has dozens of iterations.
    """

    times_ns: Int64Array
    rounds: Rounds | PairRounds
    lines: Int64Array | None
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, times_ns: Int64Array, rounds: Rounds | PairRounds, *, is_ascending: bool | None = None) -> _Waiting:
        """All of these rounds, of which each is due at its time."""
        if is_ascending is None:
            is_ascending = bool((times_ns[1:] >= times_ns[:-1]).all())
        lines = None
        if not is_ascending:
            lines = np.argsort(times_ns, kind="stable")
            times_ns = times_ns[lines]
        return cls(times_ns, rounds, lines, int(times_ns[0]), int(times_ns[-1]))

    def parted(self, until_ns: int) -> tuple[Rounds | PairRounds, _Waiting | None]:
        """What is due, as it lay, and what is left."""
        if self.last_ns <= until_ns:
            return self._left, None
        n_due = int(np.searchsorted(self.times_ns, until_ns, side="right"))
        later_ns = self.times_ns[n_due:]
        due: Lines
        if self.lines is None:
            gone = len(self.rounds) - len(self.times_ns)
            due, lines = slice(gone, gone + n_due), None
        else:
            due, lines = np.sort(self.lines[:n_due]), self.lines[n_due:]
        return self.rounds.chosen(due), replace(self, times_ns=later_ns, lines=lines, first_ns=int(later_ns[0]))

    @property
    def _left(self) -> Rounds | PairRounds:
        """Those that have not left, as they lay."""
        n_gone = len(self.rounds) - len(self.times_ns)
        if n_gone == 0:
            return self.rounds
        return self.rounds.chosen(slice(n_gone, None) if self.lines is None else np.sort(self.lines))

    def written(self) -> tuple[Int64Array, Rounds | PairRounds]:
        """What a snapshot has of it: those that have not left as they lay, and their times."""
        times_ns = self.times_ns if self.lines is None else self.times_ns[np.argsort(self.lines)]
        return times_ns, self._left


class Merge(Generic[EventT]):
    """Buffers events and rounds of many streams until no stream can send anything earlier.

    An event that comes later than its own stream's watermark (a round closed with missing rows) counts from that
    watermark on: it cannot change what has been said before.
    """

    def __init__(self) -> None:
        self._watermarks: dict[str, int] = {}
        self._lowest_ns: int | None = None  # of the watermarks, until the last one that is as low rises
        self._n_lowest = 0  # how many are as low
        self._events: list[tuple[int, str, int, EventT]] = []  # a heap, by time, stream and order of coming
        self._pushed = 0
        self._rounds: list[_Waiting] = []
        self._first_rounds_ns: int | None = None  # the earliest of them
        self._fresh: list[tuple[Rounds, int]] = []  # rounds nobody has looked at yet, and their stream's watermark

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        self._settle()
        left_out = ("_n_lowest", "_fresh")
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return state | {"_rounds": [waiting.written() for waiting in self._rounds]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """How many are lowest is counted again when one of them rises; `ValueError`: rounds have not a time each."""
        self.__dict__.update(state)
        if not all(len(times_ns) == len(rounds) > 0 for times_ns, rounds in state["_rounds"]):
            raise ValueError("rounds that wait have not a time each")
        self._rounds = [_Waiting.of(times_ns, rounds) for times_ns, rounds in state["_rounds"]]
        self._n_lowest, self._fresh = 0, []

    def expect(self, stream: str) -> None:
        """Wait for a stream from now on."""
        if stream not in self._watermarks:
            self._watermarks[stream] = -1
            self._lowest_ns = None

    def advance(self, stream: str, watermark_ns: int) -> None:
        """Nothing earlier than `watermark_ns` will come from `stream`."""
        self.expect(stream)
        before_ns = self._watermarks[stream]
        after_ns = self._watermarks[stream] = max(before_ns, watermark_ns)
        if self._lowest_ns is not None and before_ns == self._lowest_ns and after_ns > before_ns:
            # All streams come to the same seconds: only the last one to leave the lowest is worth a look at all others.
            self._n_lowest -= 1
            self._lowest_ns = self._lowest_ns if self._n_lowest > 0 else None

    def push(self, stream: str, event: EventT) -> int | None:
        """An event of a stream, and when it is due; of one that has ended (this was sent twice) it is not used."""
        if self.has_ended(stream):
            return None
        time_ns = max(event.time_ns, self._watermarks.get(stream, -1))
        self._pushed += 1
        heapq.heappush(self._events, (time_ns, stream, self._pushed, event))
        return time_ns

    def push_rounds(self, rounds: Rounds | PairRounds) -> None:
        """Rounds of a communicator, or of pairs in many; each counts from its own end on."""
        if isinstance(rounds, PairRounds):
            self._push_pairs(rounds)
            return
        watermark_ns = self._watermarks.get(rounds.communicator, -1)
        if watermark_ns < CLOSED_NS and len(rounds):
            self._fresh.append((rounds, watermark_ns))

    def _push_pairs(self, pairs: PairRounds) -> None:
        """Each line has the watermark of its own communicator; where that has ended it is not used."""
        known = [self._watermarks.get(communicator, -1) for communicator in pairs.communicators]
        watermarks_ns = np.array(known, np.int64)[pairs.communicator]
        is_over = watermarks_ns >= CLOSED_NS
        if is_over.any():
            pairs, watermarks_ns = pairs.chosen(~is_over), watermarks_ns[~is_over]
        if len(pairs):
            times_ns = np.maximum(pairs.times_ns, watermarks_ns)
            self._rounds.append(_Waiting.of(times_ns, pairs))
            self._note_first(self._rounds[-1].first_ns)

    def _note_first(self, first_ns: int) -> None:
        before_ns = self._first_rounds_ns
        self._first_rounds_ns = first_ns if before_ns is None else min(first_ns, before_ns)

    def _settle(self) -> None:
        """Find out when the rounds that have come are due, of all blocks at once."""
        if not self._fresh:
            return
        blocks = [rounds for rounds, _ in self._fresh]
        lengths = np.array([len(rounds.seq) for rounds in blocks], np.int64)
        widths = np.array([len(rounds.ranks) for rounds in blocks], np.int64)
        end_ns = joined([rounds.end_ns for rounds in blocks], np.int64)
        times_ns = times_of(lengths, widths, end_ns, end_ns)
        if not times_ns.all():  # of some no end is known: when they arrived matters
            arrival_ns = joined([rounds.arrival_ns for rounds in blocks], np.int64)
            times_ns = times_of(lengths, widths, arrival_ns, end_ns)
        watermarks_ns = np.array([watermark_ns for _, watermark_ns in self._fresh], np.int64)
        times_ns = np.maximum(times_ns, np.repeat(watermarks_ns, lengths))
        ends = np.cumsum(lengths)
        begins = ends - lengths
        is_later = np.ones(len(times_ns), np.bool_)
        is_later[1:] = times_ns[1:] >= times_ns[:-1]
        is_later[begins] = True
        are_ascending = np.logical_and.reduceat(is_later, begins).tolist()
        for rounds, begin, end, is_ascending in zip(blocks, begins.tolist(), ends.tolist(), are_ascending, strict=True):
            self._rounds.append(_Waiting.of(times_ns[begin:end], rounds, is_ascending=is_ascending))
        self._note_first(int(times_ns.min()))
        self._fresh = []

    @property
    def streams(self) -> Collection[str]:
        """Those that have said something, or are waited for."""
        return self._watermarks.keys()

    def has_ended(self, stream: str) -> bool:
        """Nothing more can come from a stream."""
        return self._watermarks.get(stream, -1) >= CLOSED_NS

    @property
    def watermark_ns(self) -> int:
        """The lowest watermark; -1 while a stream that is waited for has said nothing."""
        if self._lowest_ns is None:
            self._lowest_ns = min(self._watermarks.values(), default=-1)
            self._n_lowest = list(self._watermarks.values()).count(self._lowest_ns)
        return self._lowest_ns

    @property
    def last_time_ns(self) -> int:
        """The latest event time that is still waiting; -1 when nothing is."""
        self._settle()
        latest = max((entry[0] for entry in self._events), default=-1)
        return max([latest, *(waiting.last_ns for waiting in self._rounds)])

    @property
    def first_time_ns(self) -> int | None:
        """The earliest event time that is waiting."""
        self._settle()
        times = [self._events[0][0]] if self._events else []
        times += [self._first_rounds_ns] if self._first_rounds_ns is not None else []
        return min(times, default=None)

    def take_events(self, until_ns: int) -> list[EventT]:
        """Events up to `until_ns`, ordered by (time they are due, stream, own time, host, id); they are removed."""
        taken: list[tuple[int, str, int, EventT]] = []
        while self._events and self._events[0][0] <= until_ns:
            taken.append(heapq.heappop(self._events))
        ordered: list[EventT] = []
        for _, together in groupby(taken, key=lambda entry: entry[:2]):
            same = [entry[3] for entry in together]
            ordered += _in_order(same) if len(same) > 1 else same  # most streams say one thing at a time
        return ordered

    def take_rounds(self, until_ns: int) -> list[Rounds | PairRounds]:
        """Rounds up to `until_ns`, ordered by communicator, pair and sequence number; they are removed.

        Those of pairs come behind the others, in as few tables as they fit into, each in the same order.
        """
        self._settle()
        taken: list[Rounds] = []
        pairs: list[PairRounds] = []
        later_rounds: list[_Waiting] = []
        for waiting in self._rounds:
            if waiting.first_ns > until_ns:
                later_rounds.append(waiting)
                continue
            due, later = waiting.parted(until_ns)
            later_rounds += [later] if later is not None else []
            if isinstance(due, PairRounds):
                pairs.append(due)
            else:
                taken.append(due)
        self._rounds = later_rounds
        self._first_rounds_ns = min((waiting.first_ns for waiting in later_rounds), default=None)
        taken.sort(key=lambda r: (r.communicator, r.is_pair, r.ranks, int(r.seq[0]) if len(r) else -1))
        return [*taken, *joined_pairs(pairs)]


def _in_order(same: Sequence[EventT]) -> list[EventT]:
    """Events of one stream that are due at one time: what comes late (iterations that waited for a rank) by its own.

    Ids are made only where they decide: hosts promise at the same times.
    """
    keys = [(event.time_ns, getattr(event, "host", "")) for event in same]
    ids = [""] * len(same) if len(set(keys)) == len(keys) else [event.identity() for event in same]
    order = sorted(range(len(same)), key=lambda at: (keys[at], ids[at]))
    return [same[at] for at in order]
