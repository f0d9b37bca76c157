"""Joins the rows of all ranks into rounds: a grid of sequence numbers x ranks, filled as rows arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidEvent
from streams.rounds import row_loops
from streams.rounds.call_rows import CallRows
from streams.rounds.room import from_snapshot
from streams.rounds.row_loops import (
    GridInC,
    PartedRows,
    SomeRows,
    drop_head,
    grid_in_c,
    overdue_lines,
    put_rows,
    put_rows_of_pairs,
    take_lines,
)

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

_UNKNOWN = np.iinfo(np.int64).max
_NO_ROUNDS: Int64Array = np.zeros(0, np.int64)

MAX_OPEN_ROUNDS = 65_536
"""No job has so many rounds open: what is further ahead comes after a gap, and what lies further apart is corrupt."""


SLACK_ROUNDS = 1_024
"""Rounds before the first one seen that may still come."""

MAX_OPEN_CELLS = 1 << 22
"""Rounds times ranks, 140 MB: two rows of a large communicator that lie far apart must not take more than that."""

_LEAST_OPEN_ROUNDS = 64
"""However many ranks there are."""

_NOBODY = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRounds:
    """Rounds that leave the grid, in order of `seq`; shapes as in `pacehound.model.rounds.Rounds`.

    Rates and algorithms (codes) are `None` where no row has one. `signature` is what was called, packed
    (`signatures.packed_signatures`); 0 where ranks need not agree or a row is missing. `is_uniform`: it is the same in
    all places of each round.
    """

    seq: Int64Array
    op: npt.NDArray[np.int8]
    size_bytes: Int64Array
    arrival_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    signature: Int64Array
    is_uniform: bool
    send_rate: Float64Array | None = None
    recv_rate: Float64Array | None = None
    algorithm: npt.NDArray[np.int8] | None = None

    def disagreeing(self) -> Int64Array:
        """Positions of the rounds in which two ranks called different things, as far as both are known."""
        if self.is_uniform:  # as nearly always
            return _NO_ROUNDS
        lowest = np.where(self.signature > 0, self.signature, _UNKNOWN).min(axis=1, initial=_UNKNOWN)
        differ = (self.signature > 0) & (self.signature != lowest[:, None])
        return np.flatnonzero(differ.any(axis=1))


@dataclass(slots=True)
class _Extras:
    """Columns that few sources see, as long as the grid: made when the first row has one of them."""

    send_rate: Float64Array = field(repr=False)
    recv_rate: Float64Array = field(repr=False)
    algorithm: npt.NDArray[np.int8] = field(repr=False)


_GRID = ("_closed", "_seen", "_op", "_size_bytes", "_arrival_ns", "_start_ns", "_end_ns", "_signature")
"""One line of each per round, in the order of `GridInC`."""

_KINDS: dict[str, tuple[Any, int]] = {
    "_closed": (np.bool_, 1), "_seen": (np.bool_, 2), "_op": (np.int8, 1), "_size_bytes": (np.int64, 1),
    "_arrival_ns": (np.int64, 2), "_start_ns": (np.int64, 2), "_end_ns": (np.int64, 2), "_signature": (np.int64, 2),
    "send_rate": (np.float64, 2), "recv_rate": (np.float64, 2), "algorithm": (np.int8, 1),
}  # fmt: skip
"""The type of each, and whether it has one value per round or one per round and rank."""

_NUMBERS = (
    "n_ranks", "duplicate_rows", "late_rows", "missing_rows", "skipped_rounds", "_base", "_first_seen", "_length",
    "_has_new_rows",
)  # fmt: skip


class RoundGrid:
    """Open rounds of one communicator (or pair), one column per member.

    `add` is O(rows), `close_complete` O(open rounds); both are loops in C. Rows of a round that has been
    closed are late, a second row for the same (round, rank) is a duplicate: both are counted, neither is used.

    `duplicate_rows`, `late_rows` and `missing_rows` count since the start, and `skipped_rounds` those of gaps.
    """

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self._most_open, self._slack = _limits(n_ranks)
        self.duplicate_rows = 0
        self.late_rows = 0
        self.missing_rows = 0
        self.skipped_rounds = 0
        self._base: int | None = None  # sequence number of the grid's first line
        self._first_seen = 0
        self._length = 0  # lines in use
        self._has_new_rows = False  # since rounds were last looked through for complete ones
        self._extras: _Extras | None = None
        self._be_empty()

    def _be_empty(self) -> None:
        """Without any room: of a job of thousands of ranks most grids never have a row."""
        self._extras = None
        arrays, self._in_c = _no_lines(self.n_ranks)
        self._closed, self._seen, self._op, self._size_bytes, *cells = arrays
        self._arrival_ns, self._start_ns, self._end_ns, self._signature = cells

    def _allocate(self, capacity: int) -> None:
        self._closed, self._seen, self._op, self._size_bytes, *cells = _lines(capacity, self.n_ranks)
        self._arrival_ns, self._start_ns, self._end_ns, self._signature = cells
        if self._extras is not None:
            self._extras = self._no_extras(capacity)
        self._in_c = self._told_to_c()

    def _told_to_c(self) -> GridInC:
        return grid_in_c(self.n_ranks, self._arrays())

    @property
    def is_bare(self) -> bool:
        """There is nothing to it but its numbers: no round is open."""
        return self._length == 0 and self._extras is None

    def numbers(self) -> list[int]:
        """All of a bare one; -1 stands for a first line that is not known."""
        numbers = [getattr(self, name) for name in _NUMBERS]
        return [-1 if number is None else number for number in numbers]

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> RoundGrid:
        """A bare one as it was; `ValueError`: there is none of these numbers."""
        state: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
        state["_base"] = None if state["_base"] == -1 else state["_base"]
        grid = cls.__new__(cls)
        grid.__setstate__(state | {"_has_new_rows": bool(state["_has_new_rows"]), "_lines": None})
        return grid

    def __getstate__(self) -> dict[str, Any]:
        """A snapshot holds the lines that are in use: most of the room is kept free, and most grids are empty."""
        state = {name: getattr(self, name) for name in _NUMBERS}
        state["_lines"] = None if self.is_bare else tuple(array[: self._length] for array in self._arrays())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Compiled loops write where these numbers say: what contradicts itself is refused (`ValueError`)."""
        self.__dict__.update({name: state[name] for name in _NUMBERS})
        lines, n_lines, n_ranks = state["_lines"], self._length, self.n_ranks
        if type(n_ranks) is not int or type(n_lines) is not int or n_ranks < 1:
            raise ValueError(f"a grid has {n_lines!r} rounds of {n_ranks!r} ranks")
        self._most_open, self._slack = _limits(n_ranks)
        if not 0 <= n_lines <= self._most_open or (self._base is None and n_lines):
            raise ValueError(f"a grid has {n_lines} rounds from {self._base} on")
        self._extras = None
        if lines is None:
            if n_lines:
                raise ValueError(f"a grid has {n_lines} rounds and no lines")
            self._be_empty()
            return
        names = _GRID if len(lines) == len(_GRID) else (*_GRID, *_Extras.__slots__)
        arrays = []
        for name, array in zip(names, lines, strict=True):
            kind, n_axes = _KINDS[name]
            what = f"{name} of a grid of {n_lines} rounds and {n_ranks} ranks"
            arrays.append(from_snapshot(array, kind, (n_lines, n_ranks)[:n_axes], what))
        self.__dict__.update(zip(_GRID, arrays[: len(_GRID)], strict=True))
        if len(arrays) > len(_GRID):
            self._extras = _Extras(*arrays[len(_GRID) :])
        self._in_c = self._told_to_c()

    def _extras_at(self, lines: Int64Array | slice) -> dict[str, Any]:
        extras = self._extras
        return {} if extras is None else {name: getattr(extras, name)[lines] for name in _Extras.__slots__}

    def signatures_at(self, seq: int) -> Int64Array:
        """What each rank called in a round that is open, shape `(n_ranks,)`, 0 where no row has come; else nothing."""
        line = seq - (self._base or 0)
        if self._base is None or not 0 <= line < self._length or self._closed[line]:
            return _NOBODY
        signatures: Int64Array = self._signature[line]
        return signatures

    def _no_extras(self, capacity: int) -> _Extras:
        unseen = np.full((2, capacity, self.n_ranks), np.nan)
        return _Extras(unseen[0], unseen[1], np.zeros(capacity, np.int8))

    def add(self, rows: CallRows, some: SomeRows, *, has_transfers: bool = False) -> bool:
        """Put rows into the grid, unless rounds stand in their way that may be complete (`close_complete`).

        Parameters
        ----------
        rows, some
            Which ones; their places are known (`CallRows.place`).
        has_transfers
            Rates and algorithms of these rows are to be kept.

        Returns
        -------
        bool
            Whether they were put.

        Raises
        ------
        InvalidEvent
            Sequence numbers of one batch lie too far apart to be true; none of its rows is used then.

        """
        if some.in_c.n == 0:
            return True
        if not self.make_room(some.lowest_seq, some.highest_seq, has_transfers=has_transfers) or self._base is None:
            return False
        self._note_put(*put_rows(some, rows.in_c, self._base, self._in_c, has_transfers=has_transfers))
        return True

    def make_room(self, low: int, high: int, *, has_transfers: bool) -> bool:
        """Have lines for rows of these sequence numbers; returns and errors as those of `add`."""
        if self._base is None:
            # Rounds complete out of order, so the first rows seen need not be those of the first round.
            self._base, self._first_seen = max(0, low - self._slack), low
        most_apart = self._most_open - self._slack
        if high - low >= most_apart:
            raise InvalidEvent(
                f"a batch has the sequence numbers {low} to {high}; more than {most_apart} of {self.n_ranks} ranks "
                "cannot be open"
            )
        if high - self._base >= self._most_open:
            if self._has_new_rows and self.has_open:
                return False
            self.begin_anew(low)
        self._reserve(high - self._base + 1)
        self._first_seen = min(self._first_seen, low)
        if has_transfers and self._extras is None:
            self._extras = self._no_extras(len(self._op))
            self._in_c = self._told_to_c()
        return True

    def _note_put(self, n_late: int, n_twice: int) -> None:
        self.late_rows += n_late
        self.duplicate_rows += n_twice
        self._has_new_rows = True

    def begin_anew(self, seq: int) -> None:
        """Rounds go on at `seq`, and what lies before it is given up: nobody told of what lies between."""
        if self._base is not None:
            self.skipped_rounds += max(seq - self._base - self._length, 0)
            self.missing_rows += int((~self._seen[: self._length][~self._closed[: self._length]]).sum())
        self._base, self._first_seen, self._length = max(0, seq - self._slack), seq, 0
        self._be_empty()

    def is_far_ahead(self, seq: int) -> bool:
        """It stands further ahead of a round than it could if both were true."""
        return self._base is not None and self._base - seq >= self._most_open

    def close_complete(self) -> ClosedRounds | None:
        """Take out every round that all members have reported."""
        if not self._has_new_rows or self._base is None:
            return None
        closed = close_complete([self])
        return None if closed is None else closed[1]

    @property
    def has_open(self) -> bool:
        """A round is open, or closed behind one that is."""
        return self._length > 0

    def close_overdue(
        self, before_ns: int, still_running: BoolArray | None, running_seq: Int64Array
    ) -> ClosedRounds | None:
        """Take out rounds whose missing rows will not come.

        Overdue are rounds that a member entered before `before_ns`, unless a member that is `still_running` (`None`:
        nobody is) has yet to send its row: it will send those from its `running_seq` on. Both have shape `(n_ranks,)`.
        A round without any row is overdue when a later one is.
        """
        if self._length == 0 or self._base is None:
            return None
        lines, unseen = overdue_lines(self._in_c, self._length, before_ns, self._base, still_running, running_seq)
        self.missing_rows += self.n_ranks * int((self._base + unseen >= self._first_seen).sum())
        self._closed[unseen] = True  # no row has come at all: nothing can be said but that they are missing
        closed = self._close(lines)
        self._drop_closed_head()
        return closed

    def _close(self, lines: Int64Array) -> ClosedRounds | None:
        """Take out these, which are not closed."""
        n_rounds = len(lines)
        if n_rounds == 0 or self._base is None:
            return None
        n_missing, differ, columns = take_lines(
            self._in_c, lines, self._base, self.n_ranks, has_transfers=self._extras is not None
        )
        self.missing_rows += n_missing
        return ClosedRounds(is_uniform=not differ, **columns)

    def _drop_closed_head(self) -> None:
        if self._base is None or self._length == 0:
            return
        self._drop(drop_head(self._in_c, self._length))

    @property
    def _end(self) -> int:
        """The first sequence number behind its room."""
        return (self._base or 0) + len(self._op)

    def _drop(self, n_lines: int) -> None:
        """So many at the head are gone."""
        self._base = (self._base or 0) + n_lines
        self._length -= n_lines

    def _reserve(self, lines: int) -> None:
        if lines > len(self._op):
            old = self._arrays()
            self._allocate(max(lines, 2 * len(self._op)))
            for new, previous in zip(self._arrays(), old, strict=True):
                new[: len(previous)] = previous
        self._length = max(self._length, lines)

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (*(getattr(self, name) for name in _GRID), *self._extras_at(slice(None)).values())


