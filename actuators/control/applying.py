"""Have all ranks of a job do something at the same step of their scripts (`pacehound.trainer`), or none; pure.

Two phases. The offer asks every rank whether it can. Only when all can a step is chosen that lies ahead of all of them,
and told; only when all are armed for it the order is confirmed, and from then on it stands: each host has what it
needs, and nobody is asked any more. Before that, one rank that cannot, has gone, or was too fast, is the end of it for
all.

What is left: an agent that is cut off while the confirmation is handed out. It is taken back on the others in time,
unless the way to them is cut as well. Scripts that agree by themselves (`connect(agree=…)`) close that, see
docs/trainer.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from actuators.control.roll_call import RollCall, is_final
from actuators.control.thresholds import (
    APPLY_AHEAD_S,
    APPLY_AHEAD_STEPS,
    APPLY_SLACK_NS,
    CONFIRM_AHEAD_S,
    CONFIRM_WITHIN_NS,
    KEEP_EVERY_NS,
    MOST_TRIES,
    RENEW_OFFER_EVERY_NS,
    SILENT_AFTER_NS,
    WITHDRAW_WITHIN_NS,
)
from pacehound.model.events.control import CommandResult, TrainerAnswer
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.orders import Apply, Confirm, Offer, What, Withdraw

State = Literal["asking", "arming", "confirming", "waiting", "withdrawing", "over"]
Outcome = Literal["applied", "kept", "unknown", "differs"]

_TOO_FAST = "it had passed step"
"""How a rank says that the step was too near; see pacehound/trainer/control.py."""

_TRY_AGAIN = "a rank was too near to the step by the time it was told; once more, further ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """What a rank has said last, where and when."""

    host: str
    answer: TrainerAnswer
    heard_ns: int

    def step_at(self, now_ns: int) -> float:
        """Where it is by now, at its pace."""
        return self.answer.step + self.answer.per_s * (now_ns - self.heard_ns) / 1e9


class ApplyProcedure:
    """One order, from the question to what became of it; `step` says what agents are to be told next.

    Parameters
    ----------
    ticket
        Names it; neither it nor the `MOST_TRIES` numbers after it were ever used before.
    kind, payload
        What the scripts get; `payload` is JSON.
    within_ns
        All must have said that they can within this time.
    now_ns
        Monotonic time.

    Attributes
    ----------
    reason
        What it waits for, or why it is over.
    ranks
        What each has said last.
    at_step
        At which it is to be applied; -1 before that is known.

    """

    def __init__(self, ticket: int, kind: str, payload: str, within_ns: int, now_ns: int) -> None:
        self.ticket = ticket
        self.state: State = "asking"
        self.reason = "asking the ranks"
        self.ranks: dict[int, At] = {}
        self.at_step = -1
        self._kind, self._payload = kind, payload
        self._roll = RollCall()
        self._within_ns = within_ns
        self._since_ns = self._next_ns = now_ns
        self._until_ns = 0
        self._ahead_s = APPLY_AHEAD_S
        self._tries = 1
        self._why_withdrawn = ""
        self._was_confirmed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing will be told any more."""
        return self.state == "over"

    @property
    def outcome(self) -> Outcome:
        """What is known to have become of it: by all ranks, none, not known of some, or some and not others."""
        states = [at.answer.state for at in self.ranks.values()]
        is_complete = self._roll.world_size > 0 and len(states) >= self._roll.world_size
        has_applied = "applied" in states
        if has_applied and "kept" in states:
            return "differs"
        if has_applied and is_complete and all(state in ("applied", "absent") for state in states):
            return "applied"
        is_decided = all(state in ("kept", "unable", "absent") for state in states)
        return "kept" if not has_applied and (is_decided or not self._was_confirmed) else "unknown"

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        if self.is_over:
            return []
        for result in results:
            if reason := self._hear(result, now_ns):
                if self.state == "arming" and _TOO_FAST in reason and self._tries < MOST_TRIES:
                    return self._again(now_ns)
                return self._withdraw(reason, now_ns)
        match self.state:
            case "waiting":
                return self._wait(now_ns)
            case "withdrawing":
                return self._see_what_became(now_ns)
        silent = sorted(host for host, heard_ns in self._roll.hosts.items() if now_ns - heard_ns > SILENT_AFTER_NS)
        if silent:
            return self._withdraw(f"the agent on {', '.join(silent[:3])} says nothing more", now_ns)
        match self.state:
            case "asking":
                return self._ask(now_ns)
            case "arming":
                return self._arm(now_ns)
            case _:
                return self._confirm(now_ns)

    def end(self, reason: str, now_ns: int) -> list[What]:
        """Take it back, where that can still be done for all; what is confirmed stands."""
        may_be_open = self.state in ("asking", "arming", "confirming")
        self.state, self.reason = "over", reason
        return [Withdraw(ticket=self.ticket)] if may_be_open else []

    def _hear(self, result: CommandResult, now_ns: int) -> str:
        """Remember it; why it is the end, else nothing."""
        is_open = self.state in ("asking", "arming", "confirming")
        if result.refused:
            self._roll.hear(result, now_ns)
            is_ours = result.ticket == self.ticket and is_open and is_final(result)
            return f"{result.host} has refused to {result.what} it: {result.reason}" if is_ours else ""
        if result.ticket != self.ticket:
            return ""
        self._roll.hear(result, now_ns)
        for answer in result.trainers:
            self.ranks[answer.rank] = At(host=result.host, answer=answer, heard_ns=now_ns)
        if not is_open:
            return ""
        ended = [one for one in result.trainers if one.state in ("unable", "absent", "kept")]
        if ended:
            return f"rank {ended[0].rank}: {ended[0].why}"
        return "somebody has withdrawn it" if result.what == "withdraw" else ""

    def _ask(self, now_ns: int) -> list[What]:
        if self._is_complete() and self._are("able"):
            return self._choose(now_ns)
        asked = sorted(rank for rank, at in self.ranks.items() if at.answer.state == "asked")
        self.reason = self._missing() or f"{ranks_words(asked)} will say at the next step whether they can"
        if now_ns - self._since_ns > self._within_ns:
            return self._withdraw(f"not within {self._within_ns / 1e9:g} s: {self.reason}", now_ns)
        return self._now_and_then(Offer(ticket=self.ticket, kind=self._kind, payload=self._payload), now_ns)

    def _choose(self, now_ns: int) -> list[What]:
        """All can: at a step that lies ahead of all of them, and at which they agree where they do."""
        every = {at.answer.agrees_every for at in self.ranks.values()}
        if len(every) > 1:
            return self._withdraw(f"the ranks do not agree at the same steps: every {sorted(every)} steps", now_ns)
        fastest_per_s = max(at.answer.per_s for at in self.ranks.values())
        furthest = max(at.step_at(now_ns) for at in self.ranks.values())
        self.at_step = math.ceil(furthest) + APPLY_AHEAD_STEPS + math.ceil(self._ahead_s * fastest_per_s)
        together = every.pop()
        if together:
            self.at_step = -(-self.at_step // together) * together
        self.state, self.reason = "arming", f"telling all ranks to apply it at step {self.at_step}"
        self._since_ns, self._next_ns = now_ns, now_ns
        return self._arm(now_ns)

    def _arm(self, now_ns: int) -> list[What]:
        if self._time_left_s(now_ns) < CONFIRM_AHEAD_S:
            if self._tries < MOST_TRIES:
                return self._again(now_ns)
            return self._withdraw("not all ranks could be told in time", now_ns)
        if self._are("armed"):
            self.state, self.reason = "confirming", "all ranks are told; confirming it"
            self._since_ns, self._next_ns = now_ns, now_ns + KEEP_EVERY_NS
            self._was_confirmed = True
            return [Confirm(ticket=self.ticket)]
        return self._now_and_then(Apply(ticket=self.ticket, step=self.at_step), now_ns)

    def _confirm(self, now_ns: int) -> list[What]:
        if self._are("confirmed", "applied"):
            self.state, self.reason = "waiting", f"all ranks apply it at step {self.at_step}"
            self._until_ns = now_ns + round(2e9 * max(self._slowest_left_s(now_ns), 0.0)) + APPLY_SLACK_NS
            return []
        if now_ns - self._since_ns > CONFIRM_WITHIN_NS:
            waiting = {at.host for at in self.ranks.values() if at.answer.state == "armed"}
            return self._withdraw(f"the agent on {', '.join(sorted(waiting)[:3])} has not confirmed it", now_ns)
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + KEEP_EVERY_NS
        return [Confirm(ticket=self.ticket)]

    def _wait(self, now_ns: int) -> list[What]:
        if self._is_decided():
            return self.end(f"it came to step {self.at_step}", now_ns)
        if now_ns > self._until_ns:
            return self.end(f"it is confirmed, and not all ranks have come to step {self.at_step} yet", now_ns)
        return []

    def _withdraw(self, reason: str, now_ns: int) -> list[What]:
        if self.state == "withdrawing":
            return []
        had_armed = self.state in ("arming", "confirming")
        self._why_withdrawn = reason
        self.state, self.reason = "withdrawing", reason
        self._until_ns, self._next_ns = now_ns + WITHDRAW_WITHIN_NS, now_ns + KEEP_EVERY_NS
        if not had_armed:
            return self._over_with_a_last_word()
        return [Withdraw(ticket=self.ticket)]

    def _over_with_a_last_word(self) -> list[What]:
        self.state = "over"
        return [Withdraw(ticket=self.ticket)]

    def _see_what_became(self, now_ns: int) -> list[What]:
        if self._is_decided() or now_ns > self._until_ns:
            return self.end(self._why_withdrawn, now_ns)
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + KEEP_EVERY_NS
        return [Withdraw(ticket=self.ticket)]

    def _again(self, now_ns: int) -> list[What]:
        """Once more, further ahead; nothing was confirmed."""
        withdrawn = Withdraw(ticket=self.ticket)
        self.ticket += 1
        self._tries += 1
        self._ahead_s *= 2
        self._since_ns = self._next_ns = now_ns
        self.ranks.clear()
        self._roll.hosts = dict.fromkeys(self._roll.hosts, now_ns)
        self.state, self.reason = "asking", _TRY_AGAIN
        return [withdrawn]

    def _now_and_then(self, what: What, now_ns: int) -> list[What]:
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + RENEW_OFFER_EVERY_NS
        return [what]

    def _time_left_s(self, now_ns: int) -> float:
        """Until the first rank comes to the step."""
        return min(self._left_s(at, now_ns) for at in self.ranks.values())

    def _slowest_left_s(self, now_ns: int) -> float:
        return max(self._left_s(at, now_ns) for at in self.ranks.values())

    def _left_s(self, at: At, now_ns: int) -> float:
        steps = self.at_step - at.step_at(now_ns)
        return steps / at.answer.per_s if at.answer.per_s > 0 else math.copysign(CONFIRM_AHEAD_S, steps)

    def _are(self, *states: str) -> bool:
        return all(at.answer.state in states for at in self.ranks.values())

    def _is_complete(self) -> bool:
        return 0 < self._roll.world_size <= len(self.ranks)

    def _is_decided(self) -> bool:
        return self._is_complete() and self._are("applied", "kept", "unable", "absent")

    def _missing(self) -> str:
        """Who has not answered at all, in a sentence."""
        self._roll.ranks.clear()
        if not self._roll.hosts:
            return self._roll.missing()
        missing = sorted(set(range(self._roll.world_size)) - set(self.ranks))
        if not missing:
            return "" if self._roll.world_size else "no rank says how many there are (WORLD_SIZE)"
        return f"{ranks_words(missing)} of {self._roll.world_size} have no script that takes orders (pacehound.trainer)"
