"""What is done with rows in C is what its description says."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.codes import DIRECTIONS
from streams.rounds.call_rows import CallRows
from streams.rounds.row_loops import parted

RANK = st.integers(0, 3) | st.integers(0, 2**31 - 1)
ROWS = st.lists(st.tuples(st.integers(0, len(DIRECTIONS) - 1), RANK, RANK), max_size=30)


def call_rows(said: list[tuple[int, int, int]]) -> CallRows:
    directions, ranks, peers = zip(*said, strict=True) if said else ((), (), ())
    zeros = np.zeros(len(said), np.int64)
    return CallRows(
        rank=np.array(ranks, np.int32),
        peer=np.array(peers, np.int32),
        direction=np.array(directions, np.int8),
        seq=zeros,
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


def pair_of(row: tuple[int, int, int]) -> tuple[int, int]:
    direction, rank, peer = row
    return (rank, peer) if DIRECTIONS[direction] == "send" else (peer, rank)


@given(ROWS, st.data())
def test_rows_are_parted_by_whom_they_are_between(said: list[tuple[int, int, int]], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(said)))
    after = data.draw(st.integers(first, len(said)))
    rows = call_rows(said)  # it keeps what C reads
    collectives, pairs = parted(rows.in_c, slice(first, after))
    chosen = range(first, after)
    assert collectives.tolist() == [at for at in chosen if DIRECTIONS[said[at][0]] == "none"]
    between = sorted((at for at in chosen if DIRECTIONS[said[at][0]] != "none"), key=lambda at: (pair_of(said[at]), at))
    expected = [(pair, list(rows)) for pair, rows in groupby(between, key=lambda at: pair_of(said[at]))]
    assert [(pair, some.tolist()) for pair, some in pairs] == expected


def test_without_directions_all_are_collectives() -> None:
    rows = replace(call_rows([(1, 0, 1), (0, 1, 0)]), direction=None)
    collectives, pairs = parted(rows.in_c, slice(0, 2))
    assert (collectives.tolist(), pairs) == ([0, 1], [])
