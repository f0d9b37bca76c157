"""A decision about an incident, as it is recorded."""

from __future__ import annotations

from typing import Any, Literal

from actuators.mitigation.actions import Action
from pacehound.model.events import Decision, Incident


def decision_about(
    incident: Incident,
    action: Action,
    reason: str,
    *,
    mode: Literal["observe", "approve", "auto"],
    time_ns: int,
    loss_s: float,
    aimed_at: tuple[int, ...],
    taken: bool,
    price_s: float | None = None,
    **more: Any,
) -> Decision:
    """What was decided, with what the incident and the action say of it; `more` are other fields of `Decision`.

    A `price_s` is the job's own; without, it is the literature's.
    """
    return Decision(
        job=incident.job,
        attempt=incident.attempt,
        time_ns=time_ns,
        incident=incident.id,
        incident_version=incident.version,
        mode=mode,
        action=action.name,
        reason=reason,
        price_s=action.price_s if price_s is None else price_s,
        loss_s=loss_s,
        aimed_at=aimed_at,
        taken=taken,
        **more,
    )
