"""Arranging the rounds of a stretch of time for the critical path, in C (`native/round_index.c`)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OPS
from streams import native_loops
from streams.arrays_in_c import address, pointer, pointers
from streams.rounds.round_loops import ENDS_FOR_ALL
from streams.slow.ordering import MAX_ABSENT
from streams.slow.thresholds import AT_ONCE_NS, AT_ONCE_SHARE, BESIDE_SHARE

Int64Array = npt.NDArray[np.int64]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

_NUMBER = ctypes.c_int64
_NO_MEMORY = -2
_ALL_WAIT = np.array([op in ENDS_FOR_ALL for op in OPS], np.bool_)

_OF_BLOCKS = (
    "lengths", "widths", "key", "is_pair", "sees_transfer", "is_uncertain", "members", "place", "offset_ns", "ranks",
    "op",
)  # fmt: skip
_CELLS = ("arrival", "start", "end")
OF_ROUND = ("round_key", "last_rank", "last_start", "transfer", "anchor_rank", "anchor")
"""Columns of `Arranged.rounds`, in the order of `struct arranged`."""

_OF_ENTRY = ("rank", "start", "end", "round")
_OF_LOST = ("lost_rank", "lost_round", "lost_start", "lost_end")


class _Blocks(ctypes.Structure):
    """`struct blocks` of native/round_index.c."""

    _fields_ = (
        *((name, _NUMBER) for name in ("n_blocks", "n_rounds", "n_members", "n_cells", "n_ops", "n_ranks")),
        *pointers(*_OF_BLOCKS, *_CELLS, "all_wait"),
    )


class _Arranged(ctypes.Structure):
    """`struct arranged` of native/round_index.c."""

    _fields_ = (
        *pointers(*OF_ROUND, "rank", "entry_start", "entry_end", "round", "is_send", *_OF_LOST),
        *((name, _NUMBER) for name in ("n_entries", "n_lost")),
    )


@dataclass(frozen=True, slots=True)
class Arranged:
    """What is found in blocks of rounds.

    Attributes
    ----------
    rounds
        By name, of each round: `round_key`; who started last, and when (`last_rank`, `last_start`); how long the
        `transfer` took from there, 0 where that is unknown; a rank and a time of its own that say when it was
        (`anchor_rank`, `anchor`).
    entries
        Of each cell with a start and an end, by rank, start, end and round: `rank`, `start`, `end`, `round`.
    is_send
        Of each entry, whether it is a pair's sender.
    lost
        Of each cell without any time, `lost_rank`, `lost_round`, and from when to when it lasted at least
        (`lost_start`, `lost_end`).

    """

    rounds: dict[str, Int64Array]
    entries: dict[str, Int64Array]
    is_send: BoolArray
    lost: dict[str, Int64Array]


def arrange(
    lengths: Int64Array,
    widths: Int64Array,
    key: Int64Array,
    is_pair: BoolArray,
    sees_transfer: BoolArray,
    is_uncertain: BoolArray,
    members: Int64Array,
    offset_ns: Int64Array,
    op: Int8Array,
    cells: tuple[Int64Array, Int64Array, Int64Array],
) -> Arranged:
    """Find what `Arranged` holds.

    Parameters
    ----------
    lengths, widths, key, is_pair, sees_transfer, is_uncertain
        Of each block: its rounds and its ranks, the number of its communicator or pair, whether it is a pair, whether
        starts and ends are seen, and whether clocks of its ranks cannot be compared.
    members, offset_ns
        Of each rank of each block: who it is, and how far its clock is ahead.
    op
        Of each round.
    cells
        Arrivals, starts and ends of each rank in each round.

    Raises
    ------
    ValueError
        The blocks have other numbers of rounds or cells than the columns, a block has no ranks, or there is no such
        operation.
    MemoryError
        There is none for the calls of one rank.

    """
    of_blocks = (lengths, widths, key, is_pair, sees_transfer, is_uncertain)
    for columns in (of_blocks, (members, offset_ns), cells):
        if len({len(column) for column in columns}) > 1:
            raise ValueError(f"columns of blocks of rounds have the lengths {[len(column) for column in columns]}")
    n_rounds, n_cells = len(op), len(cells[0])
    kinds = (*[np.int64] * 3, *[np.bool_] * 3, *[np.int64] * 4, np.int8)
    place, ranks = _among_ranks(members)
    given: tuple[npt.NDArray[Any], ...] = (*of_blocks, members, place, offset_ns, ranks, op)
    blocks = _Blocks(
        len(lengths),
        n_rounds,
        len(members),
        n_cells,
        len(_ALL_WAIT),
        len(ranks),
        *(pointer(one, kind) for one, kind in zip(given, kinds, strict=True)),
        *(pointer(one, np.int64) for one in cells),
        pointer(_ALL_WAIT, np.bool_),
    )
    of_round = np.empty((len(OF_ROUND), n_rounds), np.int64)
    of_entry, of_lost = (np.empty((len(names), n_cells), np.int64) for names in (_OF_ENTRY, _OF_LOST))
    is_send = np.empty(n_cells, np.bool_)
    found = _Arranged(
        *(pointer(one, np.int64) for one in (*of_round, *of_entry)),
        pointer(is_send, np.bool_),
        *(pointer(one, np.int64) for one in of_lost),
    )
    failed = native_loops.loaded().index_arrange(ctypes.byref(blocks), ctypes.byref(found))
    if failed == _NO_MEMORY:
        raise MemoryError(f"no memory to put the calls of {len(ranks)} ranks into order")
    if failed:
        raise ValueError(
            f"{len(lengths)} blocks do not have the {n_rounds} rounds, {len(members)} ranks and {n_cells} cells that "
            f"are given, one has no ranks, or an operation is outside 0..{len(OPS) - 1}"
        )
    return Arranged(
        rounds=dict(zip(OF_ROUND, of_round, strict=True)),
        entries=dict(zip(_OF_ENTRY, of_entry[:, : found.n_entries], strict=True)),
        is_send=is_send[: found.n_entries],
        lost=dict(zip(_OF_LOST, of_lost[:, : found.n_lost], strict=True)),
    )


def _among_ranks(members: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Of each member its place among ranks that ascend, and these: all from the lowest to the highest one, if no more
    than some of them are absent.
    """
    if not len(members):
        return members, members
    lowest = int(members.min())
    n_ranks = int(members.max()) + 1 - lowest
    if n_ranks > len(members) + MAX_ABSENT:
        ranks, place = np.unique(members, return_inverse=True)
        return place.astype(np.int64, copy=False), ranks
    return members - lowest, np.arange(lowest, lowest + n_ranks)


