"""Incidents: the list, and one of them with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pacehound.model.decisions import waiting
from pacehound.model.events import Decision, Finding, Incident, foremost
from pacehound.model.incident_window import AROUND_NS, window_of
from pacehound.pages.incidents import cost_words, decision_words, headline, seconds_words
from web.source import Source


def incidents(source: Source, job: str = "") -> dict[str, Any]:
    """The latest version of each, the newest first."""
    return {"now_ns": source.now_ns(), "incidents": [summary(one) for one in source.incidents(job)]}


def summary(incident: Incident) -> dict[str, Any]:
    """An incident as a line of a list."""
    finding = foremost(incident.findings)
    return {
        "id": incident.id,
        "job": incident.job,
        "attempt": incident.attempt,
        "state": incident.state,
        "closed_why": incident.closed_why,
        "opened_ns": incident.opened_ns,
        "closed_ns": incident.closed_ns,
        "what": headline(finding) if finding else "Nothing is known of it",
        "kind": finding.kind if finding else "",
        "verdict": finding.verdict if finding else "unknown",
        "cause": finding.cause if finding else None,
        "culprits": finding.culprits if finding else (),
        "links": finding.links if finding else (),
        "magnitude": finding.magnitude if finding else None,
        "from_step": finding.onset.step if finding and finding.onset else None,
        "to_step": finding.relief.step if finding and finding.relief else None,
        "lost_s": incident.cost.excess_s,
        "ranks": incident.cost.ranks,
        "rank_hours": incident.cost.gpu_hours,
    }


def incident(source: Source, identity: str) -> dict[str, Any] | None:
    """Everything about one; `None`: there is none with this id."""
    versions = source.incident(identity)
    if not versions:
        return None
    latest = versions[0]
    decisions = source.decisions(identity)
    asked = waiting(decisions, source.now_ns()) if source.is_watched else []
    decided = {(one.action, bool(one.joined)): one for one in decisions if one not in asked}
    from_ns = window_of(latest)[0]
    until_ns = max(latest.closed_ns or source.now_ns(), latest.opened_ns) + AROUND_NS
    around = {"job": latest.job, "attempt": latest.attempt, "from_ns": from_ns, "until_ns": until_ns}
    return {
        **summary(latest),
        "now_ns": source.now_ns(),
        "version": latest.version,
        "cost": cost_words(latest.cost),
        "findings": [_finding(one) for one in latest.findings],
        "history": _history(versions),
        "decisions": [
            {"words": decision_words(one), "time_ns": one.time_ns, "taken": one.taken, "action": one.action}
            for one in decided.values()
        ],
        "waiting": [_question(one) for one in asked],
        "told": source.rows("page/notifications", incident=identity),
        "asked": source.rows("page/asked", incident=identity),
        "stacks": source.rows("page/stacks", **around),
    }


def _question(decision: Decision) -> dict[str, Any]:
    """What somebody has to say yes to."""
    return {
        "decision": decision.identity(),
        "action": decision.action.replace("_", " "),
        "reason": decision.reason,
        "price": seconds_words(decision.price_s),
        "lost": seconds_words(decision.loss_s),
        "promised_gain": decision.promised_gain,
        "alternatives": [one.replace("_", " ") for one in decision.alternatives],
        "until_ns": decision.until_ns,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(finding)
    return {**fields, "what": headline(finding)}


def _history(versions: Sequence[Incident]) -> list[dict[str, Any]]:
    """What was said in turn, the oldest first: states, and headlines where they changed."""
    said: list[dict[str, Any]] = []
    for version in reversed(versions):
        finding = foremost(version.findings)
        line = {"state": version.state, "what": headline(finding) if finding else "", "why": version.closed_why}
        if not said or {**said[-1], "time_ns": 0} != {**line, "time_ns": 0}:
            said.append({**line, "time_ns": version.time_ns})
    return said
