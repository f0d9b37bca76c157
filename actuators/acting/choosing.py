"""Which actions may be tried against an incident, the cheapest first; pure."""

from __future__ import annotations

from collections.abc import Callable

from actuators.acting.act import Act, Terms
from actuators.acting.applied import Applied
from actuators.acting.collection import Collection
from actuators.acting.commanding import LeftRestart
from actuators.acting.microbatches import MicroBatches
from actuators.acting.places import Places
from actuators.acting.remedy import Remedy
from actuators.acting.restarting import Restarting
from actuators.acting.resuming import Resuming
from actuators.acting.site import Site
from actuators.mitigation.actions import CHECKPOINT_RESTART, DRAIN_HOST, RESTART_WITHOUT_RANK, RESUME_RANK, Action
from actuators.mitigation.loss import candidates_for, gravest
from actuators.mitigation.prices import price_of
from pacehound.model.decisions import incident_as_decided
from pacehound.model.events import Incident

REMEDIES: tuple[Remedy, ...] = (MicroBatches(), Places(), Collection())
BY_A_RESTART = (CHECKPOINT_RESTART, RESTART_WITHOUT_RANK, DRAIN_HOST)

GIVES_BACK: dict[str, Remedy] = {
    action.name: one for one in REMEDIES if not one.is_for_good for action in (one.action, one.keep, one.restore)
}
"""After these decisions ranks may have something else than their own, until the job is only followed again."""

TermsOf = Callable[[Action], Terms | None]
"""Under which an action may be taken; `None`: not at all."""


def acts_against(incident: Incident, ticket: int, terms_of: TermsOf, site: Site) -> list[Act]:
    """Those that the incident calls for as it is now, by their price for this job."""
    finding = gravest(incident.findings)
    if finding is None:
        return []
    found: list[Act] = []
    for remedy in REMEDIES:
        if (terms := terms_of(remedy.action)) is not None:
            found.append(Applied(remedy, incident, ticket, terms))
    helping = candidates_for(finding)
    for action in BY_A_RESTART:
        if action in helping and (terms := terms_of(action)) is not None:
            found.append(Restarting(action, incident, ticket, terms, site))
    if (terms := terms_of(RESUME_RANK)) is not None:
        found.append(Resuming(incident, ticket, terms))
    wanted = [act for act in found if act.is_wanted()]
    return sorted(wanted, key=lambda act: price_of(act.action, act.terms.measured)[0])


def given_back(action: str, incident: Incident, ticket: int, terms: Terms) -> Act | None:
    """Takes back what somebody has done who has gone."""
    remedy = GIVES_BACK.get(action)
    return None if remedy is None else Applied(remedy, incident, ticket, terms, was_left=True)


def gone_on_with(left: LeftRestart, ticket: int, terms: Terms, site: Site, *, is_allowed: bool) -> Act:
    """A restart that somebody has begun who has gone; its incident is known when it is next heard of."""
    ordered = left.ordered
    (action,) = [one for one in BY_A_RESTART if one.name == ordered.action]
    return Restarting(action, incident_as_decided(ordered), ticket, terms, site, left=left, is_allowed=is_allowed)
