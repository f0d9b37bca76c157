"""Columns of many blocks hold what each block holds, those of one shape together, however they came."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from pacehound.model.calls import Sees
from pacehound.model.digests import digests_of
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.rounds.round_columns import RoundColumns
from streams.rounds.round_table import RoundTable, joined
from tests.fakes.hand_made_rounds import rounds_at
from tests.fakes.made_pairs import drawn_pairs

Block = tuple[Any, ...]


def drawn(rng: np.random.Generator, n: int) -> list[Rounds | PairRounds]:
    """Blocks of a few shapes, some without a round, some in another order of memory, and rounds of pairs."""
    made: list[Rounds | PairRounds] = []
    for number in range(n):
        if rng.random() < 0.2:
            sees = (Sees.ALL, Sees.LAUNCH)[int(rng.integers(2))]
            source = ("c10d", digests_of("c10d"))[int(rng.integers(2))]
            made.append(drawn_pairs(rng, int(rng.integers(0, 9)), sees=sees, source=source))
            continue
        n_rounds, width = int(rng.integers(0, 4)), int(rng.integers(2, 5))
        times = rng.integers(0, 99, (2, n_rounds, width))
        start, end = times if rng.random() < 0.5 else times.transpose(0, 2, 1).copy().transpose(0, 2, 1)
        ranks = rng.permutation(9)[:width].tolist()
        kind = {"is_pair": width == 2, "sees": (Sees.ALL, Sees.LAUNCH)[int(rng.integers(2))]}
        made.append(rounds_at(f"c{number % 5}", ranks, start, end, size_bytes=rng.integers(0, 9, n_rounds), **kind))
    return made


def read_plainly(block: Rounds | PairRounds) -> list[Block]:
    """By block, each pair one: key, ranks, whether it is a pair, a digest, and seen; and what each round has."""
    if isinstance(block, PairRounds):
        return [plain for one in block.by_pair() for plain in read_plainly(one)]
    key = block.ranks if block.is_pair else block.communicator
    return [(key, block.ranks, block.is_pair, block.is_digest, *_of_rounds(block))] if len(block) else []


def _of_rounds(block: Rounds) -> Block:
    grids = (block.arrival_ns, block.start_ns, block.end_ns)
    is_seen = block.sees & (Sees.START | Sees.END) == Sees.START | Sees.END
    return is_seen, block.op.tolist(), block.size_bytes.tolist(), *(grid.tolist() for grid in grids)


def by_block(columns: RoundColumns) -> list[Block]:
    found, members, line, cell = [], 0, 0, 0
    numbers = zip(columns.key, columns.lengths, columns.widths, strict=True)
    for at, (key, n, width) in enumerate(tuple(map(int, one)) for one in numbers):
        ranks = tuple(columns.members[members : members + width].tolist())
        flags = (columns.is_pair[at], columns.is_digest[at], columns.sees_transfer[at])
        of_rounds = [column[line : line + n].tolist() for column in (columns.op, columns.size_bytes)]
        cells = (columns.arrival_ns, columns.start_ns, columns.end_ns)
        grids = [column[cell : cell + n * width].reshape(n, width).tolist() for column in cells]
        found.append((columns.keys[key], ranks, *map(bool, flags), *of_rounds, *grids))
        members, line, cell = members + width, line + n, cell + n * width
    assert (members, line, cell) == (len(columns.members), len(columns), len(columns.end_ns))
    return found


def by_shape(blocks: list[Block]) -> list[Block]:
    shapes = list(dict.fromkeys((len(block[1]), block[4]) for block in blocks))
    return sorted(blocks, key=lambda block: shapes.index((len(block[1]), block[4])))


@pytest.mark.parametrize("seed", range(30))
def test_they_hold_what_each_block_holds_and_those_of_one_shape_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = [drawn(rng, int(rng.integers(0, 12))) for _ in range(int(rng.integers(1, 4)))]
    expected = [plain for blocks in some for block in blocks for plain in read_plainly(block)]
    columns = RoundColumns.of([block for blocks in some for block in blocks])
    assert by_block(columns) == by_shape(expected)
    assert columns.keys == tuple(dict.fromkeys(plain[0] for plain in expected))
    tables = [RoundTable(blocks) for blocks in some]
    in_tables = [block for table in tables for block in (*table.blocks, *table.pairs)]
    whole = RoundColumns.of(in_tables)
    for field in dataclasses.fields(RoundColumns):
        found, wanted = (getattr(one, field.name) for one in (RoundColumns.of_tables(tables), whole))
        assert np.array_equal(found, wanted) if field.name != "keys" else found == wanted, field.name


def test_values_are_joined_row_by_row_however_they_lie() -> None:
    rows = np.arange(6).reshape(2, 3)
    for columns in (
        [rows],
        [rows, rows + 6],
        [rows.T, rows],
        [rows[:, ::2]],
        [rows.astype(np.int32), rows],
        [rows[:0]],
    ):
        found = joined(columns, np.int64)
        assert found.tolist() == [value for column in columns for value in column.ravel().tolist()]
        assert (found.dtype, found.flags.writeable) == (np.dtype(np.int64), True)
        assert not np.shares_memory(found, rows)
    assert joined([], np.int8).dtype == np.int8
