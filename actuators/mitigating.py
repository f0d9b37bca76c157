"""Micro-batches are moved away from a slow rank by itself: due, planned, ordered, measured, kept or undone; pure.

The effect is the change of the time of an iteration, of which scripts say how many they make (`control.pacing`). What
does not give half of what it promised is undone at once. What helps hides the fault: the job's iterations are nearly as
short as before, and do not tell whether the rank is still slow. So the distribution of before is tried now and then,
at once where a sign says that the fault is over, and the plan comes back where the iterations become long again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from actuators.control.applying import ApplyProcedure
from actuators.control.pacing import PaceProcedure
from actuators.decision import decision_about
from actuators.limits import Limits
from actuators.looks import TRACK
from actuators.mitigation.actions import ADJUST_MICROBATCHES, Action
from actuators.mitigation.loss import aim_of, gravest, loss_of, what_words
from actuators.mitigation.microbatches import in_words
from actuators.mitigation.moving import KEEP_MICROBATCHES, RESTORE_MICROBATCHES, Moved, plan_moves
from actuators.mitigation.options import options_for
from actuators.mitigation.speeds import Speeds, speeds_of
from actuators.mitigation.thresholds import (
    APPLY_WITHIN_NS,
    HELD_FOR_NS,
    KEPT_SHARE,
    LOOK_EVERY_NS,
    MOST_FAILED_LOOKS,
    MOST_LOOKS,
    MOST_ORDERS,
    MOST_RESTORES,
    PACE_STEPS,
    PACE_WITHIN_NS,
    RESTORE_AGAIN_NS,
)
from actuators.phases import Now
from actuators.trials import Trials
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.events.control import CommandResult
from pacehound.model.orders import What

State = Literal["waiting", "asking", "moving", "watching", "helping", "restoring", "checking", "over"]
Why = Literal["undo", "trial", "left"]

KIND = "microbatches"
TICKETS = 10
"""Between two orders: each may take as many tickets as it has tries."""
MOVES: tuple[State, ...] = ("moving", "watching", "helping", "restoring", "checking")
JOB_GOES_ON = (None, "relieved")
"""Why an incident is closed, where its job is not over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A slowdown that micro-batches may help against."""

    finding: Finding
    speeds: Speeds


def may_be_moved(incident: Incident) -> Against | None:
    """The slowdown whose culprits compute longer, where it is said by how much; a suspicion is not acted upon."""
    finding = gravest(incident.findings)
    if incident.state != "open" or finding is None or finding.kind != "slow" or finding.verdict != "culprit":
        return None
    speeds = speeds_of(finding) if finding.cause in ("S1", "S3") else None
    return None if speeds is None else Against(finding=finding, speeds=speeds)


class Mitigating:
    """What is done about one incident, until the job has its own distribution again.

    Parameters
    ----------
    incident
        Its latest version.
    ticket
        Names the orders; neither it nor what follows it was ever used before.
    limits
        Of its job.
    was_left
        Somebody before has moved micro-batches and has gone: they are given back first, and no more is done.

    Attributes
    ----------
    state, reason
        What it does, and what it waits for, or why it is over.
    aim
        Whom it is about.
    may_act_again
        It ended as it should, or a limit stopped it: the incident may be acted upon again.

    """

    def __init__(self, incident: Incident, ticket: int, limits: Limits, *, was_left: bool = False) -> None:
        self.incident = incident
        self.state: State = "asking" if was_left else "waiting"
        self.reason = "it is not due yet"
        self.may_act_again = False
        self._ticket, self._limits = ticket, limits
        self._why: Why = "left" if was_left else "undo"
        self._why_words = "somebody who has gone had moved micro-batches" if was_left else ""
        self._procedure: ApplyProcedure | PaceProcedure | None = None
        self._finding = gravest(incident.findings, is_over=True)
        self.aim = () if self._finding is None else aim_of(self._finding)
        self._plan: Moved | None = None
        self._before_s = 0.0
        self._trials = Trials()
        self._orders = self._looks = self._failed_looks = self._restores = self._number = 0
        self._not_before_ns = self._held_until_ns = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing will be done any more."""
        return self.state == "over"

    @property
    def needs_agents(self) -> bool:
        """Whether it has something to say to them, or to hear."""
        return self.state not in ("waiting", "over")

    def is_calm(self, now: Now) -> bool:
        """Whether ranks may be held: nothing is being asked, and what has helped has had the time to show."""
        is_shown = self.state != "helping" or self._trials.is_shown(now)
        return self.state in ("waiting", "helping", "over") and self._procedure is None and is_shown

    @property
    def has_moved(self) -> bool:
        """Whether ranks may have another distribution than their own."""
        return self.state in MOVES

    def on_incident(self, incident: Incident) -> None:
        """A new version of the incident."""
        self.incident = incident
        if (finding := gravest(incident.findings)) is not None:
            self._finding = finding

    def step(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """What agents are to be told now, and what was decided."""
        self._see_holds(results, now)
        if self.has_moved and self.incident.closed_why not in JOB_GOES_ON:
            return [], self._end(f"the job has ended: {self.incident.closed_why}", now)
        match self.state:
            case "waiting":
                return [], self._wait(now)
            case "asking":
                return self._ask(results, now)
            case "moving":
                return self._move(results, now)
            case "watching":
                return self._watch(results, now)
            case "helping":
                return self._help(results, now)
            case "restoring":
                return self._restore(results, now)
            case "checking":
                return self._check(results, now)
            case "over":
                return [], []

    def _wait(self, now: Now) -> list[Decision]:
        against = may_be_moved(self.incident)
        if against is None:
            self._nothing_any_more()
            return []
        options = options_for(self.incident, heard_ns=now.unix_ns)
        mine = (
            next((one for one in options.options if one.action == ADJUST_MICROBATCHES.name), None) if options else None
        )
        if mine is None or mine.due_in_s != 0.0 or mine.expected_gain <= 0:
            return []
        if limit := self._limits.reason_not_to_act(now.monotonic_ns):
            self.may_act_again = True
            return self._not_taken(limit, now)
        self._go("asking", "the ranks are asked how fast they go")
        return []

    def _ask(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        if now.monotonic_ns < self._not_before_ns:
            return [], []
        orders, asked = self._pace(results, now)
        if not asked.is_over:
            return orders, []
        self._procedure = None
        if asked.pace is None and self._why == "left" and self._restores < MOST_RESTORES:
            # An order of whoever has gone may wait for its step yet.
            self._restores += 1
            self._not_before_ns = now.monotonic_ns + RESTORE_AGAIN_NS
            return orders, []
        if asked.pace is None:
            self.may_act_again = asked.is_unheard
            return orders, self._not_taken(asked.reason, now)
        counts = asked.pace.micro_batches
        if self._why == "left":
            if min(counts) < 1:
                return orders, self._not_taken("the scripts do not say how many micro-batches they compute", now)
            self._plan = Moved(before=counts, after=counts, gain=0.0)
            return orders, self._give_back("left", self._why_words, now)
        against = may_be_moved(self.incident)
        if against is None:
            self._nothing_any_more()
            return orders, []
        plan = plan_moves(counts, against.speeds)
        if isinstance(plan, str):
            return orders, self._not_taken(plan, now)
        self._plan, self._before_s = plan, asked.pace.step_time_s
        how = ", ".join(f"rank {rank} takes {ratio:.2f} times as long" for rank, ratio in against.speeds.ratios.items())
        return orders, self._act(f"{how} ({against.speeds.source})", now)

    def _act(self, because: str, now: Now) -> list[Decision]:
        assert self._plan is not None
        self._limits.acted(now.monotonic_ns)
        self._go("moving", "micro-batches are moved")
        self._looks = self._orders = self._not_before_ns = 0
        words = in_words(self._plan.before, self._plan.after).replace("replica", "rank")
        promise = f"iterations of {self._before_s * 1e3:.0f} ms should become {_shorter(self._plan.gain)}"
        reason = f"{because}; {words}; {promise}"
        return [self._decision(ADJUST_MICROBATCHES, reason, now)]

    def _move(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        assert self._plan is not None
        if now.monotonic_ns < self._not_before_ns:
            return [], []
        orders, applying = self._apply(self._plan.after, results, now)
        if applying is None or not applying.is_over:
            return orders, []
        self._procedure = None
        if applying.outcome == "kept":
            self._orders += 1
            if self._orders < MOST_ORDERS and may_be_moved(self.incident) is not None:
                self._not_before_ns = now.monotonic_ns + RESTORE_AGAIN_NS
                return orders, []
            return orders, self._end(f"nobody has applied it: {applying.reason}", now)
        if applying.outcome == "differs":
            words = f"some ranks have applied it and others have not: {applying.reason}"
            return orders, self._give_back("undo", words, now)
        self._go("watching", f"its effect is measured over {PACE_STEPS} iterations")
        return orders, []

    def _watch(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        assert self._plan is not None
        orders, watched = self._pace(results, now)
        if not watched.is_over:
            return orders, []
        self._procedure = None
        self._looks += 1
        seen = None if watched.pace is None else 1.0 - watched.pace.step_time_s / self._before_s
        if watched.pace is not None and seen is not None and seen >= KEPT_SHARE * self._plan.gain:
            self._trials.begin(watched.pace.step_time_s, now)
            self._not_before_ns = now.monotonic_ns + LOOK_EVERY_NS
            self._go("helping", "micro-batches are moved as long as the fault lasts")
            words = f"iterations take {watched.pace.step_time_s * 1e3:.0f} ms, {self._before_s * 1e3:.0f} ms before"
            return orders, [self._decision(KEEP_MICROBATCHES, words, now, seen_gain=seen)]
        if self._looks < MOST_LOOKS:
            return orders, []
        words = f"its effect could not be measured: {watched.reason}"
        if seen is not None:
            words = f"iterations became {_shorter(seen)}, and {_shorter(self._plan.gain)} was promised"
        return orders, self._give_back("undo", words, now, seen)

    def _help(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        if words := self._trials.reason(self.incident, now):
            return self._drop(), self._give_back("trial", words, now)
        if now.monotonic_ns < self._not_before_ns:
            return [], []
        orders, looked = self._pace(results, now)
        if not looked.is_over:
            return orders, []
        self._procedure = None
        self._failed_looks = 0 if looked.pace is not None else self._failed_looks + 1
        self._not_before_ns = now.monotonic_ns + LOOK_EVERY_NS * 2**self._failed_looks
        if self._failed_looks > MOST_FAILED_LOOKS:
            return orders, self._end(f"the scripts do not answer any more: {looked.reason}", now)
        if looked.pace is None:
            return orders, []
        takes = f"iterations take {looked.pace.step_time_s * 1e3:.0f} ms by now"
        if looked.pace.step_time_s > self._before_s:
            return orders, self._give_back("undo", f"{takes}, longer than before micro-batches were moved", now)
        if self._trials.is_faster(looked.pace.step_time_s, now):
            return orders, self._give_back("trial", f"{takes}, {self._trials.pace_s * 1e3:.0f} ms before", now)
        return orders, []

    def _restore(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        assert self._plan is not None
        if now.monotonic_ns < self._not_before_ns:
            return [], []
        orders, applying = self._apply(self._plan.before, results, now)
        if applying is None or not applying.is_over:
            return orders, []
        self._procedure = None
        if applying.outcome == "applied":
            if self._why == "trial":
                self._go("checking", "whether the rank is still slow")
                return orders, []
            if self._why == "undo":
                self._limits.undone(now.monotonic_ns)
            return orders, self._end(f"every rank computes as many micro-batches as before: {self._why_words}", now)
        self._restores += 1
        self._not_before_ns = now.monotonic_ns + RESTORE_AGAIN_NS
        if self._restores < MOST_RESTORES:
            return orders, []
        return orders, self._end(f"micro-batches could not be given back: {applying.reason}", now, applying.reason)

    def _check(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        orders, checked = self._pace(results, now)
        if not checked.is_over:
            return orders, []
        self._procedure = None
        was = f"every rank computes as many micro-batches as before, and {checked.reason}"
        if checked.pace is None or checked.pace.step_time_s <= (self._before_s + self._trials.pace_s) / 2:
            self.may_act_again = True
            return orders, self._end(f"{was}: {self._why_words}", now)
        if limit := self._limits.reason_not_to_act(now.monotonic_ns):
            self.may_act_again = True
            return orders, self._end(f"{was}; that is as slow as it was, and stays so: {limit}", now, limit)
        self._trials.failed()
        self._before_s = checked.pace.step_time_s
        return orders, self._act("without it the job is as slow as before", now)

    def _end(self, reason: str, now: Now, limit: str = "") -> list[Decision]:
        """Something was done, and no more will be."""
        self._go("over", reason)
        return [self._decision(TRACK, reason, now, limit=limit)]

    def _pace(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], PaceProcedure]:
        if not isinstance(self._procedure, PaceProcedure):
            self._procedure = PaceProcedure(self._next_ticket(), PACE_STEPS, PACE_WITHIN_NS, now.monotonic_ns)
        return self._procedure.step(results, now.monotonic_ns), self._procedure

    def _apply(
        self, counts: Sequence[int], results: Iterable[CommandResult], now: Now
    ) -> tuple[list[What], ApplyProcedure | None]:
        """Never begun while ranks are held."""
        if not isinstance(self._procedure, ApplyProcedure):
            if now.monotonic_ns < self._held_until_ns:
                return [], None
            payload = f"[{', '.join(map(str, counts))}]"
            self._procedure = ApplyProcedure(self._next_ticket(), KIND, payload, APPLY_WITHIN_NS, now.monotonic_ns)
        return self._procedure.step(results, now.monotonic_ns), self._procedure

    def _next_ticket(self) -> int:
        self._ticket += TICKETS
        return self._ticket

    def _drop(self) -> list[What]:
        """Whatever was being asked is not any more."""
        asked, self._procedure = self._procedure, None
        return asked.end("something else is done") if isinstance(asked, PaceProcedure) else []

    def _give_back(self, why: Why, words: str, now: Now, seen_gain: float | None = None) -> list[Decision]:
        self._why, self._why_words, self._restores, self._not_before_ns = why, words, 0, 0
        self._go("restoring", words)
        return [self._decision(RESTORE_MICROBATCHES, words, now, seen_gain=seen_gain)]

    def _nothing_any_more(self) -> None:
        self.may_act_again = True
        self._go("over", "there is nothing to act against any more")

    def _go(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason

    def _see_holds(self, results: Iterable[CommandResult], now: Now) -> None:
        if any(answer.state in ("armed", "held") for result in results for answer in result.ranks):
            self._held_until_ns = now.monotonic_ns + HELD_FOR_NS

    def _not_taken(self, limit: str, now: Now) -> list[Decision]:
        self._go("over", limit)
        words = f"micro-batches are not moved: {limit}"
        return [self._decision(ADJUST_MICROBATCHES, words, now, is_taken=False, limit=limit)]

    def _decision(
        self,
        action: Action,
        reason: str,
        now: Now,
        *,
        is_taken: bool = True,
        limit: str = "",
        seen_gain: float | None = None,
    ) -> Decision:
        assert self._finding is not None, "only incidents with a slowdown are acted upon"
        self._number += 1
        options = options_for(self.incident, heard_ns=now.unix_ns)
        others = [one for one in options.options if one.action not in (action.name, "ignore")] if options else []
        return decision_about(
            self.incident,
            action,
            f"{reason} (against {what_words(self._finding)})" if action is ADJUST_MICROBATCHES else reason,
            mode="auto",
            time_ns=now.unix_ns,
            loss_s=loss_of(self.incident, self._finding),
            aimed_at=self.aim,
            taken=is_taken,
            number=self._number,
            alternatives=tuple(f"{one.action} at {one.cost_s:.3g} s" for one in others),
            limit=limit,
            promised_gain=None if self._plan is None or self._why == "left" else self._plan.gain,
            seen_gain=seen_gain,
        )


def _shorter(gain: float) -> str:
    return f"{100 * abs(gain):.0f} % {'shorter' if gain >= 0 else 'longer'}"
