"""Planned garbage collection: all ranks collect at the same steps, instead of each at its own (what-if 5.4)."""

from __future__ import annotations

import json

from actuators.acting.remedy import Plan
from actuators.control.pacing import Pace
from actuators.mitigation.actions import PLANNED_COLLECTION, keeping, undoing
from actuators.mitigation.loss import gravest
from actuators.mitigation.moving import too_little
from actuators.mitigation.thresholds import PLANNED_GC_STEPS
from pacehound.model.events import Incident
from pacehound.model.evidence.straggling import Mend, Straggles
from pacehound.trainer.order import COLLECT

_PATTERN = "garbage collection"


class Collection:
    """Against pauses of the garbage collector on many ranks; scripts need do nothing for it (`pacehound.trainer`)."""

    action = PLANNED_COLLECTION
    keep = keeping("keep_collection", "goes on collecting at the same steps, for it has helped")
    restore = undoing(PLANNED_COLLECTION, "restore_collection", "lets each rank collect when it comes to it")
    kind = COLLECT
    done = "all ranks collect garbage at the same steps"
    undone = "each rank collects garbage when it comes to it"
    is_for_good = True

    def is_against(self, incident: Incident) -> bool:
        """Whether the recorded steps show that pattern, and by how much steps would be shorter without it."""
        return incident.state == "open" and self._gain(incident) > 0

    def plan(self, incident: Incident, pace: Pace) -> Plan | str:
        """The interval."""
        gain = self._gain(incident)
        if words := too_little(gain):
            return words
        words = (
            f"{len(pace.micro_batches)} ranks collect garbage at steps of their own; all will every {PLANNED_GC_STEPS}"
        )
        return Plan(before=_every(0), after=_every(PLANNED_GC_STEPS), gain=gain, words=words)

    def given_back(self, pace: Pace) -> Plan | str:
        """As the interpreter does it."""
        return Plan(before=_every(0), after=_every(0), gain=0.0, words="")

    def _gain(self, incident: Incident) -> float:
        finding = gravest(incident.findings)
        if finding is None or not any(isinstance(one, Straggles) and one.cause == _PATTERN for one in finding.evidence):
            return 0.0
        return max((one.gain or 0.0 for one in finding.evidence if isinstance(one, Mend)), default=0.0)


def _every(steps: int) -> str:
    return json.dumps({"every": steps})
