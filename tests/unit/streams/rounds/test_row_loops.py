"""What is done with rows in C is what its description says."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.codes import DIRECTIONS
from streams.rounds.call_rows import CallRows
from streams.rounds.row_loops import PartedRows, SomeRows, all_rows, look_at, members_in_c, parted

RANK = st.integers(0, 3) | st.integers(0, 2**31 - 1)
SEQ = st.integers(0, 9) | st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(st.integers(0, len(DIRECTIONS) - 1), RANK, RANK, SEQ), max_size=30)
Row = tuple[int, int, int, int]
"""Direction, rank, peer and sequence number."""
RATES = ("send_rate", "recv_rate")


def call_rows(said: list[Row]) -> CallRows:
    directions, ranks, peers, seq = zip(*said, strict=True) if said else ((), (), (), ())
    zeros = np.zeros(len(said), np.int64)
    return CallRows(
        rank=np.array(ranks, np.int32),
        peer=np.array(peers, np.int32),
        direction=np.array(directions, np.int8),
        seq=np.array(seq, np.int64),
        op=zeros.astype(np.int8),
        size_bytes=zeros,
        arrival_ns=zeros,
        start_ns=zeros,
        end_ns=zeros,
        signature=zeros,
        is_backward=None,
        send_rate=None,
        recv_rate=None,
        algorithm=None,
    )


def pair_of(row: Row) -> tuple[int, int]:
    direction, rank, peer, _ = row
    return (rank, peer) if DIRECTIONS[direction] == "send" else (peer, rank)


def told(some: SomeRows, said: list[Row]) -> list[int]:
    """Which rows they are, as C reads it; their numbers are right."""
    first, n = some.in_c.first, some.in_c.n
    index = range(first, first + n)
    if some.in_c.index is not None:
        index = list((ctypes.c_int64 * n).from_address(some.in_c.index))
        assert some.index is not None
        assert some.index.tolist() == index
    if n:
        assert (some.lowest_seq, some.highest_seq) == (
            min(said[at][3] for at in index),
            max(said[at][3] for at in index),
        )
    return list(index)


def of_pairs(parts: PartedRows, said: list[Row]) -> list[tuple[tuple[int, int], list[int]]]:
    """Each pair and its rows; their numbers are right."""
    found = []
    begin = parts.collectives.in_c.n
    for sender, receiver, end, low, high in parts.pairs:
        rows = parts.index[begin:end].tolist()
        assert (low, high) == (min(said[at][3] for at in rows), max(said[at][3] for at in rows))
        found.append(((sender, receiver), rows))
        begin = end
    assert begin <= len(parts.index)
    return found


@given(ROWS, st.data())
def test_rows_are_parted_by_whom_they_are_between(said: list[Row], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(said)))
    after = data.draw(st.integers(first, len(said)))
    rows = call_rows(said)  # it keeps what C reads
    parts = parted(rows.in_c, slice(first, after))
    chosen = range(first, after)
    assert told(parts.collectives, said) == [at for at in chosen if DIRECTIONS[said[at][0]] == "none"]
    between = sorted((at for at in chosen if DIRECTIONS[said[at][0]] != "none"), key=lambda at: (pair_of(said[at]), at))
    expected = [(pair, list(rows)) for pair, rows in groupby(between, key=lambda at: pair_of(said[at]))]
    assert of_pairs(parts, said) == expected


@given(ROWS, st.data())
def test_rows_are_looked_at_once(said: list[Row], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(said)))
    after = data.draw(st.integers(first, len(said)))
    where, chosen = slice(first, after), said[first:after]
    order = np.arange(4)[::-1].copy()
    ascending = np.arange(4)
    transfers = {name: np.array([data.draw(st.sampled_from([np.nan, 2.0])) for _ in said]) for name in RATES}
    algorithm = np.array([data.draw(st.integers(0, 1)) for _ in said], np.int8)
    rows = replace(call_rows(said), **transfers, algorithm=algorithm)
    found = look_at(rows.in_c, where, members_in_c(ascending, order))
    assert rows.place[where].tolist() == [3 - rank if rank < 4 else -1 for _, rank, _, _ in chosen]
    is_pair = [DIRECTIONS[direction] != "none" for direction, *_ in chosen]
    outside = [at for at, (_, rank, _, _) in enumerate(chosen, first) if rank >= 4]
    outside_peers = [at for at, (_, _, peer, _) in enumerate(chosen, first) if peer >= 4 and is_pair[at - first]]
    assert (found.outsider, found.outside_peer) == (min(outside, default=-1), min(outside_peers, default=-1))
    assert found.n_pairs == sum(is_pair)
    is_known = [bool(algorithm[at]) or any(rate[at] == 2 for rate in transfers.values()) for at in range(first, after)]
    assert found.n_transfers == sum(is_known)
    assert told(all_rows(where, found), said) == list(range(first, after))


def test_without_directions_all_are_collectives() -> None:
    said = [(1, 0, 1, 5), (0, 1, 0, 4)]
    rows = replace(call_rows(said), direction=None)
    parts = parted(rows.in_c, slice(0, 2))
    assert (told(parts.collectives, said), parts.pairs) == ([0, 1], [])
