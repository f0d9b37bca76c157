"""S3: ranks change places, so that slow links carry little and stragglers share few stages (Falcon 5.3)."""

from __future__ import annotations

import json

from actuators.acting.remedy import Plan
from actuators.control.pacing import Pace
from actuators.mitigation.actions import ADJUST_TOPOLOGY, keeping, undoing
from actuators.mitigation.loss import gravest, loss_rate
from actuators.mitigation.moving import too_little
from actuators.mitigation.topology import plan_topology
from pacehound.model.events import Finding, Incident
from pacehound.model.topology import Layout


class Places:
    """Against slow links and several stragglers, where scripts say their layout and let ranks change places.

    The order is a list: by place the rank that takes it. Places are counted as Megatron counts ranks without tensor
    parallelism: place `p` is replica `p % replicas` of stage `p // replicas`. What is promised is what Falcon saw
    of it; half of that has to be seen.
    """

    action = ADJUST_TOPOLOGY
    keep = keeping("keep_topology", "leaves ranks where they have moved to, for it has helped")
    restore = undoing(ADJUST_TOPOLOGY, "restore_topology", "gives each rank the place that it began with")
    kind = "topology"
    done = "ranks have changed places"
    undone = "every rank has the place that it began with"
    is_for_good = False

    def is_against(self, incident: Incident) -> bool:
        """Whether a slowdown has proven culprits or links, and gets shorter iterations by it."""
        return self._finding(incident) is not None

    def plan(self, incident: Incident, pace: Pace) -> Plan | str:
        """Who takes which place."""
        finding = self._finding(incident)
        if finding is None:
            return "there is nothing to move away from any more"
        if pace.layout is None:
            return "not all scripts say their layout (layout of pacehound.trainer.connect)"
        layout = Layout(dp=pace.layout[0], pp=pace.layout[1])
        stragglers = finding.culprits if finding.cause in ("S1", "S3") else ()
        links = [(a, b) for a, b in finding.links if pace.hosts[a] != pace.hosts[b]]
        try:
            places = plan_topology(layout, list(pace.hosts), slow_links=links, stragglers=stragglers)
        except (ValueError, IndexError) as error:
            return f"no plan: {error}"
        if not places.moves:
            return "no exchange of places helps"
        gain = self.action.removes * (loss_rate(incident, finding) or 0.0)
        if words := too_little(gain):
            return words
        before = json.dumps(list(range(layout.world_size)))
        return Plan(before=before, after=json.dumps(places.rank_at), gain=gain, words=places.reason)

    def given_back(self, pace: Pace) -> Plan | str:
        """Everybody to his own place."""
        if pace.layout is None:
            return "the scripts do not say their layout"
        places = json.dumps(list(range(len(pace.hosts))))
        return Plan(before=places, after=places, gain=0.0, words="")

    def _finding(self, incident: Incident) -> Finding | None:
        finding = gravest(incident.findings)
        if incident.state != "open" or finding is None or finding.kind != "slow" or finding.verdict != "culprit":
            return None
        is_network = finding.cause in ("S2", "S3") and finding.links
        has_several = finding.cause in ("S1", "S3") and len(finding.culprits) > 1
        return finding if is_network or has_several else None
