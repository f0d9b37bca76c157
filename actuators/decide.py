"""What would be done about an incident, why, and at what price; pure.

Ski rental (Falcon 5.2, algorithm 1): start with what costs nothing; whenever the loss that has accumulated reaches
the price of the next candidate, that one is due. What that bounds is said in `mitigation.ski_rental`. Decisions take
the prices of the literature and no history, so that a replay gives the same ones; `pacehound plan` asks the store for
the job's own prices and for how long such faults last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from actuators.decision import decision_about
from actuators.mitigation.actions import IGNORE, Action
from actuators.mitigation.loss import aim_of, candidates_for, due_at, gravest, loss_of, what_words, why_nothing
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.evidence.leaving import Joined

Mode = Literal["observe"]


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
    due = [action for action in candidates if loss_s >= due_at(action.price_s, finding)]
    waiting_for = next((action for action in candidates if action not in due), None)
    decisions = [(IGNORE, _why_wait(finding, loss_s, candidates, waiting_for))]
    decisions += [(action, _why_act(action, finding, loss_s)) for action in due]
    return [_decision(incident, finding, mode, action, reason, loss_s) for action, reason in decisions]


def _last_word(incident: Incident, mode: Mode) -> list[Decision]:
    """It is over: what it has cost in all, as the incident says it, whatever was decided while it went on."""
    finding = gravest(incident.findings, is_over=True)
    if finding is None or _has_only_been_joined(incident):
        return []
    loss_s = loss_of(incident, finding)
    words = f"it is over: {loss_s:.1f} s were lost in all to {what_words(finding)}"
    due = [
        f"{a.name} at {due_at(a.price_s, finding):g} s"
        for a in candidates_for(finding)
        if loss_s >= due_at(a.price_s, finding)
    ]
    words += f"; due by then: {', '.join(due)}" if due else "; no action was due by then"
    return [replace(_decision(incident, finding, mode, IGNORE, words, loss_s), is_last=True)]


def _has_only_been_joined(incident: Incident) -> bool:
    """Whether it was over before, and is told again for a host that could take part in its job."""
    joined = [piece.at_ns for finding in incident.findings for piece in finding.evidence if isinstance(piece, Joined)]
    return incident.closed_ns is not None and max(joined, default=0) > incident.closed_ns


def _decision(incident: Incident, finding: Finding, mode: Mode, action: Action, reason: str, loss_s: float) -> Decision:
    return decision_about(
        incident,
        action,
        reason,
        mode=mode,
        time_ns=incident.time_ns,
        loss_s=loss_s,
        aimed_at=aim_of(finding),
        taken=False,
    )


def _why_act(action: Action, finding: Finding, loss_s: float) -> str:
    due_s = due_at(action.price_s, finding)
    price = f"its price of {action.price_s:g} s"
    if due_s < action.price_s:
        price = f"the {due_s:g} s after which hardly any hang recovers (its price is {action.price_s:g} s)"
    return f"{action.effect}, for {what_words(finding)}; the loss of {loss_s:.1f} s has reached {price}"


def _why_wait(finding: Finding, loss_s: float, candidates: Sequence[Action], waiting_for: Action | None) -> str:
    if words := why_nothing(finding, candidates):
        return words
    if waiting_for is None:
        return f"every action against {what_words(finding)} is due"
    due_s = due_at(waiting_for.price_s, finding)
    return f"the loss of {loss_s:.1f} s is below the {due_s:g} s at which {waiting_for.name} is due"
