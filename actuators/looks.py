"""What can be done to know more of a slowdown, and what that costs the job; it takes nothing of the slowdown away."""

from __future__ import annotations

from functools import partial

from actuators.mitigation.actions import Action
from actuators.thresholds import VALIDATION_PRICE_S

_look = partial(Action, removes=0.0, removes_source="it is looked at")

TRACK = _look(name="track", price_s=0.0, effect="follows the job as before", source="Falcon 4: iterations alone")
PROFILE = _look(
    name="profile",
    price_s=0.0,
    effect="looks closer for a while",
    source="assumption: a look at the machine each second, a hundredth of a processor of each host",
)
VALIDATE = _look(
    name="validate",
    price_s=VALIDATION_PRICE_S,
    effect="holds the ranks and measures them",
    source="measured (actuators/thresholds.py); its budget is twice as much",
)
