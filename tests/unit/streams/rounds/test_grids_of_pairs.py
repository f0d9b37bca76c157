"""Rows of pairs go into the grids of these pairs, and complete rounds leave all grids, as of each pair by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.codes import DIRECTIONS
from streams.rounds.assembly import RoundGrid, add_to_pairs, close_complete
from streams.rounds.call_rows import CallRows
from streams.rounds.row_loops import parted
from tests.fakes.examples import examples

Pair = tuple[int, int]
ROW = st.tuples(
    st.sampled_from(["none", "send", "recv"]), st.integers(0, 2), st.integers(0, 2), st.integers(0, 6)
).filter(lambda row: row[0] == "none" or row[1] != row[2])
BATCHES = st.lists(st.tuples(st.lists(ROW, max_size=12), st.booleans()), max_size=8)
"""Direction, rank, peer and number of each row, and whether the batch has rates."""


def rows_of(batch: list[tuple[str, int, int, int]], first_ns: int, *, has_rates: bool) -> CallRows:
    directions, ranks, peers, seq = zip(*batch, strict=True)
    n = len(batch)
    arrival_ns = first_ns + np.arange(n)
    return CallRows(
        rank=np.array(ranks, np.int32),
        peer=np.array(peers, np.int32),
        direction=np.array([DIRECTIONS.index(one) for one in directions], np.int8),
        seq=np.array(seq, np.int64),
        op=np.ones(n, np.int8),
        size_bytes=arrival_ns.copy(),
        arrival_ns=arrival_ns,
        start_ns=arrival_ns + 1,
        end_ns=arrival_ns + 2,
        signature=np.ones(n, np.int64),
        is_backward=None,
        send_rate=arrival_ns / 2 if has_rates else None,
        recv_rate=arrival_ns / 4 if has_rates else None,
        algorithm=np.ones(n, np.int8) if has_rates else None,
    )


class Plainly:
    """Each side of each round of each pair, the first row that came of it, and what has been closed."""

    def __init__(self) -> None:
        self.open: dict[tuple[Pair, int], dict[int, tuple[int, bool]]] = {}
        self.closed: set[tuple[Pair, int]] = set()
        self.late: dict[Pair, int] = {}
        self.twice: dict[Pair, int] = {}

    def add(self, pair: Pair, seq: int, side: int, arrival_ns: int, *, has_rates: bool) -> None:
        sides = self.open.setdefault((pair, seq), {})
        if (pair, seq) in self.closed:
            self.late[pair] = self.late.get(pair, 0) + 1
        elif side in sides:
            self.twice[pair] = self.twice.get(pair, 0) + 1
        else:
            sides[side] = arrival_ns, has_rates

    def complete(self) -> list[tuple[Pair, int, list[int]]]:
        """Pair, number and arrivals of both sides, in order."""
        found = sorted(one for one, sides in self.open.items() if len(sides) == 2 and one not in self.closed)
        self.closed |= set(found)
        return [(pair, seq, [self.open[pair, seq][side][0] for side in (0, 1)]) for pair, seq in found]


@given(BATCHES, st.data())
@examples(60)
def test_however_rows_come_each_round_of_a_pair_is_closed_once(
    batches: list[tuple[list[tuple[str, int, int, int]], bool]], data: st.DataObject
) -> None:
    grids: dict[Pair, RoundGrid] = {}
    plainly, first_ns = Plainly(), 10
    for batch, has_rates in batches:
        if batch:
            rows = rows_of(batch, first_ns, has_rates=has_rates)
            parts = parted(rows.in_c, slice(0, len(batch)))
            mine = []
            for sender, receiver, _, low, high in parts.pairs:
                mine.append(grids.setdefault((sender, receiver), RoundGrid(2)))
                assert mine[-1].make_room(low, high, has_transfers=has_rates)
            add_to_pairs(mine, rows, parts, has_transfers=has_rates)
        for at, (direction, rank, peer, seq) in enumerate(batch):
            if direction != "none":
                pair = (rank, peer) if direction == "send" else (peer, rank)
                plainly.add(pair, seq, int(direction == "recv"), first_ns + at, has_rates=has_rates)
        first_ns += len(batch)
        if not data.draw(st.booleans()):
            continue
        placed = sorted(grids.items())
        closed = close_complete([grid for _, grid in placed])
        expected = plainly.complete()
        assert (closed is None) == (not expected)
        if closed is None:
            continue
        n_of_each, rounds = closed
        pairs = [pair for (pair, _), n in zip(placed, n_of_each, strict=True) for _ in range(n)]
        assert list(zip(pairs, rounds.seq.tolist(), rounds.arrival_ns.tolist(), strict=True)) == expected
        assert rounds.end_ns.tolist() == [[ns + 2 for ns in sides] for _, _, sides in expected]
        assert rounds.size_bytes.tolist() == [max(sides) for _, _, sides in expected]
        assert not rounds.signature.any()
        if rounds.send_rate is not None and rounds.recv_rate is not None:
            known = [[plainly.open[pair, seq][side][1] for side in (0, 1)] for pair, seq, _ in expected]
            rates = [
                [ns / 2 if is_known else None for ns, is_known in zip(sides, of_round, strict=True)]
                for (_, _, sides), of_round in zip(expected, known, strict=True)
            ]
            seen = np.where(np.isnan(rounds.send_rate), None, rounds.send_rate).tolist()  # type: ignore[call-overload]
            assert seen == rates
            assert np.array_equal(rounds.recv_rate * 2, rounds.send_rate, equal_nan=True)
    assert {pair: grid.late_rows for pair, grid in grids.items() if grid.late_rows} == plainly.late
    assert {pair: grid.duplicate_rows for pair, grid in grids.items() if grid.duplicate_rows} == plainly.twice


def test_rows_that_a_grid_has_no_room_for_are_not_written_behind_it() -> None:
    rows = rows_of([("send", 0, 1, 5), ("send", 0, 2, 700), ("recv", 2, 0, 700)], 10, has_rates=False)
    parts = parted(rows.in_c, slice(0, 3))
    grids = [RoundGrid(2), RoundGrid(2)]
    assert grids[0].make_room(5, 5, has_transfers=False)
    assert grids[1].make_room(0, 3, has_transfers=False)
    with pytest.raises(ValueError, match="the grid of ranks 0 and 2 ends before 4: no room for 700"):
        add_to_pairs(grids, rows, parts, has_transfers=False)
    assert close_complete(grids) is None


def test_of_no_grid_nothing_is_complete() -> None:
    assert close_complete([]) is None
    assert close_complete([RoundGrid(2)]) is None
