"""Tracking, profiling, validation: what is done by itself about a slowdown; pure.

Falcon 4: following iterations costs nothing and goes on always. When they become slower somebody looks closer for a
while, which costs nearly nothing. When the job has lost as much as a validation costs it, its ranks are held and
measured: that proves who is slow, where calls alone do not, and whether the machine is slow or has more to do. Then the
job is followed as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from actuators.acting.consent import ActingMode, Consent
from actuators.decision import decision_about
from actuators.looks import PROFILE, TRACK, VALIDATE
from actuators.mitigation.actions import Action
from actuators.mitigation.loss import aim_of, gravest, loss_of
from actuators.now import Now
from actuators.thresholds import PROFILE_FOR_NS
from actuators.validation.outcome import said_of
from actuators.validation.procedure import ValidationProcedure
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.events.control import CommandResult
from pacehound.model.evidence.machines import Measured, NobodySlow
from pacehound.model.orders import Answer, Profile, What

Phase = Literal["profiling", "validation", "tracking"]

LOOKED_INTO = ("slow", "intermittent")


def unmeasured(incident: Incident) -> Finding | None:
    """The slowdown of an incident that goes on, while none of its ranks has been measured.

    Also one whose culprit calls have shown: whether that rank is slow itself, or has more to do than its peers, only a
    measurement says (Falcon 4.3 validates whatever was found). What halts a job is no slowness.
    """
    finding = gravest(incident.findings)
    if incident.state != "open" or finding is None or finding.kind not in LOOKED_INTO:
        return None
    return None if any(isinstance(piece, Measured | NobodySlow) for piece in finding.evidence) else finding


class Phases:
    """One incident's way through the phases, from profiling back to tracking.

    Parameters
    ----------
    incident
        Its latest version, with a slowdown that is `unmeasured`.
    trap
        Names the hold of a validation; never used before.
    now
        The moment at which it begins.
    mode
        In mode `approve` somebody has to say yes before ranks are measured.
    price_s
        What a validation costs this job.

    Attributes
    ----------
    phase
        `tracking`: it is over.
    reason
        What the phase waits for, or why it is over.

    """

    def __init__(
        self,
        incident: Incident,
        trap: int,
        now: Now,
        mode: ActingMode = "auto",
        price_s: float = VALIDATE.price_s,
    ) -> None:
        self.phase: Phase = "profiling"
        self.reason = "the machine, the ranks and their calls are looked at more closely"
        self.incident = incident
        self._trap, self._mode, self._price_s = trap, mode, price_s
        self._consent = Consent(mode)
        self._validation: ValidationProcedure | None = None
        self._began_ns = now.monotonic_ns
        self._seen_ns = now.unix_ns  # when the incident's latest version came
        self._is_begun = False

    @property
    def is_over(self) -> bool:
        """Whether the job is only followed again."""
        return self.phase == "tracking"

    def on_incident(self, incident: Incident, now: Now) -> None:
        """A new version of the incident."""
        self.incident, self._seen_ns = incident, now.unix_ns

    def on_answer(self, answer: Answer) -> None:
        """What somebody has said to what was asked."""
        self._consent.hear(answer)

    def step(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """What agents are to be told now, and what was decided."""
        if self.phase == "profiling":
            return self._profile(now)
        if self.phase == "validation":
            return self._validate(results, now)
        return [], []

    def end(self, reason: str, now: Now) -> tuple[list[What], list[Decision]]:
        """Back to tracking; whoever is held goes on."""
        validation = self._validation
        orders = validation.end(reason, now.monotonic_ns) if validation is not None and not validation.is_over else []
        if self.phase == "profiling" and self._is_begun:
            orders.append(Profile(for_ms=0))
        self.phase, self.reason = "tracking", reason
        return orders, [self._decision(TRACK, reason, now)] if self._is_begun else []

    def _profile(self, now: Now) -> tuple[list[What], list[Decision]]:
        finding = unmeasured(self.incident)
        if finding is None:
            return self.end("it is over" if self.incident.state != "open" else "its ranks were measured", now)
        if not self._is_begun:
            self._is_begun = True
            return [Profile(for_ms=PROFILE_FOR_NS // 1_000_000)], [self._decision(PROFILE, self.reason, now)]
        is_seen = now.monotonic_ns - self._began_ns >= PROFILE_FOR_NS
        if not is_seen or self._loss_s(finding, now) < self._price_s:
            return [], []
        reason = (
            f"it was looked at more closely for {PROFILE_FOR_NS / 1e9:g} s, and the job has lost the "
            f"{self._price_s:.3g} s that a validation costs"
        )
        if not self._consent.is_given:
            return self._ask(reason, now)
        self.phase, self.reason = "validation", reason
        self._validation = ValidationProcedure(self._trap, now.monotonic_ns)
        return [], [self._decision(VALIDATE, self.reason, now)]

    def _ask(self, reason: str, now: Now) -> tuple[list[What], list[Decision]]:
        """Somebody has to say yes before."""
        consent = self._consent
        if not consent.asked:
            decision = self._decision(VALIDATE, reason, now, until_ns=consent.until_ns(now))
            consent.ask(decision)
            return [], [decision]
        if consent.is_declined:
            return self.end(f"{consent.by} has said no", now)
        return self.end("nobody has said yes in time", now) if consent.is_expired(now) else ([], [])

    def _validate(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        validation = self._validation
        assert validation is not None
        is_still_wanted = self.incident.state == "open" or validation.state == "measuring"
        if not is_still_wanted:
            return self.end("it is over", now)
        orders: list[What] = validation.step(results, now.monotonic_ns)
        if not validation.is_over:
            return orders, []
        reason = f"nothing was measured: {validation.reason}"
        if validation.judged is not None:
            reason = f"{said_of(validation.judged)}; the job was held for {validation.held_ns / 1e9:.1f} s"
        last, decisions = self.end(reason, now)
        return [*orders, *last], decisions

    def _loss_s(self, finding: Finding, now: Now) -> float:
        """What the job has lost by now: what was told last, and what a slowdown that lasts has taken since."""
        slower = max(finding.magnitude or 0.0, 0.0) if finding.relief is None else 0.0
        since_s = max(now.unix_ns - self._seen_ns, 0) / 1e9
        return loss_of(self.incident, finding) + since_s * slower / (1.0 + slower)

    def _decision(self, action: Action, reason: str, now: Now, until_ns: int = 0) -> Decision:
        finding = gravest(self.incident.findings, is_over=True)
        assert finding is not None, "only incidents with a slowdown are looked into"
        return decision_about(
            self.incident,
            action,
            reason,
            mode=self._mode,
            time_ns=now.unix_ns,
            loss_s=self._loss_s(finding, now),
            price_s=self._price_s if action is VALIDATE else None,
            aimed_at=aim_of(finding),
            taken=not until_ns,
            until_ns=until_ns,
            limit="somebody has to say yes" if until_ns else "",
            asked="" if until_ns else self._consent.asked,
            by=self._consent.by,
        )
