"""Joins the rows of all ranks into rounds: a grid of sequence numbers x ranks, filled as rows arrive."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidEvent
from streams.rounds.row_loops import put_rows

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

_NEVER_NS = np.iinfo(np.int64).max

MAX_OPEN_ROUNDS = 65_536
"""No job has so many rounds open: what is further ahead comes after a gap, and what lies further apart is corrupt."""


SLACK_ROUNDS = 1_024
"""Rounds before the first one seen that may still come."""

MAX_OPEN_CELLS = 1 << 22
"""Rounds times ranks, 140 MB: two rows of a large communicator that lie far apart must not take more than that."""

_LEAST_OPEN_ROUNDS = 64
"""However many ranks there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """Rates and algorithms (codes) are `None` where no row has one."""

    seq: Int64Array
    op: npt.NDArray[np.int8]
    size_bytes: Int64Array
    arrival_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    signature: Int64Array
    """What was called, packed (`signatures.packed_signatures`); 0 where ranks need not agree or a row is missing."""
    send_rate: Float64Array | None = None
    recv_rate: Float64Array | None = None
    algorithm: npt.NDArray[np.int8] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(_Calls):
    """Rows of one batch, already validated; every array has shape `(n_rows,)`, `column` is that of their rank."""

    column: Int64Array

    def __len__(self) -> int:
        return len(self.seq)

    def take(self, index: Int64Array | BoolArray | slice) -> Rows:
        """The rows at `index`; of a slice, views."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in _ROW_COLUMNS}
        taken: dict[str, Any] = {name: None if values is None else values[index] for name, values in columns.items()}
        return Rows(**taken)


_ROW_COLUMNS = tuple(column.name for column in fields(Rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRounds(_Calls):
    """Rounds that leave the grid, in order of `seq`; shapes as in `pacehound.model.rounds.Rounds`."""

    def disagreeing(self) -> Int64Array:
        """Positions of the rounds in which two ranks called different things, as far as both are known."""
        if (self.signature == self.signature[:, :1]).all():
            return np.zeros(0, np.int64)  # as nearly always
        lowest = np.where(self.signature > 0, self.signature, _NEVER_NS).min(axis=1, initial=_NEVER_NS)
        differ = (self.signature > 0) & (self.signature != lowest[:, None])
        return np.flatnonzero(differ.any(axis=1))


@dataclass(slots=True)
class _Extras:
    """Columns that few sources see, as long as the grid: made when the first row has one of them."""

    send_rate: Float64Array = field(repr=False)
    recv_rate: Float64Array = field(repr=False)
    algorithm: npt.NDArray[np.int8] = field(repr=False)


_ROWS = ("column", "seq", "op", "size_bytes", "arrival_ns", "start_ns", "end_ns", "signature")
_GRID = ("_closed", "_seen", "_op", "_size_bytes", "_arrival_ns", "_start_ns", "_end_ns", "_signature")
"""One line of each per round. Both as `put_rows` takes them."""


class RoundGrid:
    """Open rounds of one communicator (or pair), one column per member.

    `add` is O(rows), `close_complete` O(open rounds); both are array operations. Rows of a round that has been
    closed are late, a second row for the same (round, rank) is a duplicate: both are counted, neither is used.

    `duplicate_rows`, `late_rows` and `missing_rows` count since the start, and `skipped_rounds` those of gaps.
    """

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.duplicate_rows = 0
        self.late_rows = 0
        self.missing_rows = 0
        self.skipped_rounds = 0
        self._base: int | None = None  # sequence number of the grid's first line
        self._first_seen = 0
        self._length = 0  # lines in use
        self._has_new_rows = False  # since rounds were last looked through for complete ones
        self._extras: _Extras | None = None
        self._allocate(64)

    def _allocate(self, capacity: int) -> None:
        self._op = np.zeros(capacity, np.int8)
        self._size_bytes = np.zeros(capacity, np.int64)
        self._seen = np.zeros((capacity, self.n_ranks), np.bool_)
        self._closed = np.zeros(capacity, np.bool_)
        self._arrival_ns = np.zeros((capacity, self.n_ranks), np.int64)
        self._start_ns = np.zeros((capacity, self.n_ranks), np.int64)
        self._end_ns = np.zeros((capacity, self.n_ranks), np.int64)
        self._signature = np.zeros((capacity, self.n_ranks), np.int64)
        if self._extras is not None:
            self._extras = self._no_extras(capacity)

    def __getstate__(self) -> dict[str, Any]:
        """A snapshot holds the lines that are in use: most of the room is kept free."""
        state = dict(self.__dict__)
        for name in _GRID:
            state[name] = state[name][: self._length]
        if self._extras is not None:
            state["_extras"] = _Extras(**self._extras_at(slice(self._length)))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Compiled loops write where these numbers say: what contradicts itself is refused (`ValueError`)."""
        self.__dict__.update(state)
        n_lines, empty = self._length, RoundGrid(0)
        for name in _GRID:
            array, like = getattr(self, name), getattr(empty, name)
            if array.shape != (n_lines, self.n_ranks)[: like.ndim] or array.dtype != like.dtype:
                raise ValueError(f"a grid of {n_lines} rounds and {self.n_ranks} ranks has {name} as {array.shape}")
        if not 0 <= n_lines <= self._most_open or (self._base is None and n_lines):
            raise ValueError(f"a grid has {n_lines} rounds from {self._base} on")

    @property
    def _most_open(self) -> int:
        """How many rounds may be open."""
        return min(MAX_OPEN_ROUNDS, max(MAX_OPEN_CELLS // self.n_ranks, _LEAST_OPEN_ROUNDS))

    @property
    def _slack(self) -> int:
        """How many rounds before the first one seen may still come."""
        return min(SLACK_ROUNDS, self._most_open // 2)

    def _extras_at(self, lines: Int64Array | slice) -> dict[str, Any]:
        extras = self._extras
        return {} if extras is None else {name: getattr(extras, name)[lines] for name in _Extras.__slots__}

    def signatures_at(self, seq: int) -> Int64Array:
        """What each rank called in a round that is open, shape `(n_ranks,)`; 0 where no row has come."""
        line = seq - (self._base or 0)
        if self._base is None or not 0 <= line < self._length or self._closed[line]:
            return np.zeros(self.n_ranks, np.int64)
        signatures: Int64Array = self._signature[line]
        return signatures

    def _no_extras(self, capacity: int) -> _Extras:
        unseen = np.full((2, capacity, self.n_ranks), np.nan)
        return _Extras(unseen[0], unseen[1], np.zeros(capacity, np.int8))

    def add(self, rows: Rows) -> None:
        """Put rows into the grid.

        Raises
        ------
        InvalidEvent
            Sequence numbers of one batch lie too far apart to be true; none of its rows is used then.
        """
        if len(rows) == 0:
            return
        low, high = int(rows.seq.min()), int(rows.seq.max())
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
            self.begin_anew(low)
        base = self._base
        self._reserve(high - base + 1)
        self._first_seen = min(self._first_seen, low)
        is_used = np.empty(len(rows), np.bool_)
        n_late, n_twice = put_rows(
            base,
            [getattr(rows, name) for name in _ROWS],
            is_used,
            [getattr(self, name) for name in _GRID],
        )
        self.late_rows += n_late
        self.duplicate_rows += n_twice
        self._has_new_rows = True
        if rows.send_rate is not None and rows.recv_rate is not None and rows.algorithm is not None:
            if self._extras is None:
                self._extras = self._no_extras(len(self._op))
            line, column = rows.seq[is_used] - base, rows.column[is_used]
            self._extras.send_rate[line, column] = rows.send_rate[is_used]
            self._extras.recv_rate[line, column] = rows.recv_rate[is_used]
            self._extras.algorithm[line] = rows.algorithm[is_used]

    def begin_anew(self, seq: int) -> None:
        """Rounds go on at `seq`, and what lies before it is given up: nobody told of what lies between."""
        if self._base is not None:
            self.skipped_rounds += max(seq - self._base - self._length, 0)
            self.missing_rows += int((~self._seen[: self._length][~self._closed[: self._length]]).sum())
        self._base, self._first_seen, self._length = max(0, seq - self._slack), seq, 0
        self._allocate(64)

    def is_far_ahead(self, seq: int) -> bool:
        """It stands further ahead of a round than it could if both were true."""
        return self._base is not None and self._base - seq >= self._most_open

    def close_complete(self) -> ClosedRounds | None:
        """Take out every round that all members have reported."""
        if not self._has_new_rows:
            return None
        self._has_new_rows = False
        return self._close(np.asarray(self._seen[: self._length].all(axis=1), np.bool_))

    def close_overdue(
        self, before_ns: int, still_running: BoolArray | None, running_seq: Int64Array
    ) -> ClosedRounds | None:
        """Take out rounds whose missing rows will not come.

        Overdue are rounds that a member entered before `before_ns`, unless a member that is `still_running` (`None`:
        nobody is) has yet to send its row: it will send those from its `running_seq` on. Both have shape `(n_ranks,)`.
        """
        if self._length == 0 or self._base is None:
            return None
        lines = slice(0, self._length)
        seen = self._seen[lines]
        entered = np.where(seen, np.maximum(self._arrival_ns[lines], 1), _NEVER_NS).min(axis=1)
        # A round without any row is overdue when a later one is.
        entered = np.minimum.accumulate(entered[::-1])[::-1]
        overdue: BoolArray = np.zeros(self._length, np.bool_)
        overdue[:] = entered < before_ns
        if still_running is not None:
            seq = self._base + np.arange(self._length)
            is_expected = (seq[:, None] >= running_seq[None, :]) & still_running[None, :] & ~seen
            overdue &= ~is_expected.any(axis=1)
        has_rows = seen.any(axis=1)
        unseen = np.flatnonzero(overdue & ~has_rows & ~self._closed[lines])
        self.missing_rows += self.n_ranks * int((self._base + unseen >= self._first_seen).sum())
        self._closed[unseen] = True  # no row has come at all: nothing can be said but that they are missing
        closed = self._close(overdue & has_rows)
        self._drop_closed_head()
        return closed

    def _close(self, chosen: BoolArray) -> ClosedRounds | None:
        chosen = chosen & ~self._closed[: self._length]
        index = np.flatnonzero(chosen)
        if len(index) == 0 or self._base is None:
            return None
        self.missing_rows += int((~self._seen[index]).sum())
        closed = ClosedRounds(
            seq=self._base + index,
            op=self._op[index],
            size_bytes=self._size_bytes[index],
            arrival_ns=self._arrival_ns[index],
            start_ns=self._start_ns[index],
            end_ns=self._end_ns[index],
            signature=self._signature[index],
            **self._extras_at(index),
        )
        self._closed[index] = True
        self._drop_closed_head()
        return closed

    def _drop_closed_head(self) -> None:
        if self._base is None:
            return
        still_open = np.flatnonzero(~self._closed[: self._length])
        head = int(still_open[0]) if len(still_open) else self._length
        if head == 0:
            return
        self._base += head
        keep = self._length - head
        for array in self._arrays():
            array[:keep] = array[head : self._length].copy()
            array[keep : self._length] = np.nan if array.dtype == np.float64 else 0
        self._length = keep

    def _reserve(self, lines: int) -> None:
        if lines > len(self._op):
            old = self._arrays()
            self._allocate(max(lines, 2 * len(self._op)))
            for new, previous in zip(self._arrays(), old, strict=True):
                new[: len(previous)] = previous
        self._length = max(self._length, lines)

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (*(getattr(self, name) for name in _GRID), *self._extras_at(slice(None)).values())
