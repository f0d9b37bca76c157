"""What iterations ask of all rounds that are kept, in C (`native/path_walk.c`).

Ranks of a stretch ascend, `begins_ns` and `ends_ns` have their shape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address, pointer, pointers

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_NUMBER = ctypes.c_int64

_OF_CALL = ("call_rank", "call_start", "call_end", "reach")
_OF_ENTRY = ("rank", "end", "round")
_OF_ROUND = ("round_key", "last_rank", "last_start", "transfer_ns", "anchor_rank", "anchor", "size_bytes")


class _Path(ctypes.Structure):
    """`struct path` of native/path_walk.c."""

    _fields_ = (
        *((name, _NUMBER) for name in ("n_calls", "n", "n_rounds", "n_keys")),
        *pointers(*_OF_CALL, "counts", "waited", *_OF_ENTRY, *_OF_ROUND),
    )


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of each rank, by (rank, start), all columns of shape `(n_calls,)`.

    Attributes
    ----------
    counts
        They are none of their rank's own time.
    waited
        The same, of those alone that their rank stood still for; `None` where that is all of them.

    """

    rank: Int64Array
    start: Int64Array
    end: Int64Array
    counts: BoolArray
    waited: BoolArray | None


@dataclass(frozen=True, slots=True)
class OfIterations:
    """What is found of some iterations of the same ranks, in nanoseconds: a line of each, of ranks or of keys.

    Attributes
    ----------
    own_ns, most_own_ns
        In no call that counts, and in none that was waited for; `None` where that is the same.
    charged_ranks_ns, charged_keys_ns
        What lies on their critical paths.
    transfers_ns
        Of all their rounds; `n_rounds` and `size_bytes` are how many each has and what these have moved.

    """

    own_ns: Int64Array
    most_own_ns: Int64Array | None
    charged_ranks_ns: Int64Array
    charged_keys_ns: Int64Array
    transfers_ns: npt.NDArray[np.float64]
    n_rounds: list[int]
    size_bytes: list[int]


class Path:
    """What an iteration walks back over: where it lies is looked up once for all iterations.

    Parameters
    ----------
    calls
        Of each rank.
    rank, end, round_of
        Those that a walk goes back over, by (rank, end), and the number of each one's round.
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
        self,
        calls: Calls,
        rank: Int64Array,
        end: Int64Array,
        round_of: Int64Array,
        of_round: Sequence[Int64Array],
        n_keys: int,
    ) -> None:
        if len(of_round) != len(_OF_ROUND):
            raise ValueError(f"a path has {len(of_round)} columns of rounds, not {len(_OF_ROUND)}")
        round_key = of_round[0]
        of_call = (calls.rank, calls.start, calls.end, calls.counts, *(() if calls.waited is None else (calls.waited,)))
        for columns in (of_call, (rank, end, round_of), of_round):
            if len({len(column) for column in columns}) > 1:
                raise ValueError(f"columns of a path have the lengths {[len(column) for column in columns]}")
        for name, numbers, n in (("round", round_of, len(round_key)), ("key", round_key, n_keys)):
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < n):
                raise ValueError(f"a path has a {name} outside 0..{n - 1}")
        self._n_keys = n_keys
        self._has_sends = calls.waited is not None
        reach = np.empty(len(calls.rank), np.int64)
        native_loops.loaded().path_reach(
            _NUMBER(len(reach)), *(address(one, np.int64) for one in (calls.rank, calls.end, reach))
        )
        self._kept = (calls, reach, rank, end, round_of, *of_round)
        self._path = _Path(
            len(calls.rank),
            len(rank),
            len(round_key),
            n_keys,
            *(pointer(one, np.int64) for one in (calls.rank, calls.start, calls.end, reach)),
            pointer(calls.counts, np.bool_),
            None if calls.waited is None else pointer(calls.waited, np.bool_),
            *(pointer(one, np.int64) for one in (rank, end, round_of, *of_round)),
        )

    def measure(
        self, ranks: Int64Array, begins_ns: Int64Array, ends_ns: Int64Array, last_ranks: Int64Array, last_ns: Int64Array
    ) -> OfIterations:
        """What there is to say of iterations that ended last on `last_ranks`, at `last_ns`, shape `(n,)`.

        `begins_ns` and `ends_ns` have the shape `(n, len(ranks))`.
        """
        n, n_ranks, n_keys = len(last_ranks), len(ranks), self._n_keys
        of_ranks, of_keys = np.zeros((n, 3, n_ranks), np.int64), np.zeros((n, n_keys + 2), np.int64)
        transfers_ns = np.zeros((n, n_keys))
        failed = native_loops.loaded().path_measure(
            ctypes.byref(self._path),
            _NUMBER(n),
            _NUMBER(n_ranks),
            *(address(one, np.int64) for one in (ranks, begins_ns, ends_ns, last_ranks, last_ns, of_ranks, of_keys)),
            address(transfers_ns, np.float64),
        )
        if failed:
            raise MemoryError(f"no memory for the walk over {n_ranks} ranks")
        return OfIterations(
            own_ns=of_ranks[:, 0],
            most_own_ns=of_ranks[:, 1] if self._has_sends else None,
            charged_ranks_ns=of_ranks[:, 2],
            charged_keys_ns=of_keys[:, :n_keys],
            transfers_ns=transfers_ns,
            n_rounds=of_keys[:, n_keys].tolist(),
            size_bytes=of_keys[:, n_keys + 1].tolist(),
        )


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
