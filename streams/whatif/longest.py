"""When each step ends, by the longest path through the contracted graph, many lanes at a time.

A lane is one DP rank in one step. Lanes lie side by side in memory; they meet only where DP ranks wait for each other.
In C (`native/longest.c`), which works on 256 lanes at a time so that their ends stay in the cache.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address, pointer, pointers
from streams.whatif.graph import Graph

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

IDEAL, KEPT, KEPT_ON_SOME = 0, 1, 2
"""What an operation takes: the ideal of its type, its own duration, or that on some DP ranks only."""


def together(
    graph: Graph,
    own_s: FloatArray,
    ideal_s: Float64Array,
    keeps: Int8Array,
    keeps_on: BoolArray,
    end_s: Float64Array,
    optimizer_end_s: Float64Array,
) -> None:
    """When steps end if all DP ranks run with the same choice of operations that keep their own durations.

    Parameters
    ----------
    graph
        What waits for what.
    own_s, ideal_s
        Shapes `(n_ops, n_steps, n_dp)` and `(n_ops,)`.
    keeps
        IDEAL, KEPT or KEPT_ON_SOME for each operation, shape `(n_ops,)`.
    keeps_on
        On which DP ranks, shape `(n_ops, n_dp)`; for operations that are KEPT_ON_SOME, else of no matter.
    end_s, optimizer_end_s
        Shape `(n_steps,)`; written: when the last operation, and the last optimizer, of each step ends.

    """
    _in_c(
        "together",
        graph,
        own_s,
        address(ideal_s, np.float64),
        address(keeps, np.int8),
        address(keeps_on, np.bool_),
        address(end_s, np.float64),
        address(optimizer_end_s, np.float64),
    )


def alone(
    graph: Graph,
    own_s: FloatArray,
    ideal_s: Float64Array,
    keeps: Int8Array,
    end_s: Float64Array,
    optimizer_end_s: Float64Array,
) -> None:
    """When steps end if one DP rank keeps operations of its own and all others are ideal: for every DP rank at once.

    The others are all alike, so one of them stands for them: each lane has an ideal companion, and the two meet where
    DP ranks wait for each other. What would take `n_dp` simulations of all lanes takes one of twice the lanes.

    Parameters
    ----------
    graph, own_s, ideal_s, keeps
        As in `together`, without KEPT_ON_SOME.
    end_s, optimizer_end_s
        Shape `(n_steps, n_dp)`; written.

    """
    _in_c(
        "alone",
        graph,
        own_s,
        address(ideal_s, np.float64),
        address(keeps, np.int8),
        address(end_s, np.float64),
        address(optimizer_end_s, np.float64),
    )


def timeline(
    graph: Graph,
    own_s: FloatArray,
    delays_s: FloatArray,
    is_delayed: BoolArray,
    starts_s: Float64Array,
    ends_s: Float64Array,
) -> None:
    """When each operation is launched and ends; with launch delays for those operations that `is_delayed` names.

    Parameters
    ----------
    graph
        What waits for what.
    own_s, delays_s
        Shape `(n_ops, n_steps, n_dp)`.
    is_delayed
        Shape `(n_ops, n_dp)`.
    starts_s, ends_s
        Shape `(n_ops, n_steps, n_dp)`; written. The start of a transfer is its launch.

    """
    _in_c(
        "timeline",
        graph,
        own_s,
        address(np.ascontiguousarray(delays_s, own_s.dtype)),
        address(is_delayed, np.bool_),
        address(starts_s, np.float64),
        address(ends_s, np.float64),
    )


_ARRAYS = (
    *("member_bounds", "members", "wait_bounds", "waits", "own_bounds", "own_waits"),
    *("over_dp", "slot", "is_last", "is_optimizer"),
)


class _Graph(ctypes.Structure):
    """`struct graph` of native/longest.c."""

    _fields_ = (
        *pointers(*_ARRAYS),
        ("n_nodes", ctypes.c_int64),
        ("n_slots", ctypes.c_int64),
    )


def _in_c(function: str, graph: Graph, own_s: FloatArray, *arrays: ctypes.c_void_p) -> None:
    """Have it done by the function in C: all arrays but `own_s` are given as they are there."""
    own_s = np.ascontiguousarray(own_s)
    arrays_of_graph = {name: pointer(getattr(graph, name)) for name in _ARRAYS}
    passed = _Graph(**arrays_of_graph, n_nodes=len(graph.over_dp), n_slots=graph.n_slots)
    shape = (ctypes.c_int64(n) for n in own_s.shape)
    run = getattr(native_loops.loaded(), f"{function}_{own_s.dtype}")
    if run(ctypes.byref(passed), address(own_s), *shape, *arrays):
        raise MemoryError(f"no memory for the ends of {own_s.shape[1] * own_s.shape[2]} lanes")
