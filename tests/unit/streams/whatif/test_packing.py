"""Rows to tensors: whatever the rows are, C and NumPy do the same with them."""

import numpy as np
import pytest

from streams.whatif import optypes, packing
from streams.whatif.reader import NUMBERS, OpTable
from tests.fakes import whatif_in_numpy


def rows_with_defects(seed, kind):
    """Rows of every sort: unknown types, missing numbers, negative and infinite times, places that come twice."""
    rng = np.random.default_rng(seed)
    n = 4_000
    columns = {name: rng.integers(-1, 4, n).astype(of) for name, of in NUMBERS.items()}
    times = rng.integers(-1, 20, (2, n)).astype(kind)
    times[:, rng.random(n) < 0.01] = np.nan
    times[0, rng.random(n) < 0.01] = np.inf
    return OpTable(
        **columns,
        optype=rng.integers(-1, len(optypes.NAMES), n).astype(np.int8),
        start_s=times[0],
        duration_s=times[1],
        unknown_optypes={},
    )


def packed(table, packing=packing):
    seen, refused = np.zeros((len(optypes.NAMES), 4, 4), np.int64), np.zeros(4, np.int64)
    packing.count_keys(table, seen, refused)
    steps = np.unique(table.step).astype(np.int64)
    is_op = seen > np.median(seen)
    op_of_key = np.where(is_op, np.cumsum(is_op).reshape(is_op.shape) - 1, -1)
    starts_s = np.full((is_op.sum(), len(steps), 4), np.nan, table.start_s.dtype)
    durations_s, first_row, ranks = starts_s.copy(), np.full(is_op.sum(), -1), np.full((4, 4), -1)
    surplus, moved = np.zeros((2, len(steps)), np.int64)
    packing.scatter(table, steps, op_of_key, starts_s, durations_s, first_row, ranks, surplus, moved, refused)
    return [seen, refused, starts_s, durations_s, first_row, ranks, surplus, moved]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(3))
def test_c_and_numpy_put_every_row_in_the_same_place(seed, kind):
    table = rows_with_defects(seed, kind)
    in_c = packed(table)
    assert all(in_c[1] > 0)
    assert all(in_c[6] > 0)
    assert [one.tobytes() for one in packed(table, whatif_in_numpy)] == [one.tobytes() for one in in_c]


def test_columns_that_are_not_contiguous_are_read_right():
    table = rows_with_defects(5, np.float64)
    strided = {name: np.repeat(getattr(table, name), 2)[::2] for name in (*NUMBERS, "optype", "start_s", "duration_s")}
    of_strided = packed(OpTable(**strided, unknown_optypes={}))
    assert [one.tobytes() for one in of_strided] == [one.tobytes() for one in packed(table)]