def free_sends(rank: Int64Array, start: Int64Array, end: Int64Array, is_send: BoolArray) -> BoolArray:
    """Which sends, of entries by (rank, start), their rank did not stand still for."""
    is_free_send = np.empty(len(rank), np.bool_)
    native_loops.loaded().index_find_free_sends(
        _NUMBER(len(rank)),
        *(address(one, np.int64) for one in (rank, start, end)),
        address(is_send, np.bool_),
        ctypes.c_double(AT_ONCE_NS),
        ctypes.c_double(AT_ONCE_SHARE),
        address(is_free_send, np.bool_),
    )
    return is_free_send


def waits_from(rank: Int64Array, start: Int64Array, end: Int64Array, is_send: BoolArray) -> Int64Array | None:
    """From when on each entry, by (rank, start), was waited in; `None` where that is from its start on for all of them.

    A send that contains whole calls of its rank ran beside them: it was waited for after the last of them at the
    earliest. (gloo tells the end of a send when somebody waits for it, which may be at the end of an iteration.)
    """
    waits = np.empty(len(rank), np.int64)
    find = native_loops.loaded().index_find_waits
    find.restype = ctypes.c_bool
    has_any = find(
        _NUMBER(len(rank)),
        *(address(one, np.int64) for one in (rank, start, end)),
        address(is_send, np.bool_),
        address(waits, np.int64),
    )
    return waits if has_any else None


def beside(
    rank: Int64Array,
    start: Int64Array,
    end: Int64Array,
    round_of: Int64Array,
    round_key: Int64Array,
    is_pair: BoolArray,
) -> BoolArray:
    """Which entries of collectives, by (rank, start), contain whole calls of others, where most of their key do.

    `round_of` is the number of each entry's round, `round_key` the number of each round's key, `is_pair` is said of
    each key.
    """
    is_beside = np.empty(len(rank), np.bool_)
    n_of_key = np.empty(2 * len(is_pair), np.int64)
    failed = native_loops.loaded().index_find_beside(
        _NUMBER(len(rank)),
        *(address(one, np.int64) for one in (rank, start, end, round_of)),
        _NUMBER(len(round_key)),
        address(round_key, np.int64),
        _NUMBER(len(is_pair)),
        address(is_pair, np.bool_),
        ctypes.c_double(BESIDE_SHARE),
        address(n_of_key, np.int64),
        address(is_beside, np.bool_),
    )
    if failed:
        raise ValueError(f"entries have rounds outside 0..{len(round_key) - 1}, or keys outside 0..{len(is_pair) - 1}")
    return is_beside
