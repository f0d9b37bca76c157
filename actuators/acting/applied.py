"""A remedy is applied by the scripts of a job: planned, ordered, measured, kept or undone; pure.

The effect is the change of the time of an iteration, of which scripts say how many they make (`control.pacing`). What
does not give half of what it promised is undone at once. What helps hides the fault: the job's iterations are nearly as
short as before, and do not tell whether the fault is still there. So what was before is tried now and then, at once
where a sign says that the fault is over, and the remedy comes back where the iterations become long again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from actuators.acting.act import Act, Terms
from actuators.acting.remedy import Plan, Remedy
from actuators.acting.trials import Trials
from actuators.control.applying import ApplyProcedure
from actuators.mitigation.thresholds import (
    APPLY_WITHIN_NS,
    KEPT_SHARE,
    LOOK_EVERY_NS,
    MOST_FAILED_LOOKS,
    MOST_LOOKS,
    MOST_ORDERS,
    MOST_RESTORES,
    PACE_STEPS,
    RESTORE_AGAIN_NS,
)
from actuators.now import Now
from pacehound.model.events import Decision, Incident
from pacehound.model.events.control import CommandResult
from pacehound.model.orders import What

Why = Literal["undo", "trial", "left"]

MOVES = ("moving", "watching", "helping", "restoring", "checking")
JOB_GOES_ON = (None, "relieved")
"""Why an incident is closed, where its job is not over."""


class Applied(Act):
    """What is done about one incident, until the job has again what it had.

    Parameters
    ----------
    remedy
        What is applied.
    incident, ticket, terms
        As of every `Act`.
    was_left
        Somebody before has applied it and has gone: it is given back first, and no more is done.

    """

    def __init__(
        self, remedy: Remedy, incident: Incident, ticket: int, terms: Terms, *, was_left: bool = False
    ) -> None:
        super().__init__(remedy.action, incident, ticket, terms)
        self.remedy = remedy
        self.state = "asking" if was_left else "waiting"
        self._why: Why = "left" if was_left else "undo"
        self._why_words = f"somebody who has gone had done it: {remedy.done}" if was_left else ""
        self._applying: ApplyProcedure | None = None
        self._plan: Plan | None = None
        self._before_s = 0.0
        self._trials = Trials()
        self._orders = self._looks = self._failed_looks = self._restores = 0
        self._not_before_ns = 0

    def is_wanted(self) -> bool:
        """Whether the incident, as it is now, calls for it."""
        return self.remedy.is_against(self.incident)

    def is_calm(self, now: Now) -> bool:
        """Whether ranks may be held: nothing is being asked, and what has helped has had the time to show."""
        is_shown = self.state == "helping" and self._trials.is_shown(now)
        is_asking = self._pacing is not None or self._applying is not None
        return (super().is_calm(now) or is_shown) and not is_asking

    @property
    def has_moved(self) -> bool:
        """Whether ranks may have something else than what was before."""
        return self.state in MOVES

    def advance(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """One step in a state of its own."""
        if self.has_moved and self.incident.closed_why not in JOB_GOES_ON:
            return [], self._end(f"the job has ended: {self.incident.closed_why}", now)
        match self.state:
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
            case _:
                return self._check(results, now)

    def _ask(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        if now.monotonic_ns < self._not_before_ns:
            return [], []
        orders, asked = self._pace(results, now)
        if asked is None:
            return self._ask_on(orders, now)
        if asked.pace is None and self._why == "left" and self._restores < MOST_RESTORES:
            # An order of whoever has gone may wait for its step yet.
            self._restores += 1
            self._not_before_ns = now.monotonic_ns + RESTORE_AGAIN_NS
            return orders, []
        if asked.pace is None:
            self.may_act_again = asked.is_unheard
            return orders, self._not_taken(asked.reason, now)
        if self._why == "left":
            plan = self.remedy.given_back(asked.pace)
            if isinstance(plan, str):
                return orders, self._not_taken(plan, now)
            self._plan = plan
            return orders, self._give_back("left", self._why_words, now)
        if not self.is_wanted():
            self._nothing_any_more()
            return orders, []
        plan = self.remedy.plan(self.incident, asked.pace)
        if isinstance(plan, str):
            return orders, self._not_taken(plan, now)
        self._plan, self._before_s, self._promised = plan, asked.pace.step_time_s, plan.gain
        if limit := self._limit(len(asked.pace.micro_batches), now):
            self.may_act_again = True
            return orders, self._not_taken(limit, now)
        promise = f"iterations of {self._before_s * 1e3:.0f} ms should become {_shorter(plan.gain)}"
        if asks := self._asked_first(f"{plan.words}; {promise}", now):
            return orders, asks
        return orders, self._act(plan.words, now)

    def _ask_on(self, orders: list[What], now: Now) -> tuple[list[What], list[Decision]]:
        """While ranks make their steps: what no pace could change is known before."""
        first = None if self._pacing is None else self._pacing.first
        if first is None or self._why == "left" or not self.is_wanted():
            return orders, []
        plan = self.remedy.plan(self.incident, first)
        if isinstance(plan, str):
            return orders + self._drop(), self._not_taken(plan, now)
        return orders, []

    def _act(self, because: str, now: Now) -> list[Decision]:
        assert self._plan is not None
        self.terms.limits.acted(now.monotonic_ns)
        self._go("moving", "all ranks are told")
        self._looks = self._orders = self._not_before_ns = 0
        promise = f"iterations of {self._before_s * 1e3:.0f} ms should become {_shorter(self._plan.gain)}"
        return [self._decision(self.action, f"{because}; {promise}", now)]

    def _move(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        assert self._plan is not None
        if now.monotonic_ns < self._not_before_ns:
            return [], []
        orders, applying = self._apply(self._plan.after, results, now)
        if applying is None or not applying.is_over:
            return orders, []
        self._applying = None
        if applying.outcome == "kept":
            self._orders += 1
            if self._orders < MOST_ORDERS and self.is_wanted():
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
        if watched is None:
            return orders, []
        self._looks += 1
        seen = None if watched.pace is None else 1.0 - watched.pace.step_time_s / self._before_s
        if watched.pace is not None and seen is not None and seen >= KEPT_SHARE * self._plan.gain:
            self._trials.begin(watched.pace.step_time_s, self.incident, now)
            self._not_before_ns = now.monotonic_ns + LOOK_EVERY_NS
            self._go("helping", f"{self.remedy.done} as long as the fault lasts")
            words = f"iterations take {watched.pace.step_time_s * 1e3:.0f} ms, {self._before_s * 1e3:.0f} ms before"
            kept = [self._decision(self.remedy.keep, words, now, seen_gain=seen)]
            if self.remedy.is_for_good:
                kept += self._end(f"{self.remedy.done}, for good", now)
            return orders, kept
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
        if looked is None:
            return orders, []
        self._failed_looks = 0 if looked.pace is not None else self._failed_looks + 1
        self._not_before_ns = now.monotonic_ns + LOOK_EVERY_NS * 2**self._failed_looks
        if self._failed_looks > MOST_FAILED_LOOKS:
            return orders, self._end(f"the scripts do not answer any more: {looked.reason}", now)
        if looked.pace is None:
            return orders, []
        takes = f"iterations take {looked.pace.step_time_s * 1e3:.0f} ms by now"
        if looked.pace.step_time_s > self._before_s:
            return orders, self._give_back("undo", f"{takes}, longer than before {self.remedy.done}", now)
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
        self._applying = None
        if applying.outcome == "applied":
            if self._why == "trial":
                self._go("checking", "whether the rank is still slow")
                return orders, []
            if self._why == "undo":
                self.terms.limits.undone(now.monotonic_ns)
            return orders, self._end(f"{self.remedy.undone}: {self._why_words}", now)
        self._restores += 1
        self._not_before_ns = now.monotonic_ns + RESTORE_AGAIN_NS
        if self._restores < MOST_RESTORES:
            return orders, []
        return orders, self._end(f"it could not be taken back: {applying.reason}", now, applying.reason)

    def _check(self, results: Iterable[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        assert self._plan is not None
        orders, checked = self._pace(results, now)
        if checked is None:
            return orders, []
        was = f"{self.remedy.undone}, and {checked.reason}"
        if checked.pace is None or checked.pace.step_time_s <= (self._before_s + self._trials.pace_s) / 2:
            self.may_act_again = True
            return orders, self._end(f"{was}: {self._why_words}", now)
        if limit := self.terms.limits.reason_not_to_act(now.monotonic_ns):
            self.may_act_again = True
            return orders, self._end(f"{was}; that is as slow as it was, and stays so: {limit}", now, limit)
        self._trials.failed()
        self._before_s = checked.pace.step_time_s
        return orders, self._act(f"without it the job is as slow as before; {self._plan.words}", now)

    def _apply(
        self, payload: str, results: Iterable[CommandResult], now: Now
    ) -> tuple[list[What], ApplyProcedure | None]:
        """Never begun while ranks are held."""
        if self._applying is None:
            if now.monotonic_ns < self._held_until_ns:
                return [], None
            ticket = self._next_ticket()
            self._applying = ApplyProcedure(ticket, self.remedy.kind, payload, APPLY_WITHIN_NS, now.monotonic_ns)
        return self._applying.step(results, now.monotonic_ns), self._applying

    def _drop(self) -> list[What]:
        """Whatever was being asked is not any more."""
        asked, self._pacing = self._pacing, None
        return asked.end("something else is done") if asked is not None else []

    def _give_back(self, why: Why, words: str, now: Now, seen_gain: float | None = None) -> list[Decision]:
        self._why, self._why_words, self._restores, self._not_before_ns = why, words, 0, 0
        self._promised = None if why == "left" else self._promised
        self._go("restoring", words)
        return [self._decision(self.remedy.restore, words, now, seen_gain=seen_gain)]


def _shorter(gain: float) -> str:
    return f"{100 * abs(gain):.0f} % {'shorter' if gain >= 0 else 'longer'}"
