"""S2: micro-batches move away from ranks that are proven to compute for longer."""

from __future__ import annotations

import json

from actuators.acting.remedy import Plan
from actuators.control.pacing import Pace
from actuators.mitigation.actions import ADJUST_MICROBATCHES
from actuators.mitigation.loss import gravest
from actuators.mitigation.microbatches import in_words
from actuators.mitigation.moving import KEEP_MICROBATCHES, RESTORE_MICROBATCHES, plan_moves
from actuators.mitigation.speeds import Speeds, speeds_of
from pacehound.model.events import Incident


class MicroBatches:
    """Against ranks that compute for longer, where it is said by how much; a suspicion is not acted upon."""

    action, keep, restore = ADJUST_MICROBATCHES, KEEP_MICROBATCHES, RESTORE_MICROBATCHES
    kind = "microbatches"
    done = "micro-batches are moved"
    undone = "every rank computes as many micro-batches as before"
    is_for_good = False

    def is_against(self, incident: Incident) -> bool:
        """Whether the slowdown has culprits that compute longer, by so much that it can be said."""
        return self._speeds(incident) is not None

    def plan(self, incident: Incident, pace: Pace) -> Plan | str:
        """The distribution that suits the speeds."""
        speeds = self._speeds(incident)
        if speeds is None:
            return "it is not known any more how slow a rank is"
        moved = plan_moves(pace.micro_batches, speeds)
        if isinstance(moved, str):
            return moved
        how = ", ".join(f"rank {rank} takes {ratio:.2f} times as long" for rank, ratio in speeds.ratios.items())
        words = in_words(moved.before, moved.after).replace("replica", "rank")
        return Plan(
            before=json.dumps(moved.before),
            after=json.dumps(moved.after),
            gain=moved.gain,
            words=f"{how} ({speeds.source}); {words}",
        )

    def given_back(self, pace: Pace) -> Plan | str:
        """To each as many as its script began with."""
        if min(pace.micro_batches) < 1:
            return "the scripts do not say how many micro-batches they compute"
        counts = json.dumps(pace.micro_batches)
        return Plan(before=counts, after=counts, gain=0.0, words="")

    def _speeds(self, incident: Incident) -> Speeds | None:
        finding = gravest(incident.findings)
        if incident.state != "open" or finding is None or finding.kind != "slow" or finding.verdict != "culprit":
            return None
        return speeds_of(finding) if finding.cause in ("S1", "S3") else None
