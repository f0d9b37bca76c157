"""One thing that can be done about an incident, as it looks now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An action with its price, what it would give, and the moment at which it is worth its price.

    Attributes
    ----------
    action
        As in `Decision.action`.
    cost_s
        What it costs the job, in seconds of its time.
    expected_gain
        The share by which iterations would become shorter while the fault lasts: 0.25 is a quarter. 1 for a job that
        stands still and would go on.
    due_in_s
        Seconds until the loss reaches what decides; 0 is now, `None` where the loss does not grow as far as is known.
    reversible
        Whether it can be taken back without a restart.
    reason
        Where price, gain and moment come from, in sentences.
    uncertainty
        The gain may be larger or smaller by so much.

    """

    action: str
    cost_s: float
    expected_gain: float
    due_in_s: float | None
    reversible: bool
    reason: str
    uncertainty: float = 0.0

    def __post_init__(self) -> None:
        if self.cost_s < 0 or (self.due_in_s is not None and self.due_in_s < 0):
            raise ValueError(
                f"{self.action} costs {self.cost_s} s and is due in {self.due_in_s} s; neither is negative"
            )
