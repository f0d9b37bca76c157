"""Arranging rounds in C gives what a plain reading of each round, and of each call, gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import OPS
from streams.rounds.round_loops import ENDS_FOR_ALL
from streams.slow import index_loops, path_walk
from streams.slow.index_loops import Arranged
from streams.slow.thresholds import AT_ONCE_NS, AT_ONCE_SHARE, BESIDE_SHARE

TIMES = st.one_of(st.just(0), st.integers(1, 40), st.integers(-(2**60), 2**60))
NEVER_NS = np.iinfo(np.int64).max


def column(values: Any, kind: type = np.int64) -> Any:
    return np.array(values, kind)


@st.composite
def blocks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Blocks of any lengths and widths with times of any kind."""
    made = []
    apart = draw(st.sampled_from([1, 1 << 40]))
    for _ in range(draw(st.integers(0, 4))):
        n_rounds, width = draw(st.integers(0, 3)), draw(st.integers(1, 4))
        ops = st.lists(st.integers(0, len(OPS) - 1), min_size=n_rounds, max_size=n_rounds)
        cells = st.lists(st.tuples(TIMES, TIMES, TIMES), min_size=width, max_size=width)
        made.append(
            {
                "key": draw(st.integers(0, 3)),
                "is_pair": draw(st.booleans()),
                "sees_transfer": draw(st.booleans()),
                "is_uncertain": draw(st.booleans()),
                "members": [rank * apart for rank in draw(st.lists(st.integers(0, 9), min_size=width, max_size=width))],
                "offsets": draw(st.lists(st.integers(-50, 50), min_size=width, max_size=width)),
                "ops": draw(ops),
                "rounds": [draw(cells) for _ in range(n_rounds)],
            }
        )
    return made


def arranged(made: list[dict[str, Any]]) -> Arranged:
    cells = column([cell for block in made for line in block["rounds"] for cell in line]).reshape(-1, 3)
    return index_loops.arrange(
        column([len(block["rounds"]) for block in made]),
        column([len(block["members"]) for block in made]),
        column([block["key"] for block in made]),
        column([block["is_pair"] for block in made], np.bool_),
        column([block["sees_transfer"] for block in made], np.bool_),
        column([block["is_uncertain"] for block in made], np.bool_),
        column([rank for block in made for rank in block["members"]]),
        column([offset for block in made for offset in block["offsets"]]),
        column([op for block in made for op in block["ops"]], np.int8),
        (cells[:, 0].copy(), cells[:, 1].copy(), cells[:, 2].copy()),
    )


def last_starter(block: dict[str, Any], op: int, line: list[tuple[int, int, int]]) -> tuple[int, int]:
    """The place of who started last, and how long the transfer took from there."""
    begun = [start if start > 0 else arrival for arrival, start, _ in line]
    seen = [end > 0 and begin > 0 for begin, (_, _, end) in zip(begun, line, strict=True)]
    places = range(len(line))
    durations = [line[i][2] - begun[i] if seen[i] else NEVER_NS for i in places]
    on_one_clock = [begun[i] - block["offsets"][i] if seen[i] else -NEVER_NS - 1 for i in places]
    ends = [line[i][2] - block["offsets"][i] if seen[i] else 0 for i in places]
    if block["is_uncertain"] or (OPS[op] in ENDS_FOR_ALL and not block["is_pair"]):
        last = min(places, key=durations.__getitem__)
        transfer = durations[last]
    else:
        last = max(places, key=on_one_clock.__getitem__)
        transfer = (ends[-1] if block["is_pair"] and seen[-1] else max(ends)) - on_one_clock[last]
    is_known = seen[last] and (not block["is_pair"] or all(seen))
    return last, max(transfer, 0) if is_known else 0


