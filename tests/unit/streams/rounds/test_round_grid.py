"""The grid of open rounds: which rows it takes, and what a snapshot of it holds."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.errors import InvalidEvent
from streams.rounds.assembly import MAX_OPEN_CELLS, RoundGrid
from tests.fakes.examples import examples
from tests.fakes.grid_rows import add


def test_of_two_rows_for_one_place_the_first_counts():
    grid = RoundGrid(2)
    add(grid, [0, 0, 1], [0, 0, 0])
    add(grid, [1], [0])
    closed = grid.close_complete()
    assert closed.arrival_ns.tolist() == [[10, 12]]
    assert grid.duplicate_rows == 2


def test_rows_of_a_closed_round_are_late():
    grid = RoundGrid(1)
    add(grid, [0, 0], [0, 1])
    grid.close_complete()
    add(grid, [0, 0], [1, 2])
    assert grid.late_rows == 1
    assert grid.close_complete().seq.tolist() == [2]


@pytest.mark.parametrize("cut_at", [[2], [1, 1]], ids=["one batch", "two batches"])
def test_of_two_sizes_the_larger_counts_however_rows_are_cut(cut_at):
    grid = RoundGrid(2)
    at = 0
    for n in cut_at:
        add(grid, [0, 1][at : at + n], [0] * n, size_bytes=[8, 4][at : at + n])
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
            add(one, [0, 1, 63], [seq, seq, seq], has_rates=has_rates)
        restored = pickle.loads(pickle.dumps(restored))
    last = [one.close_overdue(1_000, None, np.zeros(64, np.int64)) for one in (grid, restored)]
    for name in last[0].__slots__:
        first, second = (getattr(closed, name) for closed in last)
        assert (first is None) == (second is None)
        assert first is None or np.array_equal(first, second, equal_nan=getattr(first, "dtype", None) == np.float64)
    assert last[0].seq.tolist() == [0, 3, 500]


def test_a_batch_far_ahead_is_behind_a_gap_and_the_rounds_begin_anew_there():
    grid = RoundGrid(2)
    add(grid, [0, 1, 0], [0, 0, 1])
    grid.close_complete()
    add(grid, [0, 1, 0], [100_000, 100_000, 100_001])
    assert grid.close_complete().seq.tolist() == [100_000]
    assert (grid.skipped_rounds, grid.missing_rows) == (100_000 - 2, 1)
    add(grid, [1], [1])
    add(grid, [1], [100_001])
    assert (grid.late_rows, grid.close_complete().seq.tolist()) == (1, [100_001])


def test_a_batch_far_ahead_of_rows_that_all_came_late_is_taken():
    """They have opened no round that might be complete."""
    grid = RoundGrid(1)
    add(grid, [0], [0])
    grid.close_complete()
    add(grid, [0], [0])
    add(grid, [0], [100_000])
    assert (grid.late_rows, grid.close_complete().seq.tolist()) == (1, [100_000])


def test_numbers_of_one_batch_that_lie_too_far_apart_are_refused_and_change_nothing():
    grid = RoundGrid(1)
    with pytest.raises(InvalidEvent, match="the sequence numbers 3 to 100003"):
        add(grid, [0, 0], [3, 100_003])
    add(grid, [0], [0])
    assert grid.close_complete().seq.tolist() == [0]


@pytest.mark.parametrize("n_ranks", [2, 180, 16_384])
def test_rows_far_apart_take_no_more_of_a_snapshot_than_a_grid_may_have(n_ranks):
    """Two rows of 180 ranks were 528 MB. The rows go far beyond what may be open, so that the grid has begun anew."""
    grid = RoundGrid(n_ranks)
    beyond = min(1 << 17, 6 * MAX_OPEN_CELLS // n_ranks)
    for seq in range(0, beyond, max(60, beyond // 500)):
        add(grid, [0], [seq])
    held_bytes = sum(array.nbytes for array in grid.__getstate__()["_lines"])
    assert held_bytes < 35 * MAX_OPEN_CELLS
    with pytest.raises(InvalidEvent, match=f"of {n_ranks} ranks cannot be open"):
        add(grid, [0, 0], [0, min(65_536, MAX_OPEN_CELLS // n_ranks)])


WIDTH = 3
PARTS = st.lists(st.tuples(st.integers(0, WIDTH - 1), st.integers(0, 12)), max_size=9)


@examples(25)
@given(st.lists(PARTS, max_size=12), st.data())
def test_however_rows_come_each_round_is_closed_once_with_the_first_row_of_each_rank(parts, data):
    """Held against a dictionary of rows; what stays open is closed in the end, but for what is still awaited."""
    grid = RoundGrid(WIDTH)
    arrived, closed, late, twice = {}, {}, 0, 0

    def note(found):
        for at, seq in enumerate(found.seq.tolist() if found is not None else []):
            assert seq not in closed
            closed[seq] = found.arrival_ns[at].tolist()

    for part in parts:
        if part:
            add(grid, *zip(*part, strict=True))
        for at, (place, seq) in enumerate(part):
            if seq in closed:
                late += 1
            elif place in arrived.setdefault(seq, {}):
                twice += 1
            else:
                arrived[seq][place] = at + 10
        if data.draw(st.booleans()):
            note(grid.close_complete())
            assert set(closed) == {seq for seq, ranks in arrived.items() if len(ranks) == WIDTH}
    note(grid.close_complete())
    assert (grid.late_rows, grid.duplicate_rows) == (late, twice)
    assert set(closed) == {seq for seq, ranks in arrived.items() if len(ranks) == WIDTH}

    before_ns = data.draw(st.integers(9, 20))
    running = np.array(data.draw(st.lists(st.booleans(), min_size=WIDTH, max_size=WIDTH)))
    from_seq = np.array(data.draw(st.lists(st.integers(0, 12), min_size=WIDTH, max_size=WIDTH)))
    entered = {
        seq: min(arrived[later][rank] for later in arrived if later >= seq for rank in arrived[later])
        for seq in arrived
    }
    awaited = {
        seq for seq in arrived for rank in range(WIDTH)
        if rank not in arrived[seq] and running[rank] and seq >= from_seq[rank]
    }  # fmt: skip
    overdue = {seq for seq in arrived if seq not in closed and entered[seq] < before_ns and seq not in awaited}
    before = set(closed)
    note(grid.close_overdue(before_ns, running, from_seq))
    assert set(closed) - before == overdue
    assert closed == {seq: [arrived[seq].get(rank, 0) for rank in range(WIDTH)] for seq in closed}
