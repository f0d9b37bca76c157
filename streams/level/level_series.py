"""The state of one series of step times, and what each row does to it, in C (`native/level_series.c`)."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address
from streams.level.bocd import PRUNE
from streams.level.records import record

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Series = npt.NDArray[np.void]
"""One record of `series` each."""

ChangeKind = Literal["onset", "worse", "eased", "relief", "speedup"]
State = Literal["learning", "healthy", "slow"]

STATES: tuple[State, ...] = ("learning", "healthy", "slow")
KINDS: tuple[ChangeKind, ...] = ("onset", "worse", "eased", "relief", "speedup")
"""Both in the order of their codes in native/level_series.c."""
NONE = -1


def new_series(n: int, min_change: float, small_changes: bool, exact: bool) -> Series:
    """The state of `n` series that have seen nothing."""
    records = np.zeros(n, record("series"))
    records["min_log_change"] = math.log1p(min_change)
    records["finds_small"] = small_changes
    records["prune"] = 0.0 if exact else PRUNE
    return records


def advance(one: Series, step: int, time_ns: int, step_time_s: float, n_steps: float) -> int:
    """Take one row, the mean of `n_steps` steps; the kind of change that it completes, or -1."""
    kind: int = _advance()(address(one, record("series")), step, time_ns, step_time_s, n_steps)
    return kind


@cache
def _advance() -> Any:
    """A small job calls it hundreds of times a second: what it takes and returns is said once."""
    take = native_loops.loaded().series_advance
    take.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_double)
    take.restype = ctypes.c_int64
    return take


def advance_all(all_series: Series, step: int, time_ns: int, step_time_s: FloatArray, kinds: Int64Array) -> bool:
    """Take one row of each series; whether any completes a change, `kinds` says which."""
    take = native_loops.loaded().series_advance_all
    take.restype = ctypes.c_bool
    has_any: bool = take(
        address(all_series, record("series")),
        ctypes.c_int64(len(all_series)),
        ctypes.c_int64(step),
        ctypes.c_int64(time_ns),
        address(step_time_s, np.float64),
        address(kinds, np.int64),
    )
    return has_any


def rebaseline(one: Series) -> None:
    """Take the present level for healthy."""
    native_loops.loaded().series_rebaseline(address(one, record("series")))


def announce(one: Series) -> None:
    """A pause had been announced: the next row may still be disturbed."""
    native_loops.loaded().series_announce(address(one, record("series")))


def is_sound(one: Series) -> bool:
    """Whether a record's counters lie within its arrays, where the loops write."""
    ask = native_loops.loaded().series_is_sound
    ask.restype = ctypes.c_bool
    found: bool = ask(address(one, record("series")))
    return found
