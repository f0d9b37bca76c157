"""Rows that go into the grid of a communicator, by their places and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streams.rounds.assembly import RoundGrid
from streams.rounds.call_rows import CallRows
from streams.rounds.row_loops import SomeInC, SomeRows


def add(
    grid: RoundGrid, place: Sequence[int], seq: Sequence[int], *, size_bytes: npt.ArrayLike = 1, has_rates: bool = False
) -> bool:
    """Put rows into it, whose places and numbers these are; whether they were put."""
    n = len(seq)
    rates = np.arange(n, dtype=np.float64) if has_rates else None
    rows = CallRows(
        rank=np.zeros(n, np.int32),
        peer=np.zeros(n, np.int32),
        direction=None,
        seq=np.array(seq, np.int64),
        op=np.ones(n, np.int8),
        size_bytes=np.broadcast_to(np.asarray(size_bytes, np.int64), n).copy(),
        arrival_ns=np.arange(n) + 10,
        start_ns=np.arange(n) + 20,
        end_ns=np.arange(n) + 30,
        signature=np.ones(n, np.int64),
        is_backward=None,
        send_rate=rates,
        recv_rate=rates,
        algorithm=np.ones(n, np.int8) if has_rates else None,
    )
    rows.place[:] = place
    some = SomeRows(SomeInC(0, n, None), min(seq, default=0), max(seq, default=0))
    return grid.add(rows, some, has_transfers=has_rates)
