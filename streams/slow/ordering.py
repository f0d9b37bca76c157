"""The order of many times of many ranks: what `numpy.lexsort` says, several times as fast."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

_LARGEST = 1 << 62


def order_by(rank: Int64Array, time_ns: Int64Array, then: Int64Array) -> Int64Array:
    """Indices that sort by rank, then time, then `then`, then place; all arrays have shape `(n,)`.

    A rank and a time are packed into one number, for which sorting is vectorised; only what is equal in both is looked
    at again. Spans of time that do not fit (years) are sorted in the ordinary way.

    >>> order_by(np.array([1, 0, 0, 0]), np.array([5, 9, 7, 7]), np.array([0, 0, 2, 1])).tolist()
    [3, 2, 1, 0]
    """
    if not len(rank):
        return np.zeros(0, np.int64)
    first_ns, lowest = int(time_ns.min()), int(rank.min())
    span_ns = int(time_ns.max()) - first_ns + 1
    if (int(rank.max()) - lowest + 1) * span_ns >= _LARGEST:
        return np.lexsort((then, time_ns, rank))
    packed = (rank - lowest) * span_ns + (time_ns - first_ns)
    order = np.argsort(packed)
    ordered = packed[order]
    is_equal = np.append(ordered[1:] == ordered[:-1], False)
    is_equal[1:] |= is_equal[:-1]
    at = np.flatnonzero(is_equal)
    if len(at):
        tied = order[at]
        order[at] = tied[np.lexsort((tied, then[tied], packed[tied]))]
    return order
