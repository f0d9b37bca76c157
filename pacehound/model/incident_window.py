"""The time around an incident whose calls are kept, and shown."""

from __future__ import annotations

from pacehound.model.events import Incident

AROUND_NS = 60 * 10**9
"""Before the onset, and after the detection."""
_LAST_NS = (1 << 63) - 1


def window_of(incident: Incident) -> tuple[int, int]:
    """From 60 s before the first onset to 60 s after the last detection, in nanoseconds of event time.

    A finding that has no onset counts from its detection, one without both from when the incident was opened.
    """
    instants = [(f.onset or f.detected, f.detected or f.onset) for f in incident.findings]
    first = [onset.time_ns for onset, _ in instants if onset is not None]
    last = [detected.time_ns for _, detected in instants if detected is not None]
    begins_ns = min([*first, incident.opened_ns])
    ends_ns = max([*last, incident.opened_ns])
    return max(begins_ns - AROUND_NS, 0), min(max(ends_ns, 0) + AROUND_NS, _LAST_NS)
