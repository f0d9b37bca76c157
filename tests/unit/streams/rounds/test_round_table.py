"""What many ask of rounds: found once for all blocks, as a plain reading of each round says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import OPS, Sees
from pacehound.model.rounds import Rounds
from streams.rounds import round_loops
from streams.rounds.round_table import RoundsOfKind, RoundTable
from tests.fakes.hand_made_rounds import rounds_at

MS = 10**6
NEVER_NS = np.iinfo(np.int64).max

TIMES = st.one_of(st.just(0), st.integers(1, 40), st.integers(-(2**61), 2**61))


@st.composite
def blocks(draw: st.DrawFn) -> list[Rounds]:
    """Blocks of any lengths and widths, whose times, operations and sizes may be anything."""
    made = []
    for number in range(draw(st.integers(0, 5))):
        n_rounds, n_ranks = draw(st.integers(0, 4)), draw(st.integers(1, 4))
        arrival, start, end = (
            np.array([[draw(TIMES) for _ in range(n_ranks)] for _ in range(n_rounds)], np.int64).reshape(-1, n_ranks)
            for _ in range(3)
        )
        block = rounds_at(f"c{number % 3}", range(n_ranks), start, end, sees=draw(st.sampled_from(list(Sees))))
        ops = np.array([draw(st.integers(0, len(OPS) - 1)) for _ in range(n_rounds)], np.int8)
        sizes = np.array([draw(st.sampled_from([4, 8, 2**60])) for _ in range(n_rounds)], np.int64)
        is_pair = n_ranks == 2 and draw(st.booleans())
        made.append(replace(block, arrival_ns=arrival, op=ops, size_bytes=sizes, is_pair=is_pair))
    return made


def read_plainly(op: str, arrival: list[int], start: list[int], end: list[int]) -> dict[str, int]:
    """What is said of one round."""
    begun = [a if a > 0 else b for a, b in zip(start, arrival, strict=True)]
    durations = [e - b for e, b in zip(end, begun, strict=True) if e > 0 and b > 0]
    unseen = [0] * (len(end) - len(durations))
    if op in round_loops.ENDS_FOR_ALL:
        transfer = min((e - s for e, s in zip(end, start, strict=True) if e > 0), default=0)
    else:
        transfer = max(end) - max(start)
    is_known = min(start) > 0 and max(end) > 0 and transfer > 0
    return {
        "times_ns": max(end) if max(end) > 0 else max(0, *arrival),
        "n_seen": len(durations),
        "longest_ns": max([*durations, *unseen]),
        "shortest_ns": min(durations, default=NEVER_NS),
        "transfer_ns": transfer if is_known else 0,
    }


@given(blocks())
def test_all_columns_are_what_a_plain_reading_of_each_round_says(made: list[Rounds]) -> None:
    table = RoundTable(made)
    assert table.blocks == [block for block in made if len(block)]
    number = 0
    for place, block in enumerate(table.blocks):
        assert np.array_equal(table.times_of(place), block.times_ns)
        assert table.last_ns[place] == block.time_ns
        for line in range(len(block)):
            cells = [getattr(block, name)[line].tolist() for name in ("arrival_ns", "start_ns", "end_ns")]
            for name, value in read_plainly(OPS[block.op[line]], *cells).items():
                assert getattr(table, name)[number] == value, name
            number += 1
    assert number == len(table.times_ns)


@given(blocks())
def test_each_round_of_a_collective_is_in_one_kind_and_kinds_ascend(made: list[Rounds]) -> None:
    table = RoundTable(made)
    for place, (block, kinds) in enumerate(zip(table.blocks, table.kinds, strict=True)):
        assert [(kind.op, kind.size_bytes) for kind in kinds] == sorted({(kind.op, kind.size_bytes) for kind in kinds})
        lines = np.arange(len(table.op))
        found = sorted(line for kind in kinds for line in lines[kind.lines].tolist())
        first, end = table.first[place : place + 2].tolist()
        assert found == ([] if block.is_pair else list(range(first, end)))
        for kind in kinds:
            assert set(table.op[kind.lines].tolist()) == {kind.op}
            assert set(table.size_bytes[kind.lines].tolist()) == {kind.size_bytes}
            assert (np.diff(lines[kind.lines]) > 0).all()


def transfers_ms(start_ms: Any, end_ms: Any, op: str) -> list[float]:
    block = rounds_at("c", range(np.shape(start_ms)[1]), np.array(start_ms) * MS, np.array(end_ms) * MS, op=op)
    return [ns / MS for ns in RoundTable([block]).transfer_ns.tolist()]


def test_a_transfer_starts_with_the_last_rank() -> None:
    start, end = [[10, 30, 20], [10, 12, 11]], [[40, 40, 41], [20, 20, 20]]
    assert transfers_ms(start, end, "broadcast") == [11, 8]


def test_the_transfer_of_a_round_with_a_missing_start_no_end_or_contradicting_clocks_is_unknown() -> None:
    start, end = [[10, 0], [10, 20], [10, 90]], [[40, 40], [0, 0], [40, 40]]
    assert transfers_ms(start, end, "broadcast") == [0, 0, 0]


def test_a_missing_end_is_made_up_for_by_the_others() -> None:
    assert transfers_ms([[10, 20]], [[0, 50]], "broadcast") == [30]


@pytest.mark.parametrize("op", sorted(round_loops.ENDS_FOR_ALL))
@pytest.mark.parametrize("ahead_ms", [-500, 0, 60_000])
def test_where_all_wait_for_the_last_one_no_common_clock_is_needed(op: str, ahead_ms: int) -> None:
    start = np.array([[10, 30, 20, 12], [10, 12, 11, 40]]) + 1000
    end = np.array([[40, 40, 40, 40], [45, 45, 45, 45]]) + 1000
    ahead = np.array([0, 0, ahead_ms, ahead_ms])
    assert transfers_ms(start + ahead, end + ahead, op) == [10, 5]


def test_rounds_of_one_kind_are_a_slice_and_others_are_put_in_order() -> None:
    times = np.ones((3, 2), np.int64)
    alike = rounds_at("a", (0, 1), times, times)
    mixed = rounds_at("b", (0, 1), times, times, size_bytes=[8, 4, 8])
    (op,) = {int(code) for code in alike.op}
    assert RoundTable([alike]).kinds == [[RoundsOfKind(op, 1024, slice(0, 3))]]
    small, large = RoundTable([alike, mixed]).kinds[1]
    assert (small.size_bytes, np.asarray(small.lines).tolist()) == (4, [4])
    assert (large.size_bytes, np.asarray(large.lines).tolist()) == (8, [3, 5])


def test_columns_that_contradict_the_blocks_are_refused() -> None:
    one, cells, op = np.ones(1, np.int64), np.ones(3, np.int64), np.zeros(1, np.int8)
    for lengths, widths in ((one, 2 * one), (one, 4 * one), (-one, 3 * one), (one, -3 * one), (2 * one, 3 * one)):
        with pytest.raises(ValueError, match="blocks of rounds do not have"):
            round_loops.measured(lengths, widths, cells, cells, cells, op)
    with pytest.raises(ValueError, match="do not have the 2 cells"):
        round_loops.times_of(one, 3 * one, cells[:2], cells[:2])
    with pytest.raises(ValueError, match="lengths"):
        round_loops.measured(one, 3 * one, cells, cells[:2], cells, op)
    with pytest.raises(ValueError, match=r"operation is outside"):
        round_loops.measured(one, 3 * one, cells, cells, cells, op + 99)