@given(blocks())
def test_rounds_are_arranged_as_a_plain_reading_of_each_says(made: list[dict[str, Any]]) -> None:
    rounds: list[tuple[int, ...]] = []
    entries, sends, lost = [], [], []
    for block in made:
        for op, line in zip(block["ops"], block["rounds"], strict=True):
            number, members = len(rounds), block["members"]
            ended = [end if end > 0 else arrival for arrival, _, end in line]
            anchor = max(range(len(line)), key=ended.__getitem__)
            found = (members[0], 0, 0)
            if block["sees_transfer"]:
                last, transfer = last_starter(block, op, line)
                begun = [start if start > 0 else arrival for arrival, start, _ in line]
                found = (members[last], begun[last], transfer)
                for place, (arrival, _, end) in enumerate(line):
                    if end > 0 and begun[place] > 0:
                        entries.append((members[place], begun[place], end, number))
                        sends.append(block["is_pair"] and place == 0)
                    if end == 0 and arrival == 0:
                        begin = begun[last] - block["offsets"][last] + block["offsets"][place]
                        lost.append((members[place], number, begin, begin + transfer))
            rounds.append((block["key"], *found, members[anchor], ended[anchor]))
    order = sorted(range(len(entries)), key=entries.__getitem__)  # stable: rounds may name a rank twice
    entries, sends = [entries[at] for at in order], [sends[at] for at in order]
    said = arranged(made)
    for name, expected in (("rounds", rounds), ("entries", entries), ("lost", lost)):
        columns = [values.tolist() for values in getattr(said, name).values()]
        assert list(zip(*columns, strict=True)) == expected, name
    assert said.is_send.tolist() == sends


CALLS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 40), st.integers(0, 3), st.booleans()), max_size=24
)


def sorted_calls(calls: list[tuple[int, int, int, int, bool]]) -> tuple[Any, Any, Any, Any, Any]:
    rows = sorted(calls, key=lambda call: call[:2])
    rank, start, lasts, key, is_send = (list(values) for values in zip(*rows, strict=True)) if rows else ([],) * 5
    end = column(start) + column(lasts)
    return column(rank), column(start) * 1_000, end * 1_000, column(key), column(is_send, np.bool_)


@given(CALLS)
def test_a_send_is_waited_for_where_the_next_call_follows_at_once(calls: list[tuple[int, int, int, int, bool]]) -> None:
    rank, start, end, _, is_send = sorted_calls(calls)
    expected = []
    for i in range(len(rank)):
        follows = i + 1 < len(rank) and rank[i + 1] == rank[i]
        within = max(AT_ONCE_NS, AT_ONCE_SHARE * (end[i] - start[i]))
        expected.append(bool(is_send[i]) and not (follows and abs(start[i + 1] - end[i]) <= within))
    assert index_loops.free_sends(rank, start, end, is_send).tolist() == expected


@given(CALLS)
def test_a_send_is_waited_for_behind_the_last_call_that_it_contains(
    calls: list[tuple[int, int, int, int, bool]],
) -> None:
    rank, start, end, _, is_send = sorted_calls(calls)
    expected = start.tolist()
    for i in np.flatnonzero(is_send).tolist():
        within = [j for j in range(i + 1, len(rank)) if rank[j] == rank[i] and start[j] < end[i] and end[j] < end[i]]
        expected[i] = max([int(start[i]), *(int(end[j]) for j in within[-1:])])
    found = index_loops.waits_from(rank, start, end, is_send)
    assert (start if found is None else found).tolist() == expected


@given(CALLS)
def test_calls_run_beside_the_work_where_most_of_their_communicator_contain_others(
    calls: list[tuple[int, int, int, int, bool]],
) -> None:
    rank, start, end, key, _ = sorted_calls(calls)
    is_pair = column([False, False, False, True], np.bool_)
    mine = [i for i in range(len(rank)) if not is_pair[key[i]]]
    contains = {}
    for at, i in enumerate(mine):
        behind = next((j for j in mine[at:] if (rank[j], key[j]) != (rank[i], key[i])), None)
        contains[i] = behind is not None and bool(
            rank[behind] == rank[i] and start[behind] > start[i] and end[behind] < end[i]
        )
    expected = []
    for i in range(len(rank)):
        of_key = [contains[j] for j in mine if key[j] == key[i]]
        expected.append(contains.get(i, False) and sum(of_key) / len(of_key) >= BESIDE_SHARE)
    assert index_loops.beside(rank, start, end, np.arange(len(key)), key, is_pair).tolist() == expected


def calls_of(calls: list[tuple[int, int, int, int, bool]], waited: bool = False) -> path_walk.Calls:
    """All of them count but those of the last key; of those that are sends nobody waits for any."""
    rank, start, end, key, is_send = sorted_calls(calls)
    counts = key < 3
    return path_walk.Calls(rank, start, end, counts, counts & ~is_send if waited else None)


def left(calls: path_walk.Calls, counts: Any, rank: int, begin: int, end: int) -> int:
    """The moments of a rank's iteration that no call covers which ended in it, one by one."""
    mine = [
        (calls.start[i], calls.end[i])
        for i in range(len(calls.rank))
        if calls.rank[i] == rank and counts[i] and begin < calls.end[i] <= end
    ]
    return sum(not any(first <= at < last for first, last in mine) for at in range(begin, end, 1_000)) * 1_000


