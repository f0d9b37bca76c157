"""What would be done about an incident, why, and at what price; pure.

Ski rental (Falcon 5.2, algorithm 1): start with what costs nothing; whenever the loss that has accumulated reaches
the price of the next candidate, that one is due. Whoever switches at that moment never pays more than twice what
somebody would who knew how long the slowdown lasts. The duration of past slowdowns is not used yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from actuators.prices import AFTER_EXIT, HELPS, HOPELESS_AFTER_S, IGNORE, Action
from pacehound.model.events import Decision, Finding, Incident

Mode = Literal["observe"]

# Of the findings of an incident the gravest decides. What is not here (planned, change of work, blind) calls for
# no action on the job.
_GRAVEST_FIRST = ("hang", "exit", "slow", "intermittent")


def decide(incident: Incident, mode: Mode = "observe") -> list[Decision]:
    """Every action that is due by this version of an incident, the cheapest first.

    Parameters
    ----------
    incident
        One version. Only an open one calls for action; of a closed one it is said what it has cost in all.
    mode
        `observe` is the only one there is: decisions are recorded and nothing is done.

    Returns
    -------
    list of Decision
        Empty where there is nothing to act on. The same version gives the same decisions, with the same ids.

    Raises
    ------
    ValueError
        Another mode.

    """
    if mode != "observe":
        raise ValueError(f"mode {mode!r} does not exist; 'observe' records what would be done and does nothing")
    if incident.state == "closed":
        return _last_word(incident, mode)
    finding = gravest(incident.findings)
    if incident.state != "open" or finding is None:
        return []
    loss_s = loss_of(incident, finding)
    candidates = candidates_for(finding)
    due = [action for action in candidates if loss_s >= due_at_s(action, finding)]
    waiting_for = next((action for action in candidates if action not in due), None)
    decisions = [(IGNORE, _why_wait(finding, loss_s, candidates, waiting_for))]
    decisions += [(action, _why_act(action, finding, loss_s)) for action in due]
    return [_decision(incident, finding, mode, action, reason, loss_s) for action, reason in decisions]


def _last_word(incident: Incident, mode: Mode) -> list[Decision]:
    """It is over: what it has cost in all, as the incident says it, whatever was decided while it went on."""
    finding = gravest(incident.findings, is_over=True)
    if finding is None:
        return []
    loss_s = loss_of(incident, finding)
    words = f"it is over: {loss_s:.1f} s were lost in all to {_what(finding)}"
    due = [f"{a.name} at {due_at_s(a, finding):g} s" for a in candidates_for(finding) if loss_s >= due_at_s(a, finding)]
    words += f"; due by then: {', '.join(due)}" if due else "; no action was due by then"
    return [replace(_decision(incident, finding, mode, IGNORE, words, loss_s), is_last=True)]


def _decision(incident: Incident, finding: Finding, mode: Mode, action: Action, reason: str, loss_s: float) -> Decision:
    return Decision(
        job=incident.job,
        attempt=incident.attempt,
        time_ns=incident.time_ns,
        incident=incident.id,
        incident_version=incident.version,
        mode=mode,
        action=action.name,
        reason=reason,
        price_s=action.price_s,
        loss_s=loss_s,
        aimed_at=aim_of(finding),
        taken=False,
    )


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
    if finding.kind in ("hang", "exit") and finding.onset is not None:
        end_ns = incident.time_ns if finding.relief is None else finding.relief.time_ns
        standing_s = (end_ns - finding.onset.time_ns) / 1e9
    return max(incident.cost.excess_s, standing_s)


def due_at_s(action: Action, finding: Finding) -> float:
    """The loss at which an action is due: its price, or sooner where waiting is known to be hopeless."""
    return min(action.price_s, HOPELESS_AFTER_S) if finding.kind == "hang" else action.price_s


def _why_act(action: Action, finding: Finding, loss_s: float) -> str:
    due_s = due_at_s(action, finding)
    price = f"its price of {action.price_s:g} s"
    if due_s < action.price_s:
        price = f"the {due_s:g} s after which hardly any hang recovers (its price is {action.price_s:g} s)"
    return f"{action.effect}, for {_what(finding)}; the loss of {loss_s:.1f} s has reached {price}"


def _why_wait(finding: Finding, loss_s: float, candidates: Sequence[Action], waiting_for: Action | None) -> str:
    if finding.verdict == "unknown":
        return f"for {_what(finding)} nobody is named, so no action could be aimed"
    if finding.cause == "H2":
        return f"{_what(finding)} is a fault of the program that comes back after a restart; it has to be corrected"
    if not candidates:
        return f"no action is known to help against {_what(finding)}"
    if waiting_for is None:
        return f"every action against {_what(finding)} is due"
    due_s = due_at_s(waiting_for, finding)
    return f"the loss of {loss_s:.1f} s is below the {due_s:g} s at which {waiting_for.name} is due"


def _what(finding: Finding) -> str:
    names = {"slow": "a slowdown", "hang": "a hang", "exit": "an exit", "intermittent": "recurring slowdowns"}
    what = names.get(finding.kind, finding.kind) + (f" ({finding.cause})" if finding.cause else "")
    whom = [f"rank {rank}" for rank in finding.culprits] + [f"link {a}->{b}" for a, b in finding.links]
    return f"{what} of {', '.join(whom)}" if whom else what
