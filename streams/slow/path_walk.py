"""What one iteration asks of all rounds that are kept, in C (`native/path_walk.c`).

Arrays of entries are sorted by (rank, start), or by (rank, end) for the path; ranks of a stretch ascend, `begins_ns`
and `ends_ns` have their shape. What a loop finds it adds to the arrays that are given for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

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


_OF_ENTRY = ("rank", "end", "round")
_OF_ROUND = ("round_key", "last_rank", "last_start", "transfer_ns", "anchor_rank", "anchor", "size_bytes")


class _Path(ctypes.Structure):
    """`struct path` of native/path_walk.c."""

    _fields_ = (("n", _NUMBER), ("n_rounds", _NUMBER), *((name, ctypes.c_void_p) for name in (*_OF_ENTRY, *_OF_ROUND)))


class Path:
    """What an iteration walks back over: where it lies is looked up once for all iterations.

    Parameters
    ----------
    rank, end, round_of
        Entries by (rank, end), and the number of each one's round.
    of_round
        Of each round its key, who came last to it and when, how long the transfer took from there, a rank and a time
        of its own that say when it was, and how many bytes it has moved.
    n_keys
        So many there are.

    Raises
    ------
    ValueError
        Columns are missing or differ in length, or a round or a key is none that there is.

    """

    def __init__(
        self, rank: Int64Array, end: Int64Array, round_of: Int64Array, of_round: Sequence[Int64Array], n_keys: int
    ) -> None:
        if len(of_round) != len(_OF_ROUND):
            raise ValueError(f"a path has {len(of_round)} columns of rounds, not {len(_OF_ROUND)}")
        round_key = of_round[0]
        for columns in ((rank, end, round_of), of_round):
            if len({len(column) for column in columns}) > 1:
                raise ValueError(f"columns of a path have the lengths {[len(column) for column in columns]}")
        for name, numbers, n in (("round", round_of, len(round_key)), ("key", round_key, n_keys)):
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < n):
                raise ValueError(f"a path has a {name} outside 0..{n - 1}")
        self._n_keys = n_keys
        self._kept = (rank, end, round_of, *of_round)
        self._path = _Path(len(rank), len(round_key), *(pointer(one, np.int64) for one in self._kept))

    def walk_back(
        self, rank: int, now_ns: int, ranks: Int64Array, begins_ns: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """What an iteration that ends at `now_ns` on `rank` is charged to: of each of `ranks`, and of each key."""
        ranks_ns, keys_ns = np.zeros(len(ranks), np.int64), np.zeros(self._n_keys, np.int64)
        failed = native_loops.loaded().path_walk_back(
            _NUMBER(rank),
            _NUMBER(now_ns),
            ctypes.byref(self._path),
            _NUMBER(len(ranks)),
            *(address(one, np.int64) for one in (ranks, begins_ns, ranks_ns, keys_ns)),
        )
        if failed:
            raise MemoryError(f"no memory for the walk over {len(ranks)} ranks")
        return ranks_ns, keys_ns

    def transfers(
        self, ranks: Int64Array, begins_ns: Int64Array, ends_ns: Int64Array
    ) -> tuple[npt.NDArray[np.float64], int, int]:
        """Of the rounds in a stretch the transfer times by key, in nanoseconds, their number and their bytes."""
        total_ns, n_rounds, size_bytes = np.zeros(self._n_keys), _NUMBER(), _NUMBER()
        native_loops.loaded().path_sum_transfers(
            ctypes.byref(self._path),
            _NUMBER(len(ranks)),
            *(address(one, np.int64) for one in (ranks, begins_ns, ends_ns)),
            address(total_ns, np.float64),
            ctypes.byref(n_rounds),
            ctypes.byref(size_bytes),
        )
        return total_ns, n_rounds.value, size_bytes.value


def find_inside(
    rank: Int64Array, time_ns: Int64Array, ranks: Int64Array, begins_ns: Int64Array, ends_ns: Int64Array
) -> BoolArray:
    """Which (rank, time) lie in the stretch: after the rank's begin, and not after its end."""
    inside = np.empty(len(rank), np.bool_)
    native_loops.loaded().path_find_inside(
        _NUMBER(len(rank)),
        *(address(one, np.int64) for one in (rank, time_ns)),
        _NUMBER(len(ranks)),
        *(address(one, np.int64) for one in (ranks, begins_ns, ends_ns)),
        address(inside, np.bool_),
    )
    return inside
