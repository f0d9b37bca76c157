"""A stopped process of a rank that holds all others up is told to go on (SIGCONT); pure."""

from __future__ import annotations

from collections.abc import Sequence

from actuators.acting.act import Act, Terms
from actuators.mitigation.actions import RESUME_RANK
from actuators.mitigation.loss import gravest
from actuators.mitigation.resume import ResumePlan, plan_resume
from actuators.mitigation.thresholds import RESUMED_WITHIN_NS, WAKE_EVERY_NS, WAKE_WITHIN_NS
from actuators.now import Now
from pacehound.model.events import Decision, Incident
from pacehound.model.events.control import CommandResult
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.orders import Wake, What


class Resuming(Act):
    """From the stopped process to a job that goes on, or does not; there is nothing to take back."""

    first = "waking"

    def __init__(self, incident: Incident, ticket: int, terms: Terms) -> None:
        super().__init__(RESUME_RANK, incident, ticket, terms)
        self._plan: ResumePlan | None = None
        self._until_ns = self._next_ns = 0

    def is_wanted(self) -> bool:
        """Whether a culprit of a hang that goes on is known to be stopped."""
        return self._stopped() is not None

    def advance(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """One step in a state of its own."""
        if self.state == "watching":
            return [], self._watch(now)
        if self._plan is None:
            return self._begin(now)
        return self._wake(results, now)

    def _stopped(self) -> ResumePlan | None:
        finding = gravest(self.incident.findings)
        is_proven = self.incident.state == "open" and finding is not None and finding.verdict == "culprit"
        return plan_resume(finding) if is_proven and finding is not None and finding.kind == "hang" else None

    def _begin(self, now: Now) -> tuple[list[What], list[Decision]]:
        plan = self._stopped()
        if plan is None:
            self._nothing_any_more()
            return [], []
        words = ", ".join(f"process {pid} of rank {rank}" for rank, pid in plan.processes)
        self._promised = 1.0
        if asks := self._asked_first(f"{words} is stopped and would be told to go on", now):
            return [], asks
        self._plan, self._until_ns = plan, now.monotonic_ns + WAKE_WITHIN_NS
        self.terms.limits.acted(now.monotonic_ns)
        return [], [self._decision(self.action, f"{words} is stopped", now)]

    def _wake(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        assert self._plan is not None
        wanted = {rank for rank, _ in self._plan.processes}
        for result in results:
            if result.what != "wake":
                continue
            mine = [answer for answer in result.ranks if answer.rank in wanted]
            if mine and not result.refused and all(answer.state == "running" for answer in mine):
                self._until_ns = now.monotonic_ns + RESUMED_WITHIN_NS
                self._go("watching", f"{ranks_words(sorted(wanted))} was told to go on")
                return [], []
            if mine or result.refused:
                why = result.reason or mine[0].why
                self.terms.limits.undone(now.monotonic_ns)
                return [], self._end(f"nobody was told to go on: {why}", now, why, seen_gain=0.0)
        if now.monotonic_ns >= self._until_ns:
            self.may_act_again = True
            return [], self._end("its agent has not answered", now, "its agent has not answered")
        if now.monotonic_ns < self._next_ns:
            return [], []
        self._next_ns = now.monotonic_ns + WAKE_EVERY_NS
        return [Wake(processes=self._plan.processes)], []

    def _watch(self, now: Now) -> list[Decision]:
        finding = gravest(self.incident.findings)
        is_over = self.incident.state != "open" or finding is None or finding.kind != "hang"
        if is_over:
            self.may_act_again = True
            return self._end("the job goes on", now, seen_gain=1.0)
        if now.monotonic_ns < self._until_ns:
            return []
        self.terms.limits.undone(now.monotonic_ns)
        return self._end("the job still stands", now, seen_gain=0.0)
