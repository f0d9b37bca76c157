"""The calls kept around an incident: who waited when, and single rounds over all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from web.source import Source

MOST_ROUNDS = 200
MOST_SLICES = 240
MOST_CELLS = 1_000_000
"""Of a map of ranks over time: 16,384 ranks by 61 slices."""


def rounds(source: Source, incident: str) -> dict[str, Any]:
    """The longest rounds around an incident."""
    return {"rounds": source.rows("page/rounds", incident=incident, most=MOST_ROUNDS)}


def one_round(source: Source, incident: str, communicator: str, seq: int) -> dict[str, Any]:
    """A round over all its ranks."""
    return {"calls": source.rows("page/round", incident=incident, communicator=communicator, seq=seq)}


def rank_times(source: Source, incident: str) -> tuple[dict[str, Any], npt.NDArray[np.float32]] | None:
    """For each rank and slice of time the share of it that the rank spent in calls; `None`: no calls are kept.

    Returns
    -------
    tuple
        What the rows and columns are, and the shares, ranks by slices; NaN where a rank made no call.

    """
    (window,) = source.rows("page/incident_window", incident=incident)
    if not window["calls"]:
        return None
    span_ns = max(int(window["last_ns"]) - int(window["first_ns"]), 1)
    slices = max(min(MOST_SLICES, MOST_CELLS // int(window["ranks"])), 1)
    slice_ns = -(-span_ns // slices)
    table = source.table(
        "page/rank_times", incident=incident, from_ns=int(window["first_ns"]), slice_ns=slice_ns, slices=slices
    )
    rank, column = table.column("rank").to_numpy(), table.column("slice").to_numpy()
    ranks, row = np.unique(rank, return_inverse=True)
    shares = np.full((len(ranks), slices), np.nan, np.float32)
    shares[row, column] = table.column("share").to_numpy()
    about = {"ranks": ranks.tolist(), "slices": slices, "slice_ns": slice_ns, "from_ns": int(window["first_ns"])}
    return about, shares