def measure(path: path_walk.Path, ranks: Any, begins: Any, ends: Any) -> path_walk.OfIterations:
    """One iteration, without a walk."""
    return path.measure(ranks, begins[None], ends[None], column([-1]), column([0]))


@given(CALLS, st.sets(st.integers(0, 3)), st.integers(0, 70), st.integers(0, 40), st.booleans())
def test_a_rank_s_own_time_is_what_no_call_covers_that_ended_in_its_iteration(
    made: list[tuple[int, int, int, int, bool]], of_ranks: set[int], begin: int, lasts: int, has_sends: bool
) -> None:
    calls = calls_of(made, waited=has_sends)
    ranks = column(sorted(of_ranks))
    begins, ends = (ranks + begin) * 1_000, (ranks + begin + lasts) * 1_000
    nothing = np.zeros(0, np.int64)
    found = measure(path_walk.Path(calls, nothing, nothing, nothing, [nothing] * 7, 0), ranks, begins, ends)
    spans = list(zip(ranks.tolist(), begins.tolist(), ends.tolist(), strict=True))
    assert found.own_ns[0].tolist() == [left(calls, calls.counts, *span) for span in spans]
    if calls.waited is None:
        assert found.most_own_ns is None
    else:
        assert found.most_own_ns is not None
        assert found.most_own_ns[0].tolist() == [left(calls, calls.waited, *span) for span in spans]


@given(
    st.lists(st.tuples(st.integers(-1, 8), st.integers(0, 30), st.integers(0, 2), st.integers(0, 9)), max_size=20),
    st.sets(st.integers(0, 7)),
)
def test_transfers_of_a_stretch_are_those_of_the_rounds_that_ended_in_it(
    rounds: list[tuple[int, int, int, int]], of_ranks: set[int]
) -> None:
    ranks = column(sorted(of_ranks))
    begins, ends = ranks + 5, ranks + 15
    anchor_rank, anchor, key, took = (column([one[at] for one in rounds]) for at in range(4))
    nothing = np.zeros(0, np.int64)
    of_round = [key, key, key, took, anchor_rank, anchor, took + 1]
    path = path_walk.Path(calls_of([]), nothing, nothing, nothing, of_round, 3)
    inside = [rank in of_ranks and rank + 5 < at <= rank + 15 for rank, at, _, _ in rounds]
    found = measure(path, ranks, begins, ends)
    chosen = [one for one, is_inside in zip(rounds, inside, strict=True) if is_inside]
    assert found.transfers_ns[0].tolist() == [sum(one[3] for one in chosen if one[2] == number) for number in range(3)]
    assert (found.n_rounds, found.size_bytes) == ([len(chosen)], [sum(one[3] + 1 for one in chosen)])
    assert path_walk.find_inside(anchor_rank, anchor, ranks, begins, ends).tolist() == inside


def test_what_contradicts_itself_is_refused() -> None:
    one, cells, no, op = column([1]), column([5, 5]), column([False], np.bool_), column([0], np.int8)

    def arrange(lengths: Any, widths: Any, op: Any = op, cells: Any = cells) -> None:
        n = max(int(widths.sum()), 0)
        members = np.zeros(n, np.int64)
        index_loops.arrange(lengths, widths, one, no, no, no, members, members, op, (cells, cells, cells))

    arrange(one, 2 * one)
    for lengths, widths in ((one, 3 * one), (2 * one, one), (one, 0 * one), (-one, 2 * one), (one, -2 * one)):
        with pytest.raises(ValueError, match="blocks do not have"):
            arrange(lengths, widths)
    with pytest.raises(ValueError, match="operation"):
        arrange(one, 2 * one, op + 99)
    with pytest.raises(ValueError, match="lengths"):
        arrange(column([1, 1]), 2 * one)
    with pytest.raises(ValueError, match="keys outside"):
        index_loops.beside(one, one, one, 0 * one, one, no)
    with pytest.raises(ValueError, match="rounds outside"):
        index_loops.beside(one, one, one, one, one, no)
    for round_of, key in ((one, one), (0 * one, 3 * one), (-one, one), (0 * one, -one)):
        with pytest.raises(ValueError, match="outside"):
            path_walk.Path(calls_of([]), one, one, round_of, [key] * 7, 3)
    with pytest.raises(ValueError, match="lengths"):
        path_walk.Path(calls_of([]), one, one, 0 * one, [one, cells, one, one, one, one, one], 3)
