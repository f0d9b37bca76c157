"""Own times of culprits beside those of their peers, as many as a picture can show."""

from __future__ import annotations

import numpy as np

from pacehound.model.evidence.piece import MOST_RANKS
from streams.slow.attribution.records import Float64Array, Int64Array


def compared(ranks: Int64Array, own_ns: Float64Array, chosen: Int64Array) -> tuple[tuple[int, float], ...]:
    """Own times in seconds by rank: of the chosen places, and of as many peers as fit, spread over all of them.

    >>> ranks = np.arange(4)
    >>> compared(ranks, np.array([1e9, 5e9, 1e9, 2e9]), np.array([1]))
    ((0, 1.0), (1, 5.0), (2, 1.0), (3, 2.0))
    """
    peers = np.setdiff1d(np.arange(len(ranks)), chosen)
    sample = peers[np.unique(np.linspace(0, len(peers) - 1, min(len(peers), MOST_RANKS)).astype(np.int64))]
    places = np.sort(np.concatenate([chosen[:MOST_RANKS], sample]))
    return tuple(zip(ranks[places].tolist(), (own_ns[places] / 1e9).tolist(), strict=True))
