"""What is done with every row of every part, and with every open round, in C (`native/rows.c`).

A part has a hundred rows or two, so that what it costs is how often C is called and with how much: the columns of a
flush, and the arrays of a grid, are handed over once, as a structure that holds where they lie.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address, column, pointer, pointers

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

_COUNT = ctypes.c_int64
_INT64, _INT32, _INT8, _BOOL = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.int8), np.dtype(np.bool_)
_FLOAT64 = np.dtype(np.float64)


class RowsInC(ctypes.Structure):
    """`struct rows` of native/rows.c; it does not keep the arrays."""

    _fields_ = pointers(
        "rank", "peer", "direction", "seq", "op", "size_bytes", "launch", "start", "end", "signature",
        "is_backward", "place", "send_rate", "recv_rate", "algorithm",
    )  # fmt: skip


_TRANSFERS = (_FLOAT64, _FLOAT64, _INT8)
_OF_ROWS = (_INT32, _INT32, _INT8, _INT64, _INT8, *(_INT64,) * 5, _BOOL, _INT64, *_TRANSFERS)


class MembersInC(ctypes.Structure):
    """`struct members` of native/rows.c; it does not keep the arrays."""

    _fields_ = (("n", _COUNT), *pointers("ascending", "order"))


class Look(ctypes.Structure):
    """What there is among some rows.

    Attributes
    ----------
    outsider, outside_peer
        The first row whose rank, and the first between two ranks whose peer, is no member; -1 where there is none.
    n_pairs
        How many are between two ranks.
    n_backward
        Of how many the times went backwards.
    n_transfers
        Of how many a rate or the algorithm is known.
    lowest_seq, highest_seq
        Their sequence numbers; of no row, the lowest is the higher one.

    """

    _fields_ = tuple(
        (name, _COUNT)
        for name in (
            "outsider", "outside_peer", "n_pairs", "n_backward", "n_transfers", "lowest_seq", "highest_seq",
        )
    )  # fmt: skip


class SomeInC(ctypes.Structure):
    """`struct some` of native/rows.c: rows next to each other, or those that an index names."""

    _fields_ = (("first", _COUNT), ("n", _COUNT), *pointers("index"))


@dataclass(slots=True)
class SomeRows:
    """Rows that go into one grid, in order, and the lowest and the highest of their sequence numbers."""

    in_c: SomeInC
    lowest_seq: int
    highest_seq: int
    index: Int64Array | None = None
    """Which they are, where they are not next to each other; C reads it."""


class GridInC(ctypes.Structure):
    """`struct grid` of native/rows.c; it does not keep the arrays."""

    _fields_ = (
        ("width", _COUNT),
        *pointers("closed_lines", "seen", "op", "size_bytes", "launch", "start", "end", "signature"),
        *pointers("send_rate", "recv_rate", "algorithm"),
    )


_OF_GRID = (_BOOL, _BOOL, _INT8, *(_INT64,) * 5, *_TRANSFERS)


class _RoundsInC(ctypes.Structure):
    """`struct rounds` of native/rows.c."""

    _fields_ = pointers(
        "seq", "op", "size_bytes", "launch", "start", "end", "signature", "send_rate", "recv_rate", "algorithm"
    )


class _AwaitedInC(ctypes.Structure):
    """`struct awaited` of native/rows.c."""

    _fields_ = pointers("is_running", "from_seq")


def columns_in_c(columns: Sequence[npt.NDArray[Any] | None]) -> tuple[RowsInC, list[npt.NDArray[Any] | None]]:
    """The columns of rows for C, in the order of `RowsInC`, and the arrays that must be kept as long."""
    kept = [None if one is None else column(one, kind) for one, kind in zip(columns, _OF_ROWS, strict=True)]
    where = (None if one is None else pointer(one, kind) for one, kind in zip(kept, _OF_ROWS, strict=True))
    return RowsInC(*where), kept


def members_in_c(ascending: Int64Array, order: Int64Array) -> MembersInC:
    """The ranks that have a place, and where each of them stands; the arrays must be kept as long."""
    return MembersInC(len(ascending), pointer(ascending, _INT64), pointer(order, _INT64))


def grid_in_c(width: int, arrays: Sequence[npt.NDArray[Any]]) -> GridInC:
    """The arrays of a grid, in the order of `GridInC`, with or without the last three; they must be kept as long."""
    return GridInC(width, *map(pointer, arrays, _OF_GRID))


def look_at(rows: RowsInC, where: slice, members: MembersInC) -> Look:
    """Write the places of the ranks of some rows, and tell what there is among them."""
    found = Look()
    native_loops.loaded().rows_look(
        _COUNT(where.start), _COUNT(where.stop), ctypes.byref(rows), ctypes.byref(members), ctypes.byref(found)
    )
    return found


def all_rows(where: slice, found: Look) -> SomeRows:
    """The rows that were looked at, all of them."""
    return SomeRows(SomeInC(where.start, where.stop - where.start, None), found.lowest_seq, found.highest_seq)


@dataclass(frozen=True, slots=True)
class PartedRows:
    """Some rows by whom they are between.

    Attributes
    ----------
    collectives
        Those of all members.
    pairs
        Of each pair, in order: sender, receiver, where its rows end in `index`, and the lowest and the highest of their
        sequence numbers.
    index
        The rows of the pairs, behind those of collectives.

    """

    collectives: SomeRows
    pairs: list[tuple[int, int, int, int, int]]
    index: Int64Array
    in_c: Int64Array
    """`struct pair` of native/rows.c for each."""


def parted(rows: RowsInC, where: slice) -> PartedRows:
    """Which of some rows are collectives, and which those of each pair of sender and receiver, in order of pairs."""
    n = where.stop - where.start
    memory, span, n_pairs = np.empty((2 + 1 + _N_PAIR) * n, np.int64), (_COUNT * 2)(), _COUNT(0)
    first = pointer(memory)
    part = native_loops.loaded().rows_part
    part.restype = _COUNT
    end: int = part(
        _COUNT(where.start),
        _COUNT(where.stop),
        ctypes.byref(rows),
        ctypes.c_void_p(first),
        ctypes.c_void_p(first + 16 * n),
        ctypes.c_void_p(first + 24 * n),
        span,
        ctypes.byref(n_pairs),
    )
    index, lines = memory[2 * n : 3 * n], memory[3 * n : 3 * n + _N_PAIR * n_pairs.value]
    collectives = SomeRows(SomeInC(0, end, first + 16 * n), span[0], span[1], index[:end])
    pairs = [tuple(line) for line in lines.reshape(-1, _N_PAIR).tolist()]
    return PartedRows(collectives, pairs, index, lines)


_N_PAIR = 5
"""Numbers in `struct pair` of native/rows.c."""


def put_rows(some: SomeRows, rows: RowsInC, base: int, grid: GridInC, *, has_transfers: bool) -> tuple[int, int]:
    """Put rows into a grid whose first line is `base`; how many came late, and how many came twice.

    Not taken are rows of closed lines, and of two for one place the second.

    Parameters
    ----------
    some, rows
        Which rows; all of their sequence numbers lie before the end of the grid.
    base
        The sequence number of its first line.
    grid
        Written.
    has_transfers
        Rates and algorithms are put, too: rows and grid have them.

    """
    n_late, n_twice = _COUNT(0), _COUNT(0)
    native_loops.loaded().rows_put(
        ctypes.byref(some.in_c),
        ctypes.byref(rows),
        ctypes.c_bool(has_transfers),
        _COUNT(base),
        ctypes.byref(grid),
        ctypes.byref(n_late),
        ctypes.byref(n_twice),
    )
    return n_late.value, n_twice.value


def put_rows_of_pairs(
    parts: PartedRows, rows: RowsInC, bases: Sequence[int], grids: Sequence[GridInC], *, has_transfers: bool
) -> tuple[list[int], list[int]]:
    """The same for the rows of pairs, each into the grid of its pair; what came late and twice of each."""
    n = len(parts.pairs)
    n_late, n_twice = (_COUNT * n)(), (_COUNT * n)()
    native_loops.loaded().rows_put_pairs(
        ctypes.byref(rows),
        ctypes.c_bool(has_transfers),
        address(parts.index),
        _COUNT(parts.collectives.in_c.n),
        address(parts.in_c),
        _COUNT(n),
        (_COUNT * n)(*bases),
        _pointers_to(grids),
        n_late,
        n_twice,
    )
    return list(n_late), list(n_twice)


def _pointers_to(grids: Sequence[GridInC]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(grids))(*map(ctypes.addressof, grids))


def overdue_lines(
    grid: GridInC,
    n_lines: int,
    before_ns: int,
    base: int,
    is_running: BoolArray | None,
    from_seq: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Which of the first lines are overdue and not closed: ascending, those with rows; and those without any.

    Parameters
    ----------
    grid, n_lines, base
        The grid, how many of its lines are in use, and the sequence number of the first one.
    before_ns
        Overdue is a line that a member has entered before, or a later one.
    is_running, from_seq
        Shape `(width,)`: who may still send a row (`None`: nobody), and from which sequence number on.

    """
    lines, unseen, n_unseen = np.empty(n_lines, np.int64), np.empty(n_lines, np.int64), _COUNT(0)
    kept = None if is_running is None else (column(is_running, _BOOL), column(from_seq, _INT64))
    awaited = _AwaitedInC() if kept is None else _AwaitedInC(*map(pointer, kept, (_BOOL, _INT64)))
    find = native_loops.loaded().grid_overdue
    find.restype = _COUNT
    n_lines_found = find(
        ctypes.byref(grid),
        _COUNT(n_lines),
        _COUNT(before_ns),
        _COUNT(base),
        ctypes.byref(awaited),
        address(lines),
        address(unseen),
        ctypes.byref(n_unseen),
    )
    return lines[:n_lines_found], unseen[: n_unseen.value]


