"""What one iteration asks of all rounds that are kept, in C (`native/path_walk.c`).

Arrays of entries are sorted by (rank, start), or by (rank, end) for the path; ranks of a stretch ascend, `begins_ns`
and `ends_ns` have their shape. What a loop finds it adds to the arrays that are given for it.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.native_loops import address, pointer

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_NUMBER = ctypes.c_int64


def subtract_calls(
    rank: Int64Array,
    start: Int64Array,
    end: Int64Array,
    counts: BoolArray,
    ranks: Int64Array,
    begins_ns: Int64Array,
    ends_ns: Int64Array,
    own_ns: Int64Array,
) -> None:
    """Take from each rank's time what its counting entries cover, each moment once."""
    native_loops.loaded().path_subtract_calls(
        _NUMBER(len(rank)),
        *(address(one, np.int64) for one in (rank, start, end)),
        address(counts, np.bool_),
        _NUMBER(len(ranks)),
        *(address(one, np.int64) for one in (ranks, begins_ns, ends_ns, own_ns)),
    )


_OF_PATH = ("rank", "end", "round", "round_key", "last_rank", "last_start", "transfer_ns")


class _Path(ctypes.Structure):
    """`struct path` of native/path_walk.c."""

    _fields_ = (("n", _NUMBER), *((name, ctypes.c_void_p) for name in _OF_PATH))


def walk_back(
    rank: int,
    now_ns: int,
    path_rank: Int64Array,
    path_end: Int64Array,
    path_round: Int64Array,
    round_key: Int64Array,
    last_rank: Int64Array,
    last_start: Int64Array,
    transfer_ns: Int64Array,
    ranks: Int64Array,
    begins_ns: Int64Array,
    ranks_ns: Int64Array,
    keys_ns: Int64Array,
) -> None:
    """Charge an iteration, from `now_ns` on `rank` backwards, to ranks and to the keys of rounds."""
    arrays = (path_rank, path_end, path_round, round_key, last_rank, last_start, transfer_ns)
    path = _Path(len(path_rank), *(pointer(one, np.int64) for one in arrays))
    failed = native_loops.loaded().path_walk_back(
        _NUMBER(rank),
        _NUMBER(now_ns),
        ctypes.byref(path),
        _NUMBER(len(ranks)),
        *(address(one, np.int64) for one in (ranks, begins_ns, ranks_ns, keys_ns)),
    )
    if failed:
        raise MemoryError(f"no memory for the walk over {len(ranks)} ranks")


def find_inside(
    rank: Int64Array,
    time_ns: Int64Array,
    ranks: Int64Array,
    begins_ns: Int64Array,
    ends_ns: Int64Array,
    inside: BoolArray,
) -> None:
    """Which (rank, time) lie in the stretch: after the rank's begin, and not after its end."""
    failed = native_loops.loaded().path_find_inside(
        _NUMBER(len(rank)),
        *(address(one, np.int64) for one in (rank, time_ns)),
        _NUMBER(len(ranks)),
        *(address(one, np.int64) for one in (ranks, begins_ns, ends_ns)),
        address(inside, np.bool_),
    )
    if failed:
        raise MemoryError(f"no memory for the places of ranks up to {ranks[-1]}")
