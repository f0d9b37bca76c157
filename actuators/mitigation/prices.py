"""What an action costs this job: as it has been measured of it, else as the literature says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actuators.mitigation.actions import ADJUST_TOPOLOGY, CHECKPOINT_RESTART, DRAIN_HOST, RESTART_WITHOUT_RANK, Action
from actuators.mitigation.thresholds import LEAST_PRICE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a job's own history says; `None` where it says nothing.

    Attributes
    ----------
    checkpoint_s
        By how much its last checkpoint made an iteration longer.
    since_checkpoint_s
        Since it was written: the work that is done again after a restart.
    restart_s
        Between the last iteration of an attempt and the first of the next, the last time.
    hold_s
        By how much the shortest of its holds made an iteration longer.

    """

    checkpoint_s: float | None = None
    since_checkpoint_s: float | None = None
    restart_s: float | None = None
    hold_s: float | None = None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Measured:
        """As `storage/queries/plan/measured.sql` answers."""
        written_ns, heard_ns = row["checkpoint_ns"], row["heard_ns"] or 0
        return cls(
            checkpoint_s=row["checkpoint_s"],
            since_checkpoint_s=None if written_ns is None else max(heard_ns - written_ns, 0) / 1e9,
            restart_s=row["restart_s"],
            hold_s=row["hold_s"],
        )


def price_of(action: Action, measured: Measured) -> tuple[float, str]:
    """Seconds, and where they come from.

    >>> price_of(CHECKPOINT_RESTART, Measured(checkpoint_s=40.0, restart_s=95.0))
    (135.0, 'its last checkpoint took 40 s, its last restart 95 s')
    >>> price_of(CHECKPOINT_RESTART, Measured())
    (1200.0, "Falcon 7.4: 'tens of minutes'")
    """
    seconds, source = _price(action, measured)
    return max(seconds, LEAST_PRICE_S), source


def _price(action: Action, measured: Measured) -> tuple[float, str]:
    if action is ADJUST_TOPOLOGY and measured.hold_s is not None and measured.hold_s > action.price_s:
        return measured.hold_s, f"the shortest of its holds took {measured.hold_s:.3g} s"
    if action not in (CHECKPOINT_RESTART, RESTART_WITHOUT_RANK, DRAIN_HOST):
        return action.price_s, action.source
    # The literature's price of a checkpoint and a restart is halved between the two.
    half_s = CHECKPOINT_RESTART.price_s / 2
    first_s = measured.checkpoint_s if action is CHECKPOINT_RESTART else measured.since_checkpoint_s
    named = "its last checkpoint took" if action is CHECKPOINT_RESTART else "work since its last checkpoint is"
    if first_s is None and measured.restart_s is None:
        return action.price_s, action.source
    assumed_s = half_s if action is CHECKPOINT_RESTART else max(action.price_s - half_s, 0.0)
    first = f"{named} {first_s:.3g} s" if first_s is not None else f"before it {assumed_s:.3g} s are assumed"
    again = f"its last restart {measured.restart_s:.3g} s" if measured.restart_s is not None else ""
    again = again or f"for a restart {half_s:.3g} s are assumed"
    total_s = (first_s if first_s is not None else assumed_s) + (
        measured.restart_s if measured.restart_s is not None else half_s
    )
    return total_s, f"{first}, {again}"
