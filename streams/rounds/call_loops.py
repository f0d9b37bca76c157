"""What is worked out of calls before they are joined, in C (`native/calls.c`): times, sizes, signatures."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import DTYPE_BYTES
from pacehound.model.codes import ALGORITHMS as CALL_ALGORITHMS
from pacehound.model.codes import OPS
from pacehound.model.rounds import ALGORITHMS
from streams import native_loops
from streams.arrays_in_c import column, pointer, pointers
from streams.rounds.signatures import (
    ALGORITHM_AT,
    COMPARED_COUNTS,
    COUNT_AT,
    DTYPE_AT,
    N_COUNTS,
    PROTOCOL_AT,
    REDOP_AT,
    REDUCING,
    ROOT_AT,
    ROOTED,
)

Int64Array = npt.NDArray[np.int64]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

_COUNT = ctypes.c_int64
_INT64, _INT32, _INT8, _FLOAT64 = (np.dtype(kind) for kind in (np.int64, np.int32, np.int8, np.float64))

_READ: Mapping[str, np.dtype[Any]] = {
    "op": _INT8,
    "count": _INT64,
    "dtype": _INT8,
    "redop": _INT8,
    "peer": _INT32,
    "direction": _INT8,
    "algorithm": _INT8,
    "protocol": _INT8,
    "launch_ns": _INT64,
    "start_ns": _INT64,
    "end_ns": _INT64,
    "send_rate": _FLOAT64,
    "recv_rate": _FLOAT64,
}
"""Columns of calls, in the order of `struct calls`."""

_NEEDED = frozenset({"op", "launch_ns"})


class _CallsInC(ctypes.Structure):
    """`struct calls` of native/calls.c; it does not keep the arrays."""

    _fields_ = pointers(*_READ)


class _MeaningsInC(ctypes.Structure):
    """`struct meanings` of native/calls.c; it does not keep the arrays."""

    _fields_ = (
        ("n_ops", _COUNT),
        *pointers("is_counted", "is_reducing", "is_rooted"),
        ("n_dtypes", _COUNT),
        *pointers("dtype_bytes"),
        ("n_algorithms", _COUNT),
        *pointers("algorithm_of_rounds"),
        *((name, _COUNT) for name in ("dtype_at", "redop_at", "algorithm_at", "protocol_at", "root_at", "count_at")),
        ("n_counts", _COUNT),
    )


class _ReadyInC(ctypes.Structure):
    """`struct ready` of native/calls.c; it does not keep the arrays."""

    _fields_ = pointers("size_bytes", "signature", "launch", "start", "end", "is_backward", "algorithm")


class _Tally(ctypes.Structure):
    """`struct tally` of native/calls.c."""

    _fields_ = (("n_backward", _COUNT), ("n_pairs", _COUNT), ("n_transfers", _COUNT))


_OF_OPS = [np.array([op in some for op in OPS], np.bool_) for some in (COMPARED_COUNTS, REDUCING, ROOTED)]
_WIDTHS = np.array(DTYPE_BYTES, np.int64)
_OF_ROUNDS = np.array([ALGORITHMS.index(one) if one in ALGORITHMS else 0 for one in CALL_ALGORITHMS], np.int8)
_MEANINGS = _MeaningsInC(
    len(OPS), *map(pointer, _OF_OPS), len(_WIDTHS), pointer(_WIDTHS), len(_OF_ROUNDS), pointer(_OF_ROUNDS),
    DTYPE_AT, REDOP_AT, ALGORITHM_AT, PROTOCOL_AT, ROOT_AT, COUNT_AT, N_COUNTS,
)  # fmt: skip


class ReadyCalls(NamedTuple):
    """What is worked out of calls; every array has shape `(n_rows,)`.

    Attributes
    ----------
    size_bytes
        `count` times the size of `dtype`; 0 where either is unknown.
    signature
        As `signatures.packed` has it: equal calls have equal numbers.
    launch_ns, start_ns, end_ns
        Times as they can be: where they go backwards (or are negative), start and end are taken for unseen.
    is_backward
        Where they do.
    algorithm
        That of a round.
    n_backward, n_pairs, n_transfers
        Of how many rows the times go backwards, how many are between two ranks, and of how many a rate or the
        algorithm is known.

    """

    size_bytes: Int64Array
    signature: Int64Array
    launch_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    is_backward: BoolArray
    algorithm: Int8Array
    n_backward: int
    n_pairs: int
    n_transfers: int


def ready(n_rows: int, columns: Mapping[str, npt.NDArray[Any]]) -> ReadyCalls:
    """Work it out.

    Parameters
    ----------
    n_rows
        How many there are.
    columns
        By name of `CALL_SCHEMA`, shape `(n_rows,)`, names as codes; where nothing is known of a column it may be
        missing, but for `op` and `launch_ns` of rows that there are.

    Raises
    ------
    ValueError
        A column has another length.

    """
    kept = [None if name not in columns else column(columns[name], kind) for name, kind in _READ.items()]
    _check(n_rows, kept)
    of_numbers, of_bytes = np.empty((5, n_rows), np.int64), np.empty((2, n_rows), np.int8)
    first = pointer(of_bytes)
    written = [pointer(of_numbers) + 8 * n_rows * at for at in range(5)]
    tally = _Tally()
    native_loops.loaded().calls_ready(
        _COUNT(n_rows),
        ctypes.byref(_CallsInC(*[None if one is None else pointer(one) for one in kept])),
        ctypes.byref(_MEANINGS),
        ctypes.byref(_ReadyInC(*written, first, first + n_rows)),
        ctypes.byref(tally),
    )
    size_bytes, signature, launch_ns, start_ns, end_ns = of_numbers
    is_backward, algorithm = of_bytes
    return ReadyCalls(
        size_bytes,
        signature,
        launch_ns,
        start_ns,
        end_ns,
        is_backward.view(np.bool_),
        algorithm,
        tally.n_backward,
        tally.n_pairs,
        tally.n_transfers,
    )


def _check(n_rows: int, columns: Sequence[npt.NDArray[Any] | None]) -> None:
    """What C reads is there."""
    for name, one in zip(_READ, columns, strict=True):
        if (one is None and n_rows and name in _NEEDED) or (one is not None and one.shape != (n_rows,)):
            raise ValueError(f"the column {name!r} of {n_rows} calls is {None if one is None else one.shape}")
