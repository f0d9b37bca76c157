"""Something that scripts carry out at an agreed step, and that can be taken back in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from actuators.control.pacing import Pace
from actuators.mitigation.actions import Action
from pacehound.model.events import Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What scripts are to be told, and what that promises.

    Attributes
    ----------
    before, after
        The payloads, as JSON: by which it is taken back, and by which it is done.
    gain
        The share by which iterations should become shorter.
    words
        Why just so.

    """

    before: str
    after: str
    gain: float
    words: str


class Remedy(Protocol):
    """One kind of it; the values of one incident come in as arguments."""

    action: Action
    keep: Action
    restore: Action
    kind: str
    """Of the order that scripts take."""
    done: str
    """That it is in force, in words: `micro-batches are moved`."""
    undone: str
    """That it is not any more."""
    is_for_good: bool
    """Once it helps it stays until the job ends: there is no fault that passes."""

    def is_against(self, incident: Incident) -> bool:
        """Whether it may help, and enough is known to try it."""
        ...

    def plan(self, incident: Incident, pace: Pace) -> Plan | str:
        """What to do; or why nothing, in words."""
        ...

    def given_back(self, pace: Pace) -> Plan | str:
        """How what somebody who has gone has done is taken back; or why it cannot be."""
        ...
