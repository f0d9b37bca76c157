"""Rounds written down by hand, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OP_CODE, Sees
from pacehound.model.rounds import Rounds

MS = 1_000_000
BASE_NS = 1_790_000_000_000_000_000


def rounds(
    communicator: str,
    ranks: Sequence[int],
    spans: Sequence[Sequence[tuple[float, float] | None]],
    *,
    op: str = "all_reduce",
    size_bytes: int = 1 << 20,
    sees: Sees = Sees.ALL,
    is_pair: bool = False,
    clock_ms: dict[int, float] | None = None,
) -> Rounds:
    """One round per entry of `spans`, which holds the start and end of each rank; `None` where the row is lost.

    `clock_ms` says how far the clock of a rank is ahead.
    """
    start = np.zeros((len(spans), len(ranks)), np.int64)
    end = np.zeros_like(start)
    for line, spans_of_round in enumerate(spans):
        for column, span in enumerate(spans_of_round):
            if span is not None:
                ahead = (clock_ms or {}).get(ranks[column], 0.0)
                start[line, column] = BASE_NS + round((span[0] + ahead) * MS)
                end[line, column] = BASE_NS + round((span[1] + ahead) * MS)
    return rounds_at(communicator, ranks, start, end, op=op, size_bytes=size_bytes, sees=sees, is_pair=is_pair)


def rounds_at(
    communicator: str,
    ranks: Sequence[int],
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    *,
    op: str = "all_reduce",
    size_bytes: npt.ArrayLike = 1024,
    sees: Sees = Sees.ALL,
    is_pair: bool = False,
    seq: npt.ArrayLike | None = None,
) -> Rounds:
    """Rounds of one operation from their times, shape `(n_rounds, n_ranks)`; calls start when they are launched."""
    n = len(start_ns)
    return Rounds(
        job="j",
        attempt=0,
        communicator=communicator,
        source="made",
        sees=sees,
        is_pair=is_pair,
        ranks=tuple(ranks),
        seq=np.arange(n) if seq is None else np.asarray(seq, np.int64),
        op=np.full(n, OP_CODE[op], np.int8),
        size_bytes=np.broadcast_to(np.asarray(size_bytes, np.int64), (n,)).copy(),
        arrival_ns=start_ns,
        start_ns=start_ns if Sees.START in sees else np.zeros_like(start_ns),
        end_ns=end_ns if Sees.END in sees else np.zeros_like(end_ns),
    )
