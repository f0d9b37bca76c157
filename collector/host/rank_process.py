"""A living process of a rank, as the parts that look at processes are told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """One rank's process; `start_ticks` tells it from a later one with the same pid.

    Attributes
    ----------
    pid
        As this host numbers processes.
    own_pid
        As the process knows itself, and names its files by: another one in a container with a PID namespace of its
        own. `None`: the same.

    """

    attempt: int
    rank: int
    pid: int
    start_ticks: int
    own_pid: int | None = None
