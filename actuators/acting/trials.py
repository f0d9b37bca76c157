"""When the distribution of before is tried, while another one hides whether the fault is still there; pure."""

from __future__ import annotations

from actuators.mitigation.thresholds import (
    FIRST_TRIAL_NS,
    MOST_TRIAL_NS,
    NOTICEABLY_FASTER,
    OWN_RELIEF_NS,
    TRIAL_AT_LEAST_NS,
)
from actuators.now import Now
from pacehound.model.events import Incident
from pacehound.model.evidence.machines import NobodySlow


class Trials:
    """Of one action, from the moment at which its effect was seen.

    A sign that the fault is over is followed at once, and after a trial that has found it still there not before a
    minute, two, four …; without a sign there is a trial after ten minutes, twenty ….

    Attributes
    ----------
    kept_at
        When the effect was seen the last time.
    pace_s
        What an iteration took by then.

    """

    def __init__(self) -> None:
        self.kept_at = Now(monotonic_ns=0, unix_ns=0)
        self.pace_s = 0.0
        self.pause_ns, self._sign_pause_ns = TRIAL_AT_LEAST_NS, 0
        self._was_cleared = False

    def begin(self, pace_s: float, incident: Incident, now: Now) -> None:
        """It helps."""
        self.pace_s, self.kept_at = pace_s, now
        self._was_cleared = _is_cleared(incident)

    def failed(self) -> None:
        """The job was slow again: the next one comes later."""
        self._sign_pause_ns = min(max(2 * self._sign_pause_ns, FIRST_TRIAL_NS), MOST_TRIAL_NS)
        self.pause_ns = min(2 * self.pause_ns, MOST_TRIAL_NS)

    def is_shown(self, now: Now) -> bool:
        """Whether an incident that is relieved by the action would have been told so."""
        return now.unix_ns - self.kept_at.unix_ns > OWN_RELIEF_NS

    def reason(self, incident: Incident, now: Now) -> str:
        """Why there should be a trial now, else nothing."""
        since_ns = now.monotonic_ns - self.kept_at.monotonic_ns
        if since_ns >= self.pause_ns:
            return "nobody knows whether the fault is still there"
        if since_ns < self._sign_pause_ns:
            return ""
        if self._is_relieved(incident):
            return "the incident is relieved"
        if _is_cleared(incident) and not self._was_cleared:
            return "the ranks were measured since, and nobody is slow"
        return ""

    def is_faster(self, pace_s: float, now: Now) -> bool:
        """Whether iterations that take so long are a sign."""
        since_ns = now.monotonic_ns - self.kept_at.monotonic_ns
        return since_ns >= self._sign_pause_ns and pace_s < (1 - NOTICEABLY_FASTER) * self.pace_s

    def _is_relieved(self, incident: Incident) -> bool:
        """Of a moment at which that was not the action's own doing."""
        reliefs_ns = [one.relief.time_ns for one in incident.findings if one.relief is not None]
        return incident.state != "open" and max(reliefs_ns, default=0) > self.kept_at.unix_ns + OWN_RELIEF_NS


def _is_cleared(incident: Incident) -> bool:
    """A measurement has proven nobody slow; a script may be all the same, which the trial shows."""
    return any(isinstance(piece, NobodySlow) for finding in incident.findings for piece in finding.evidence)
