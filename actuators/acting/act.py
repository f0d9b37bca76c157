"""What every action has in common: when it is due, whether it may be done, and how that is written down; pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from actuators.acting.consent import ActingMode, Consent
from actuators.acting.limits import Limits
from actuators.control.pacing import PaceProcedure
from actuators.decision import decision_about
from actuators.looks import TRACK
from actuators.mitigation.actions import Action
from actuators.mitigation.loss import aim_of, gravest, loss_of, what_words
from actuators.mitigation.options import options_for
from actuators.mitigation.prices import Measured, price_of
from actuators.mitigation.thresholds import HELD_FOR_NS, PACE_STEPS, PACE_WITHIN_NS
from actuators.now import Now
from pacehound.model.events import Decision, Incident, SiteStep
from pacehound.model.events.control import CommandResult
from pacehound.model.orders import Answer, What

TICKETS = 10
"""Between two orders: each may take as many tickets as it has tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Under which something is done to a job.

    Attributes
    ----------
    mode
        `auto`: when it is due. `approve`: when it is due and somebody has said yes.
    limits
        Of the job.
    measured
        The job's own prices.

    """

    mode: ActingMode = "auto"
    limits: Limits = field(default_factory=Limits)
    measured: Measured = field(default_factory=Measured)


class Act(ABC):
    """One action about one incident.

    Parameters
    ----------
    action
        Which.
    incident
        Its latest version.
    ticket
        Names the orders; neither it nor what follows it was ever used before.
    terms
        Under which it is done.

    Attributes
    ----------
    state, reason
        What it does, and what it waits for, or why it is over. All begin with `waiting` and end with `over`.
    aim
        Whom it is about.
    may_act_again
        It ended as it should, or a limit stopped it: the incident may be acted upon in this way again.

    """

    def __init__(self, action: Action, incident: Incident, ticket: int, terms: Terms) -> None:
        self.action, self.incident = action, incident
        self.state, self.reason = "waiting", "it is not due yet"
        self.may_act_again = False
        self._ticket, self.terms = ticket, terms
        self._consent = Consent(terms.mode)
        self._finding = gravest(incident.findings, is_over=True)
        self.aim = () if self._finding is None else aim_of(self._finding)
        self._number = 0
        self._held_until_ns = 0
        self._promised: float | None = None
        self._pacing: PaceProcedure | None = None

    # What each action says of itself.

    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether the incident, as it is now, calls for it."""

    @abstractmethod
    def advance(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """One step in a state of its own; `first` is the first."""

    first = "asking"
    """Its state once it is due and, where somebody has to say yes before, once somebody has."""

    def on_settled(self, now: Now) -> None:  # noqa: B027 -- most acts wait for nothing
        """All that was decided so far stands where whoever comes after finds it."""

    @property
    def last_step(self) -> SiteStep | None:
        """What is written down of a restart when it is over."""
        return None

    # What all have.

    @property
    def is_over(self) -> bool:
        """Whether nothing will be done any more."""
        return self.state == "over"

    @property
    def needs_agents(self) -> bool:
        """Whether it has something to say to them, or somebody something to it."""
        return self.state not in ("waiting", "over")

    @property
    def is_for_any_attempt(self) -> bool:
        """Whether it speaks to whichever attempt of the job runs, and no longer to that of the incident."""
        return False

    @property
    def has_moved(self) -> bool:
        """Whether something was done that has to be given back."""
        return False

    def is_calm(self, now: Now) -> bool:
        """Whether ranks may be held meanwhile."""
        return self.state in ("waiting", "consent", "over")

    def on_incident(self, incident: Incident) -> None:
        """A new version of the incident."""
        self.incident = incident
        if (finding := gravest(incident.findings)) is not None:
            self._finding = finding

    def on_answer(self, answer: Answer) -> None:
        """What somebody has said to what was asked."""
        self._consent.hear(answer)

    def step(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """What agents are to be told now, and what was decided."""
        if any(answer.state in ("armed", "held") for result in results for answer in result.ranks):
            self._held_until_ns = now.monotonic_ns + HELD_FOR_NS
        match self.state:
            case "waiting":
                return [], self._wait(now)
            case "consent":
                return [], self._await_consent(now)
            case "over":
                return [], []
            case _:
                return self.advance(results, now)

    def _wait(self, now: Now) -> list[Decision]:
        if not self.is_wanted():
            self._nothing_any_more()
            return []
        options = options_for(self.incident, measured=self.terms.measured, heard_ns=now.unix_ns)
        mine = next((one for one in options.options if one.action == self.action.name), None) if options else None
        if mine is None or mine.due_in_s != 0.0 or mine.expected_gain <= 0:
            return []
        if limit := self.terms.limits.reason_not_to_act(now.monotonic_ns):
            self.may_act_again = True
            return self._not_taken(limit, now)
        self._go(self.first, "it is due")
        return []

    def _asked_first(self, reason: str, now: Now) -> list[Decision]:
        """Have somebody say yes before it is done; nothing where nobody need, or has."""
        if self._consent.is_given:
            return []
        decision = self._decision(
            self.action,
            reason,
            now,
            is_taken=False,
            until_ns=self._consent.until_ns(now),
            limit="somebody has to say yes",
        )
        self._consent.ask(decision)
        self._go("consent", f"somebody has to say yes: pacehound approve {decision.identity()[:12]}")
        return [decision]

    def _await_consent(self, now: Now) -> list[Decision]:
        if self._consent.is_given:
            self._go(self.first, f"{self._consent.by} has said yes")
            return []
        if self._consent.is_declined:
            return self._not_taken(f"{self._consent.by} has said no", now)
        if not self.is_wanted():
            self.may_act_again = True
            return self._not_taken("there is nothing to act against any more", now)
        if self._consent.is_expired(now):
            return self._not_taken("nobody has said yes in time", now)
        return []

    def _limit(self, n_ranks: int, now: Now) -> str:
        """What forbids it at this moment, else nothing."""
        return self.terms.limits.reason_not_to_act(now.monotonic_ns, n_aimed=len(self.aim), n_ranks=n_ranks)

    def _pace(
        self, results: Iterable[CommandResult], now: Now, steps: int = PACE_STEPS, within_ns: int = PACE_WITHIN_NS
    ) -> tuple[list[What], PaceProcedure | None]:
        """Ask how fast the job goes; the procedure once it is over."""
        if self._pacing is None:
            self._pacing = PaceProcedure(self._next_ticket(), steps, within_ns, now.monotonic_ns)
        orders, asked = self._pacing.step(results, now.monotonic_ns), self._pacing
        if not asked.is_over:
            return orders, None
        self._pacing = None
        return orders, asked

    def _next_ticket(self) -> int:
        self._ticket += TICKETS
        return self._ticket

    def _nothing_any_more(self) -> None:
        self.may_act_again = True
        self._go("over", "there is nothing to act against any more")

    def _go(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason

    def _end(self, reason: str, now: Now, limit: str = "", seen_gain: float | None = None) -> list[Decision]:
        """Something was done, and no more will be."""
        self._go("over", reason)
        return [self._decision(TRACK, reason, now, limit=limit, seen_gain=seen_gain, site=self.last_step)]

    def _not_taken(self, limit: str, now: Now) -> list[Decision]:
        self._go("over", limit)
        return [self._decision(self.action, f"it is not done: {limit}", now, is_taken=False, limit=limit)]

    def _decision(
        self,
        action: Action,
        reason: str,
        now: Now,
        *,
        is_taken: bool = True,
        limit: str = "",
        seen_gain: float | None = None,
        until_ns: int = 0,
        site: SiteStep | None = None,
    ) -> Decision:
        self._number += 1
        options = options_for(self.incident, measured=self.terms.measured, heard_ns=now.unix_ns)
        others = [one for one in options.options if one.action not in (action.name, "ignore")] if options else []
        known = self._finding
        return decision_about(
            self.incident,
            action,
            f"{reason} (against {what_words(known)})" if action is self.action and known is not None else reason,
            mode=self.terms.mode,
            time_ns=now.unix_ns,
            loss_s=options.loss_s if options else 0.0 if known is None else loss_of(self.incident, known),
            price_s=price_of(action, self.terms.measured)[0] if action.price_s else 0.0,
            aimed_at=self.aim,
            taken=is_taken,
            number=self._number,
            alternatives=tuple(f"{one.action} at {one.cost_s:.3g} s" for one in others),
            limit=limit,
            promised_gain=self._promised,
            seen_gain=seen_gain,
            until_ns=until_ns,
            asked=self._consent.asked if not until_ns else "",
            by=self._consent.by,
            site=site,
        )
