"""The rounds of one step of time, of all communicators, as one table: what many ask of them is found once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import Sees
from pacehound.model.digests import is_of_digests
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.rounds import round_loops

Int64Array = npt.NDArray[np.int64]
ScalarT = TypeVar("ScalarT", bound=np.generic)

TRANSFER = (Sees.START | Sees.END).value
"""The instants that a transfer time is taken from."""


@dataclass(frozen=True, slots=True)
class RoundsOfKind:
    """The rounds of one operation and size in a block."""

    op: int
    size_bytes: int
    lines: slice | Int64Array  # of the table, ascending

    @property
    def n_rounds(self) -> int:
        """How many they are."""
        return self.lines.stop - self.lines.start if isinstance(self.lines, slice) else len(self.lines)


class RoundTable:
    """Blocks of rounds, and columns that hold those of all of them one behind the other.

    Attributes
    ----------
    blocks
        Those that have rounds, in the order in which they came.
    pairs
        Rounds of pairs in tables of their own, which nothing below tells of.
    lengths, widths
        How many rounds and how many ranks each block has, shape `(n_blocks,)`.
    is_pair, is_digest, sees_transfer
        The same shape: whether it is of a pair, its rounds are digests, and starts and ends are seen.
    first
        Where the rounds of each block begin, and after the last one their end, shape `(n_blocks + 1,)`.
    arrival_ns, start_ns, end_ns
        Of each rank in each round, round by round, shape `(sum(lengths * widths),)`.
    op, size_bytes
        Shape `(n_rounds,)`, as those below.
    times_ns
        Event time: the last end, else the last arrival.
    n_seen
        Of how many ranks a start (where none is known, an arrival) and an end are known.
    longest_ns, shortest_ns
        Of the durations of these; 0 and the largest number there is, where there is none.
    transfer_ns
        How long the transfer took, 0 where that is not known (below).

    Notes
    -----
    The transfer time of a round is its last end minus the latest start over its ranks. Waiting for a late rank is not
    transfer: nothing moves before the last one has started.

    Clocks of two hosts may be tens of milliseconds apart, many times a transfer, and the latest start on one clock
    less than an end on another says nothing then. Where no rank can end before the last one has started (all_reduce,
    all_gather, reduce_scatter, all_to_all, barrier) the last one to start waits the least, so that the shortest
    duration over the ranks is the transfer time, each duration on a clock of its own. It lies between the first and
    the last end minus the latest start. For rooted operations and sends no such thing holds: a root may leave at
    once. There the starts and ends of all ranks have to be on one clock, and are taken as if they were.

    It is not known where a start is missing (the latest one is then unknown), where no end is known, or where the
    clocks contradict each other (the end does not lie behind the start).

    """

    def __init__(self, blocks: Sequence[Rounds | PairRounds]) -> None:
        self.blocks = [block for block in blocks if isinstance(block, Rounds) and len(block)]
        self.pairs = [block for block in blocks if isinstance(block, PairRounds) and len(block)]
        # There are tens of thousands: a call for each of them would be felt.
        self.lengths = np.array([len(block.seq) for block in self.blocks], np.int64)
        self.widths = np.array([len(block.ranks) for block in self.blocks], np.int64)
        self.is_pair = np.array([block.is_pair for block in self.blocks], np.bool_)
        of_digests = {source: is_of_digests(source) for source in {block.source for block in self.blocks}}
        self.is_digest = np.array([of_digests[block.source] for block in self.blocks], np.bool_)
        self.sees_transfer = np.array([block.sees.value for block in self.blocks], np.int64) & TRANSFER == TRANSFER
        self.first = np.concatenate([[0], np.cumsum(self.lengths)])
        self.op = joined([block.op for block in self.blocks], np.int8)
        self.size_bytes = joined([block.size_bytes for block in self.blocks], np.int64)
        self.arrival_ns = joined([block.arrival_ns for block in self.blocks], np.int64)
        self.start_ns = joined([block.start_ns for block in self.blocks], np.int64)
        self.end_ns = joined([block.end_ns for block in self.blocks], np.int64)
        self.times_ns, self.n_seen, self.longest_ns, self.shortest_ns, self.transfer_ns = round_loops.measured(
            self.lengths, self.widths, self.arrival_ns, self.start_ns, self.end_ns, self.op
        )
        is_digest = np.repeat(self.is_digest, self.lengths)
        if is_digest.any():
            least_ns = digested_transfers_ns(np.repeat(self.widths, self.lengths), self.arrival_ns, self.end_ns)
            self.transfer_ns[is_digest] = least_ns[is_digest]

    @property
    def n_parts(self) -> int:
        """How many blocks and tables of rounds of pairs there are."""
        return len(self.blocks) + len(self.pairs)

    def times_of(self, number: int) -> Int64Array:
        """Event times of the rounds of one block, shape `(n_rounds,)`."""
        return self.times_ns[self.first[number] : self.first[number + 1]]

    @cached_property
    def begins_of_pairs(self) -> list[Int64Array]:
        """Of each of `pairs`, the first line of each pair."""
        return [pairs.begins for pairs in self.pairs]

    @cached_property
    def last_ns(self) -> list[int]:
        """The event time of each block: that of its last round."""
        return np.maximum.reduceat(self.times_ns, self.first[:-1]).tolist() if self.blocks else []

    @cached_property
    def kinds(self) -> list[list[RoundsOfKind]]:
        """By block, its rounds by operation and size, ascending; none of a pair, whose rounds are of one kind."""
        of_block: list[list[RoundsOfKind]] = [[] for _ in self.blocks]
        is_asked = ~self.is_pair
        lines = np.flatnonzero(np.repeat(is_asked, self.lengths))
        if not len(lines):
            return of_block
        block = np.repeat(np.arange(len(self.blocks)), self.lengths)
        begins = self._new_kinds(block, lines)
        is_in_order = len(begins) == np.count_nonzero(is_asked)  # each block is of one kind
        if not is_in_order:
            lines = lines[np.lexsort((self.size_bytes[lines], self.op[lines], block[lines]))]
            begins = self._new_kinds(block, lines)
        at, ends = lines[begins], [*begins[1:].tolist(), len(lines)]
        columns = (block[at].tolist(), self.op[at].tolist(), self.size_bytes[at].tolist(), at.tolist())
        for number, op, size_bytes, first, begin, end in zip(*columns, begins.tolist(), ends, strict=True):
            mine = slice(first, first + end - begin) if is_in_order else lines[begin:end]
            of_block[number].append(RoundsOfKind(op, size_bytes, mine))
        return of_block

    def _new_kinds(self, block: Int64Array, lines: Int64Array) -> Int64Array:
        """Where among some rounds another block, operation or size begins."""
        is_new = np.ones(len(lines), np.bool_)
        is_new[1:] = False
        for column in (block, self.op, self.size_bytes):
            values = column[lines]
            is_new[1:] |= values[1:] != values[:-1]
        return np.flatnonzero(is_new)

    @cached_property
    def transfers(self) -> list[tuple[Rounds, list[RoundsOfKind]]]:
        """Blocks whose rounds say how long a transfer took, pairs left out, and their kinds."""
        is_told_of = self.sees_transfer & ~self.is_pair
        return [
            (block, kinds)
            for block, kinds, is_told in zip(self.blocks, self.kinds, is_told_of.tolist(), strict=True)
            if is_told
        ]


def digested_transfers_ns(widths: Int64Array, arrival_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """How long the transfers of digests took, shape `(n_rounds,)`; at least one, `widths` says how many ranks each has.

    Each rank says how long at most, from its arrival to its end (`pacehound.model.digests`): the least is true. 0 where
    no rank has said it.
    """
    longest_ns = np.where((arrival_ns > 0) & (end_ns > 0), end_ns - arrival_ns, np.iinfo(np.int64).max)
    least_ns = np.minimum.reduceat(longest_ns, np.cumsum(widths) - widths)
    return np.where(least_ns == np.iinfo(np.int64).max, 0, np.maximum(least_ns, 0))


def sees(rounds: Rounds | PairRounds, instants: int) -> bool:
    """Whether the source of some rounds sees all of these instants (`Sees`, as a number): asked of every block."""
    return rounds.sees.value & instants == instants


def joined(columns: Sequence[npt.NDArray[Any]], kind: type[ScalarT]) -> npt.NDArray[ScalarT]:
    """The values of all columns one behind the other, row by row, in memory of their own."""
    if not columns:
        return np.zeros(0, kind)
    if {column.dtype for column in columns} == {np.dtype(kind)}:
        try:
            # Half of the time that NumPy takes for thousands of small arrays.
            return np.frombuffer(bytearray().join(columns), kind)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            pass  # one is not in C order, or all are empty
    return np.concatenate(columns, axis=None).astype(kind, copy=False)