def _limits(n_ranks: int) -> tuple[int, int]:
    """How many rounds may be open, and how many of them before the first one seen."""
    most_open = min(MAX_OPEN_ROUNDS, max(MAX_OPEN_CELLS // n_ranks, _LEAST_OPEN_ROUNDS))
    return most_open, min(SLACK_ROUNDS, most_open // 2)


def _lines(n: int, n_ranks: int) -> list[npt.NDArray[Any]]:
    """Lines of a grid that hold nothing yet."""
    return [np.zeros((n, n_ranks)[:n_axes], kind) for kind, n_axes in (_KINDS[name] for name in _GRID)]


def add_to_pairs(grids: Sequence[RoundGrid], rows: CallRows, parts: PartedRows, *, has_transfers: bool) -> None:
    """Put the rows of pairs into the grids of these pairs, which have room for them (`RoundGrid.make_room`)."""
    for grid, (sender, receiver, _, _, high) in zip(grids, parts.pairs, strict=True):
        if high >= grid._end:  # C would write behind it
            raise ValueError(f"the grid of ranks {sender} and {receiver} ends before {grid._end}: no room for {high}")
    put = put_rows_of_pairs(
        parts,
        rows.in_c,
        [grid._base or 0 for grid in grids],
        [grid._in_c for grid in grids],
        has_transfers=has_transfers,
    )
    for grid, n_late, n_twice in zip(grids, *put, strict=True):
        grid._note_put(n_late, n_twice)


def close_complete(grids: Sequence[RoundGrid]) -> tuple[list[int], ClosedRounds] | None:
    """Take every round that all have reported out of grids of as many ranks.

    How many of each grid, and they one behind the other; where a grid has rates or algorithms, those of the others are
    not known.
    """
    if not grids:
        return None
    closed = row_loops.close_complete(
        [grid._in_c for grid in grids],
        [grid._length for grid in grids],
        [grid._base or 0 for grid in grids],
        grids[0].n_ranks,
        has_transfers=any(grid._extras is not None for grid in grids),
    )
    for grid in grids:
        grid._has_new_rows = False
    if closed is None:
        return None
    n_closed, heads, differ, columns = closed
    for grid, n_dropped in zip(grids, heads, strict=True):
        grid._drop(n_dropped)
    return n_closed, ClosedRounds(is_uniform=not differ, **columns)


@lru_cache(64)
def _no_lines(n_ranks: int) -> tuple[list[npt.NDArray[Any]], GridInC]:
    """What grids share that have no room at all: there is nothing in it that could be written to."""
    lines = _lines(0, n_ranks)
    return lines, grid_in_c(n_ranks, lines)
