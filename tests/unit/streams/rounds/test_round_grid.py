"""The grid of open rounds: which rows it takes, and what a snapshot of it holds."""

import pickle

import numpy as np
import pytest

from pacehound.errors import InvalidEvent
from streams.rounds.assembly import MAX_OPEN_CELLS, RoundGrid, Rows


def rows(column, seq, *, size_bytes=1, has_rates=False):
    n = len(seq)
    rates = np.arange(n, dtype=np.float64) if has_rates else None
    return Rows(
        column=np.array(column, np.int64),
        seq=np.array(seq, np.int64),
        op=np.ones(n, np.int8),
        size_bytes=np.broadcast_to(np.asarray(size_bytes, np.int64), n).copy(),
        arrival_ns=np.arange(n) + 10,
        start_ns=np.arange(n) + 20,
        end_ns=np.arange(n) + 30,
        signature=np.ones(n, np.int64),
        send_rate=rates,
        recv_rate=rates,
        algorithm=np.ones(n, np.int8) if has_rates else None,
    )


def test_of_two_rows_for_one_place_the_first_counts():
    grid = RoundGrid(2)
    grid.add(rows([0, 0, 1], [0, 0, 0]))
    grid.add(rows([1], [0]))
    closed = grid.close_complete()
    assert closed.arrival_ns.tolist() == [[10, 12]]
    assert grid.duplicate_rows == 2


def test_rows_of_a_closed_round_are_late():
    grid = RoundGrid(1)
    grid.add(rows([0, 0], [0, 1]))
    grid.close_complete()
    grid.add(rows([0, 0], [1, 2]))
    assert grid.late_rows == 1
    assert grid.close_complete().seq.tolist() == [2]


@pytest.mark.parametrize("cut_at", [[2], [1, 1]], ids=["one batch", "two batches"])
def test_of_two_sizes_the_larger_counts_however_rows_are_cut(cut_at):
    grid = RoundGrid(2)
    at = 0
    for n in cut_at:
        grid.add(rows([0, 1][at : at + n], [0] * n, size_bytes=[8, 4][at : at + n]))
        at += n
    assert grid.close_complete().size_bytes.tolist() == [8]


@pytest.mark.parametrize("has_rates", [False, True])
def test_a_snapshot_goes_on_as_what_it_was_taken_of_and_holds_no_free_lines(has_rates):
    grid = RoundGrid(64)
    empty = pickle.dumps(grid)
    assert len(empty) < 5_000
    restored = pickle.loads(empty)
    for seq in (0, 3, 500):
        for one in (grid, restored):
            one.add(rows([0, 1, 63], [seq, seq, seq], has_rates=has_rates))
        restored = pickle.loads(pickle.dumps(restored))
    last = [one.close_overdue(1_000, None, np.zeros(64, np.int64)) for one in (grid, restored)]
    for name in last[0].__slots__:
        first, second = (getattr(closed, name) for closed in last)
        assert (first is None) == (second is None)
        assert first is None or np.array_equal(first, second, equal_nan=first.dtype == np.float64)
    assert last[0].seq.tolist() == [0, 3, 500]


def test_a_batch_far_ahead_is_behind_a_gap_and_the_rounds_begin_anew_there():
    grid = RoundGrid(2)
    grid.add(rows([0, 1, 0], [0, 0, 1]))
    grid.close_complete()
    grid.add(rows([0, 1, 0], [100_000, 100_000, 100_001]))
    assert grid.close_complete().seq.tolist() == [100_000]
    assert (grid.skipped_rounds, grid.missing_rows) == (100_000 - 2, 1)
    grid.add(rows([1], [1]))
    grid.add(rows([1], [100_001]))
    assert (grid.late_rows, grid.close_complete().seq.tolist()) == (1, [100_001])


def test_numbers_of_one_batch_that_lie_too_far_apart_are_refused_and_change_nothing():
    grid = RoundGrid(1)
    with pytest.raises(InvalidEvent, match="the sequence numbers 3 to 100003"):
        grid.add(rows([0, 0], [3, 100_003]))
    grid.add(rows([0], [0]))
    assert grid.close_complete().seq.tolist() == [0]


@pytest.mark.parametrize("n_ranks", [2, 180, 16_384])
def test_rows_far_apart_take_no_more_of_a_snapshot_than_a_grid_may_have(n_ranks):
    """Two rows of 180 ranks were 528 MB. The rows go far beyond what may be open, so that the grid has begun anew."""
    grid = RoundGrid(n_ranks)
    for seq in range(0, min(1 << 17, 16 * MAX_OPEN_CELLS // n_ranks), 60):
        grid.add(rows([0], [seq]))
    held_bytes = sum(array.nbytes for array in grid.__getstate__().values() if isinstance(array, np.ndarray))
    assert held_bytes < 35 * MAX_OPEN_CELLS
    with pytest.raises(InvalidEvent, match=f"of {n_ranks} ranks cannot be open"):
        grid.add(rows([0, 0], [0, min(65_536, MAX_OPEN_CELLS // n_ranks)]))
