"""Digests of many communicators and pairs become the rounds that they are, in whatever order their hosts tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import Sees
from pacehound.model.digests import digests_of
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.rounds import digest_table
from streams.rounds.digest_places import Places
from streams.rounds.digest_rows import DigestRows
from streams.rounds.digest_table import Awaited, DigestTable
from streams.snapshots.codec import MalformedState
from streams.snapshots.schema import state_codec

MEMBERS = {"tp": (0, 1), "dp": (3, 1, 2), "pp": (0, 2, 4)}
PAIRS = {"pp": ((0, 2), (2, 4), (4, 2))}
SOURCE = digests_of("c10d")

Cell = tuple[str, tuple[int, ...], int, int]
"""Communicator, whose round (members, or sender and receiver), step, and whose row."""

ROUNDS = [*MEMBERS.items(), *(("pp", pair) for pair in PAIRS["pp"])]
CELLS = [(name, ranks, seq, rank) for name, ranks in ROUNDS for seq in (5, 6, 7) for rank in ranks]


def value(cell: Cell) -> int:
    """Bytes of a digest: another number for each row."""
    return 1_000 + CELLS.index(cell)


def put(table: DigestTable, cells: list[Cell], *, has_rates: bool = False) -> None:
    """What a host tells at once."""
    lines, places = [], []
    for name, ranks, _, rank in cells:
        number = table.lines.number_of(name, len(MEMBERS[name]), SOURCE, Sees.ALL)
        line, first = table.lines.collectives(number)
        columns = MEMBERS[name].index
        if ranks != MEMBERS[name]:
            line, first = table.lines.of_pair(number, (ranks[0], ranks[1]), (columns(ranks[0]), columns(ranks[1])))
        lines.append(line)
        places.append(first + ranks.index(rank))
    values = np.array([value(cell) for cell in cells], np.int64)
    rates = values.astype(np.float64)
    rows = DigestRows(
        seq=np.array([seq for _, _, seq, _ in cells], np.int64),
        op=np.full(len(cells), 2, np.int8),
        size_bytes=values,
        arrival_ns=values,
        start_ns=values + 1,
        end_ns=values + 2,
        send_rate=rates if has_rates else None,
        recv_rate=2 * rates if has_rates else None,
        algorithm=np.ones(len(cells), np.int8) if has_rates else None,
    )
    table.put(rows, Places.of(np.array(lines, np.int64), np.array(places, np.int64)))


EVERYBODY = (0, 1, 2, 3, 4)


def awaited(running: tuple[int, ...], before_ns: int = 10_000) -> Callable[[str], Awaited]:
    return lambda name: Awaited(before_ns, np.isin(MEMBERS[name], running))


def taken(table: DigestTable, **more: Any) -> list[Rounds]:
    """What is taken out, pairs one by one."""
    found: list[Rounds] = []
    told = {"awaited": awaited(EVERYBODY), **more}
    for one in table.take("j", 0, MEMBERS.__getitem__, **told):
        found += one.by_pair() if isinstance(one, PairRounds) else [one]
    return found


def cells_of(rounds: Rounds) -> list[Cell]:
    """Those that were told, each checked to hold what was told of it."""
    told: list[Cell] = []
    for line, seq in enumerate(rounds.seq.tolist()):
        cells = [(rounds.communicator, rounds.ranks, seq, rank) for rank in rounds.ranks]
        for column, cell in enumerate(cells):
            if rounds.end_ns[line, column]:
                assert rounds.arrival_ns[line, column] == value(cell)
                assert rounds.end_ns[line, column] == value(cell) + 2
                told.append(cell)
        assert rounds.size_bytes[line] == max(value(cell) for cell in cells if cell in told)
    return told


def in_a_snapshot(table: DigestTable) -> DigestTable:
    codec = state_codec(Settings())
    again = codec.decode(codec.encode(table))
    assert isinstance(again, DigestTable)
    return again


WORDS = sorted({(name, rank, seq) for name, _, seq, rank in CELLS})
"""Of a step a rank tells all that it knows of a communicator at once."""


def each_in_order(words: list[tuple[str, int, int]]) -> list[list[Cell]]:
    """The cells of each, where ranks tell of earlier steps first."""
    steps: dict[tuple[str, int], list[int]] = {}
    for name, rank, seq in sorted(words):
        steps.setdefault((name, rank), []).append(seq)
    whose = [(name, steps[name, rank].pop(0), rank) for name, rank, _ in words]
    return [[cell for cell in CELLS if (cell[0], cell[2], cell[3]) == word] for word in whose]


@given(st.permutations(WORDS).map(each_in_order), st.data())
def test_each_round_comes_out_once_when_all_have_told_of_it(order: list[list[Cell]], data: st.DataObject) -> None:
    table, found = DigestTable(), list[Cell]()
    while order:
        size = data.draw(st.integers(1, len(order)))
        put(table, [cell for cells in order[:size] for cell in cells], has_rates=data.draw(st.booleans()))
        order = order[size:]
        if data.draw(st.booleans()):
            table = in_a_snapshot(table)
        if data.draw(st.booleans()):
            for rounds in taken(table):
                assert (rounds.end_ns > 0).all()
                found += cells_of(rounds)
    found += [cell for rounds in taken(table) for cell in cells_of(rounds)]
    assert sorted(found) == sorted(CELLS)
    assert (table.duplicate_rows, table.late_rows, table.missing_rows, table.has_open) == (0, 0, 0, False)


def test_rounds_of_several_steps_come_out_together_and_pairs_as_one_table() -> None:
    table = DigestTable()
    put(table, CELLS, has_rates=True)
    *collectives, pairs = table.take("j", 0, MEMBERS.__getitem__, awaited(EVERYBODY))
    assert [(one.communicator, one.seq.tolist()) for one in collectives if isinstance(one, Rounds)] == [
        ("tp", [5, 6, 7]),
        ("dp", [5, 6, 7]),
        ("pp", [5, 6, 7]),
    ]
    assert isinstance(pairs, PairRounds)
    assert pairs.communicators == ("pp",)
    assert pairs.ranks[::3].tolist() == sorted(map(list, PAIRS["pp"]))
    assert pairs.send_rate is not None
    assert (pairs.send_rate == pairs.arrival_ns).all()


def test_what_is_told_twice_or_too_late_is_counted_and_changes_nothing() -> None:
    table, whole = DigestTable(), [cell for cell in CELLS if cell[:3] == ("dp", MEMBERS["dp"], 5)]
    put(table, [*whole[:2], whole[0]])
    put(table, whole[:1])
    put(table, whole[2:])
    assert [len(rounds) for rounds in taken(table)] == [1]
    put(table, whole)
    assert (table.duplicate_rows, table.late_rows) == (2, 3)
    assert not table.has_open


def test_who_has_told_of_a_later_step_has_lost_the_earlier_one() -> None:
    table = DigestTable()
    dp = [cell for cell in CELLS if cell[0] == "dp"]
    put(table, [cell for cell in dp if cell[2:] not in ((5, 1), (6, 1), (6, 2))])
    (fifth,) = (rounds for rounds in taken(table) if rounds.seq[0] == 5)
    assert fifth.end_ns[0].tolist() == [value(dp[0]) + 2, 0, value(dp[2]) + 2]
    assert table.missing_rows == 3  # 1 and 2 have lost the sixth as well: all have told of the seventh


def test_who_runs_is_waited_for_and_who_does_not_is_not() -> None:
    table = DigestTable()
    put(table, [cell for cell in CELLS if cell[0] == "dp" and cell[2] == 5 and cell[3] != 2])
    assert taken(table, awaited=awaited((1, 2, 3))) == []
    assert taken(table, awaited=awaited((1, 2, 3)), absent=["dp"]) == []
    assert taken(table, awaited=awaited((1, 3), before_ns=1_000), absent=["dp"]) == [], "nothing is overdue yet"
    (rounds,) = taken(table, awaited=awaited((1, 3)), absent=["dp"])
    assert (rounds.end_ns > 0).tolist() == [[True, True, False]]
    assert table.missing_rows == 1


def test_a_pair_lacks_a_side_that_does_not_run() -> None:
    table = DigestTable()
    put(table, [("pp", (0, 2), 5, 0)])
    (rounds,) = taken(table, awaited=awaited((0,)), absent=["pp"])
    assert (rounds.ranks, (rounds.end_ns > 0).tolist()) == ((0, 2), [[True, False]])


def test_a_communicator_that_is_over_leaves_its_lines_to_others() -> None:
    table = DigestTable()
    put(table, [cell for cell in CELLS if cell[2] == 5 and cell[3] != 2])
    n_lines, n_cells = table.lines.n_lines, table.lines.n_cells
    assert table.forget("pp")
    assert not table.forget("pp")
    table = in_a_snapshot(table)
    put(table, [cell for cell in CELLS if cell[0] == "pp"])
    assert (table.lines.n_lines, table.lines.n_cells) == (n_lines, n_cells)
    found = [cell for rounds in taken(table) for cell in cells_of(rounds)]
    assert sorted(found) == sorted(c for c in CELLS if c[0] == "pp" or c[:3] == ("tp", MEMBERS["tp"], 5))


def test_no_more_steps_are_open_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_table, "LEAST_OPEN_STEPS", 2)
    monkeypatch.setattr(digest_table, "MAX_OPEN_CELLS", 1)
    table = DigestTable()
    for seq in (5, 6, 7):
        put(table, [("dp", MEMBERS["dp"], seq, 3)])
    assert table.missing_rows == 2
    put(table, [("dp", MEMBERS["dp"], 5, rank) for rank in (1, 2)])
    assert table.late_rows == 2


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("member", lambda column: column + 100),
        ("width", lambda column: column[:-1]),
        ("owner", lambda column: column + 7),
        ("pair", lambda column: column.astype(np.int32)),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(name: str, wrong: Callable[[Any], Any]) -> None:
    table = DigestTable()
    put(table, CELLS[:9])
    n_used = table.lines.n_cells if name == "member" else table.lines.n_lines
    setattr(table.lines, name, wrong(getattr(table.lines, name)[:n_used]))
    with pytest.raises(MalformedState):
        in_a_snapshot(table)
