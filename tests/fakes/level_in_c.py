"""Functions of the level detector's loops in C, by themselves: arrays and records in, numbers out."""

import ctypes

import numpy as np

from streams import native_loops
from streams.arrays_in_c import address
from streams.level.records import record

WHOLE, NUMBER, YES = ctypes.c_int64, ctypes.c_double, ctypes.c_bool


def called(name, gives, *arguments):
    function = getattr(native_loops.loaded(), name)
    function.restype = gives
    return function(*arguments)


def rows(values):
    """A series, and how many rows it has."""
    values = np.ascontiguousarray(values, np.float64)
    return address(values), WHOLE(len(values))


def new(name):
    """An empty record."""
    return np.zeros(1, record(name))


def level(log_times):
    return called("level_of", NUMBER, *rows(log_times))


def measure(log_times, is_averaged, into):
    called("measure", None, *rows(log_times), YES(is_averaged), address(into, record("measure")))


def standard_error(noise, correlation, n_known, n):
    return called("standard_error", NUMBER, NUMBER(noise), NUMBER(correlation), WHOLE(n_known), WHOLE(n))


def strays(log_times, n):
    return called("strays", NUMBER, *rows(log_times), WHOLE(n))


def persists(after, middle, sign, is_long):
    return called("persists", YES, *rows(after), NUMBER(middle), NUMBER(sign), YES(is_long))


def locate(before, log_times, n_after, is_averaged):
    return called("locate", WHOLE, NUMBER(before), *rows(log_times), WHOLE(n_after), YES(is_averaged))


def split(log_times, fewest, most):
    return called("split", WHOLE, *rows(log_times), WHOLE(fewest), WHOLE(most))


def bar(n_blocks, is_averaged):
    return called("drift_bar", NUMBER, WHOLE(n_blocks), YES(is_averaged))


def rows_per_block(steps_per_row):
    return called("drift_rows_per_block", WHOLE, NUMBER(steps_per_row))


def push(drift, step, time_ns, log_time, steps_per_row):
    at = (WHOLE(step), WHOLE(time_ns), NUMBER(log_time), NUMBER(steps_per_row))
    return called("drift_push", YES, address(drift, record("drift")), *at)


def drop_since(drift, step):
    called("drift_drop_since", None, address(drift, record("drift")), WHOLE(step))


def highest_quarter(before):
    return called("drift_highest_quarter", NUMBER, *rows(before))


def onset(known, base, reach):
    is_ramp = WHOLE(0)
    first = called("drift_onset", WHOLE, *rows(known), NUMBER(base), WHOLE(reach), ctypes.byref(is_ramp))
    return first, is_ramp.value


def remember(pattern, index, value):
    kept = address(pattern, record("pattern"))
    return called("pattern_remember", YES, kept, WHOLE(index), NUMBER(value))


def look(pattern):
    return called("pattern_look", YES, address(pattern, record("pattern")))


def offset_of(pattern, index):
    kept = np.array([pattern], record("pattern"))
    return called("pattern_offset_of", NUMBER, address(kept), WHOLE(index))
