"""The calls around an incident: who waited when, and single rounds over all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.incident_window import window_of
from web.source import Source

MOST_ROUNDS = 200
MOST_SLICES = 240
LEAST_CALLS = 3
"""Of a rank in a slice, on average."""
MOST_CELLS = 1_000_000
"""Of a map of ranks over time: 16,384 ranks by 61 slices."""


def rounds(source: Source, incident: str) -> dict[str, Any] | None:
    """The longest rounds around an incident."""
    around = _around(source, incident)
    if around is None:
        return None
    longest = source.rows("page/rounds", **around, most=MOST_ROUNDS)
    names = _names(source, around, sorted({one["communicator"] for one in longest}))
    return {"rounds": [one | {"name": names.get(one["communicator"], "")} for one in longest]}


def one_round(source: Source, incident: str, communicator: str, seq: int) -> dict[str, Any] | None:
    """A round over all its ranks."""
    around = _around(source, incident)
    if around is None:
        return None
    calls = source.rows("page/round", **around, communicator=communicator, seq=seq)
    return {"name": _names(source, around, [communicator]).get(communicator, ""), "calls": calls}


def rank_times(source: Source, incident: str) -> tuple[dict[str, Any], npt.NDArray[np.float32]] | None:
    """For each rank and slice of time the share of it that the rank spent in calls; `None`: there are no calls.

    Returns
    -------
    tuple
        What the rows and columns are, and the shares, ranks by slices; NaN where a rank made no call.

    """
    around = _around(source, incident)
    if around is None:
        return None
    (window,) = source.rows("page/incident_window", **around)
    if not window["calls"]:
        return None
    span_ns = max(int(window["last_ns"]) - int(window["first_ns"]), 1)
    calls_of_a_rank = int(window["calls"]) // int(window["ranks"])
    # A slice without a call says nothing: there are some in each.
    slices = max(min(MOST_SLICES, MOST_CELLS // int(window["ranks"]), calls_of_a_rank // LEAST_CALLS), 1)
    slice_ns = -(-span_ns // slices)
    first_ns = int(window["first_ns"])
    table = source.table("page/rank_times", **around, first_ns=first_ns, slice_ns=slice_ns, slices=slices)
    rank, column = table.column("rank").to_numpy(), table.column("slice").to_numpy()
    ranks, row = np.unique(rank, return_inverse=True)
    shares = np.full((len(ranks), slices), np.nan, np.float32)
    shares[row, column] = table.column("share").to_numpy()
    return {"ranks": ranks.tolist(), "slices": slices, "slice_ns": slice_ns, "from_ns": first_ns}, shares


def _names(source: Source, around: Mapping[str, Any], communicators: Sequence[str]) -> dict[str, str]:
    """What the job calls them: their ids say nothing to a person."""
    asked = {"job": around["job"], "attempt": around["attempt"], "communicators": list(communicators)}
    return {row["communicator"]: row["name"] for row in source.rows("page/names", **asked)}


def _around(source: Source, incident: str) -> dict[str, Any] | None:
    """What names an incident's calls: those that are kept for it, else those of its job in that time."""
    versions = source.incident(incident)
    if not versions:
        return None
    from_ns, until_ns = window_of(versions[0])
    kept = bool(source.rows("page/incident_kept", incident=incident)[0]["calls"])
    where = {"job": versions[0].job, "attempt": versions[0].attempt, "from_ns": from_ns, "until_ns": until_ns}
    return {"incident": incident, "kept": kept, **where}
