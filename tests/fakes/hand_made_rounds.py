"""Rounds written down by hand, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    return Rounds(
        job="j",
        attempt=0,
        communicator=communicator,
        source="made",
        sees=sees,
        is_pair=is_pair,
        ranks=tuple(ranks),
        seq=np.arange(len(spans)),
        op=np.full(len(spans), OP_CODE[op], np.int8),
        size_bytes=np.full(len(spans), size_bytes, np.int64),
        arrival_ns=start,
        start_ns=start if Sees.START in sees else np.zeros_like(start),
        end_ns=end if Sees.END in sees else np.zeros_like(end),
    )
