"""A living process of a rank, as the parts that look at processes are told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """One rank's process; `start_ticks` tells it from a later one with the same pid."""

    attempt: int
    rank: int
    pid: int
    start_ticks: int
