"""Which finding of an incident decides, whom it is about, and what it has cost."""

from __future__ import annotations

from collections.abc import Sequence

from actuators.mitigation.actions import AFTER_EXIT, HELPS, Action
from actuators.mitigation.thresholds import HOPELESS_AFTER_S
from pacehound.model.events import HALTS, Finding, Incident

# Of the findings of an incident the gravest decides. What is not here (planned, change of work, blind) calls for
# no action on the job.
_GRAVEST_FIRST = ("hang", "exit", "slow", "intermittent")


def gravest(findings: Sequence[Finding], *, is_over: bool = False) -> Finding | None:
    """The finding that decides: the gravest kind that has not ended (`is_over`: of all), the earliest of several."""
    lasting = [f for f in findings if (f.relief is None or is_over) and f.kind in _GRAVEST_FIRST]
    return min(lasting, key=lambda f: _GRAVEST_FIRST.index(f.kind), default=None)


def aim_of(finding: Finding) -> tuple[int, ...]:
    """Whom an action would be aimed at: the culprits, and the ends of slow links."""
    return tuple(sorted({*finding.culprits, *(rank for link in finding.links for rank in link)}))


def candidates_for(finding: Finding) -> tuple[Action, ...]:
    """What helps against a finding (Falcon table 3), by price; a suspicion takes nothing away from a job."""
    if finding.verdict == "unknown":
        return ()
    helping: tuple[Action, ...] = HELPS[finding.cause] if finding.cause else ()
    if finding.kind == "exit":
        helping = AFTER_EXIT
    is_named = finding.verdict == "culprit"
    return tuple(sorted((a for a in helping if is_named or not a.needs_culprit), key=lambda action: action.price_s))


def loss_of(incident: Incident, finding: Finding) -> float:
    """Seconds that the job has lost; one that stands still loses all of the time since it stopped."""
    standing_s = 0.0
    if finding.kind in HALTS and finding.onset is not None:
        end_ns = incident.time_ns if finding.relief is None else finding.relief.time_ns
        standing_s = (end_ns - finding.onset.time_ns) / 1e9
    return max(incident.cost.excess_s, standing_s)


def due_at(price_s: float, finding: Finding) -> float:
    """The loss at which an action of a price is due: its price, or sooner where waiting is known to be hopeless."""
    return min(price_s, HOPELESS_AFTER_S) if finding.kind == "hang" else price_s


def loss_rate(incident: Incident, finding: Finding) -> float | None:
    """Seconds lost per second while it lasts; `None` where nothing tells.

    Of iterations that take 1 + m times as long, m / (1 + m) of the time is lost. Spells that come and go lose what
    they have lost over the time since the first.

    >>> from pacehound.model.events import Finding, Incident
    >>> twice = {"kind": "slow", "verdict": "culprit", "cause": "S1", "culprits": (2,), "magnitude": 1.0}
    >>> slow = Finding(id="f", job="j", attempt=0, **twice)
    >>> incident = Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0)
    >>> loss_rate(incident, slow)
    0.5
    """
    if finding.kind in HALTS:
        return 1.0
    if finding.kind == "slow" and finding.magnitude is not None and finding.magnitude > 0:
        return finding.magnitude / (1.0 + finding.magnitude)
    if finding.onset is not None and incident.time_ns > finding.onset.time_ns and incident.cost.excess_s > 0:
        return min(incident.cost.excess_s / ((incident.time_ns - finding.onset.time_ns) / 1e9), 1.0)
    return None


def what_words(finding: Finding) -> str:
    """A finding in a few words, as the reasons of decisions name it."""
    names = {"slow": "a slowdown", "hang": "a hang", "exit": "an exit", "intermittent": "recurring slowdowns"}
    what = names.get(finding.kind, finding.kind) + (f" ({finding.cause})" if finding.cause else "")
    whom = [f"rank {rank}" for rank in finding.culprits] + [f"link {a}->{b}" for a, b in finding.links]
    return f"{what} of {', '.join(whom)}" if whom else what


def why_nothing(finding: Finding, candidates: Sequence[Action]) -> str:
    """Why no action would be taken about a finding, ever; empty where there are some."""
    if finding.verdict == "unknown":
        return f"for {what_words(finding)} nobody is named, so no action could be aimed"
    if finding.cause == "H2":
        return (
            f"{what_words(finding)} is a fault of the program that comes back after a restart; it has to be corrected"
        )
    return "" if candidates else f"no action is known to help against {what_words(finding)}"