def take_lines(
    grid: GridInC, lines: Int64Array, base: int, width: int, *, has_transfers: bool
) -> tuple[int, bool, dict[str, npt.NDArray[Any]]]:
    """Copy lines out of a grid and close them.

    Parameters
    ----------
    grid, base
        The grid, and the sequence number of its first line.
    lines
        Which ones, in use and ascending.
    width
        Places of a line.
    has_transfers
        The grid has rates and algorithms.

    Returns
    -------
    Of how many places no row had come, whether two signatures of one line differ, and by name what stood there:
    `seq`, `op` and `size_bytes` of each line, shape `(n_lines,)`; `arrival_ns`, `start_ns`, `end_ns` and `signature`
    of each place, shape `(n_lines, width)`; with transfers `send_rate` and `recv_rate` of each place, and the
    `algorithm` of each line.

    """
    n = len(lines)
    memory, where = _room(n, width, has_transfers=has_transfers)
    differ = ctypes.c_bool(False)
    take = native_loops.loaded().grid_take
    take.restype = _COUNT
    n_missing: int = take(
        ctypes.byref(grid),
        address(lines, _INT64),
        _COUNT(n),
        _COUNT(base),
        ctypes.byref(where),
        ctypes.byref(differ),
    )
    return n_missing, differ.value, _columns(memory, n, n, width, has_transfers=has_transfers)


def close_complete(
    grids: Sequence[GridInC], n_lines: Sequence[int], bases: Sequence[int], width: int, *, has_transfers: bool
) -> tuple[list[int], list[int], bool, dict[str, npt.NDArray[Any]]] | None:
    """Take the complete lines out of the first `n_lines` of each grid, as `take_lines` does, and drop the closed heads.

    Of each grid how many lines were taken out and how many dropped, whether two signatures of one line differ, and the
    columns, those of each grid behind those of the one before; `None` where no line is complete. With transfers, of
    grids that have none they are not known.
    """
    n_grids, n_all = len(grids), sum(n_lines)
    memory, where = _room(n_all, width, has_transfers=has_transfers)
    lines, differ = np.empty(n_all, np.int64), ctypes.c_bool(False)
    n_closed, heads = (_COUNT * n_grids)(), (_COUNT * n_grids)()
    close = native_loops.loaded().grids_close_complete
    close.restype = _COUNT
    n: int = close(
        _COUNT(n_grids),
        _pointers_to(grids),
        (_COUNT * n_grids)(*n_lines),
        (_COUNT * n_grids)(*bases),
        address(lines),
        ctypes.byref(where),
        ctypes.byref(differ),
        n_closed,
        heads,
    )
    if not n:
        return None
    columns = _columns(memory, n_all, n, width, has_transfers=has_transfers)
    return list(n_closed), list(heads), differ.value, columns


def _room(n_lines: int, width: int, *, has_transfers: bool) -> tuple[Int64Array, _RoundsInC]:
    """For lines of a grid, and where their columns lie in it (`_columns`).

    One piece of memory for all of them: it is dearer to find out where an array lies than to make it.
    """
    cells, n_cells = n_lines * width, 6 if has_transfers else 4
    memory = np.empty(2 * n_lines + n_cells * cells + 2 * (n_lines // 8 + 1), np.int64)
    first = pointer(memory)
    places = first + 16 * n_lines
    flags = places + 8 * n_cells * cells
    where = [first, flags, first + 8 * n_lines, *(places + 8 * cells * number for number in range(4))]
    if has_transfers:
        where += [places + 8 * cells * 4, places + 8 * cells * 5, flags + n_lines]
    return memory, _RoundsInC(*where)


def _columns(
    memory: Int64Array, n_lines: int, n: int, width: int, *, has_transfers: bool
) -> dict[str, npt.NDArray[Any]]:
    """Of the room for `n_lines` the columns of the first `n`."""
    cells, n_cells = n_lines * width, 6 if has_transfers else 4
    of_places = memory[2 * n_lines : 2 * n_lines + n_cells * cells].reshape(n_cells, n_lines, width)[:, :n]
    of_bytes = memory[2 * n_lines + n_cells * cells :].view(np.int8)
    columns: dict[str, npt.NDArray[Any]] = {
        "seq": memory[:n],
        "op": of_bytes[:n],
        "size_bytes": memory[n_lines : n_lines + n],
        "arrival_ns": of_places[0],
        "start_ns": of_places[1],
        "end_ns": of_places[2],
        "signature": of_places[3],
    }
    if has_transfers:
        columns |= {name: of_places[at].view(np.float64) for name, at in (("send_rate", 4), ("recv_rate", 5))}
        columns["algorithm"] = of_bytes[n_lines : n_lines + n]
    return columns


def drop_head(grid: GridInC, n_lines: int) -> int:
    """Drop the closed lines at the head of a grid; how many they were."""
    drop = native_loops.loaded().grid_drop_head
    drop.restype = _COUNT
    n_dropped: int = drop(ctypes.byref(grid), _COUNT(n_lines))
    return n_dropped
