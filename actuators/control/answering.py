"""Give all survivors of a loss the same answer, or none of them; pure.

They stand still and wait for it, until a deadline of their own. The offer hands the answer out, and each that has it is
armed by that. Only when all survivors are, and there is time left, it is confirmed, and from then on it stands on each
host that hears so. Before that, one that has gone, or waits no more, is the end of it for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from actuators.control.thresholds import ANSWER_EVERY_NS, CONFIRM_ANSWER_AHEAD_NS, WITHDRAW_WITHIN_NS
from pacehound.model.events.control import CommandResult, TrainerState
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.orders import Confirm, Offer, What, Withdraw

AnswerState = Literal["handing out", "confirming", "withdrawing", "over"]
AnswerOutcome = Literal["applied", "kept", "unknown", "differs"]
_HAVE_IT: tuple[TrainerState, ...] = ("armed", "confirmed", "applied")
_ENDED: tuple[TrainerState, ...] = ("unable", "kept", "absent")


class AnswerProcedure:
    """One answer, from when it is known to what became of it; `step` says what agents are to be told next.

    Parameters
    ----------
    offer
        The answer; its ticket was never used before.
    survivors
        Who must have it.
    is_ordered
        Else it is only told.
    until_ns
        When the first of the survivors waits no more; monotonic time.
    now_ns
        Monotonic time.

    Attributes
    ----------
    reason
        What it waits for, or why it is over.

    """

    def __init__(self, offer: Offer, survivors: Iterable[int], *, is_ordered: bool, until_ns: int, now_ns: int) -> None:
        self.offer = offer
        self.survivors = frozenset(survivors)
        self.state: AnswerState = "handing out"
        self.reason = "handing it out"
        self.is_ordered = is_ordered
        self._until_ns = until_ns
        self._next_ns = now_ns
        self._ranks: dict[int, TrainerState] = {}
        self._was_confirmed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing will be told any more."""
        return self.state == "over"

    @property
    def outcome(self) -> AnswerOutcome:
        """What is known to have become of it: used by all survivors, by none, not known of some, or by some only."""
        states = [self._ranks.get(rank) for rank in self.survivors]
        if "applied" in states and "kept" in states:
            return "differs"
        if all(state == "applied" for state in states):
            return "applied"
        is_decided = all(state in _ENDED for state in states)
        return "kept" if "applied" not in states and (is_decided or not self._was_confirmed) else "unknown"

    def waits_until(self, until_ns: int) -> None:
        """One of the survivors waits no longer than this."""
        self._until_ns = min(self._until_ns, until_ns)

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        if self.is_over:
            return []
        for result in results:
            if result.ticket != self.offer.ticket:
                continue
            self._ranks |= {one.rank: one.state for one in result.trainers}
            if result.refused and result.what == "confirm" and self.state == "confirming":
                return self._withdraw(f"{result.host} has not confirmed it: {result.reason}", now_ns)
        match self.state:
            case "handing out":
                return self._hand_out(now_ns)
            case "confirming":
                return self._confirm(now_ns)
            case _:
                return self._see_what_became(now_ns)

    def _hand_out(self, now_ns: int) -> list[What]:
        states = {rank: self._ranks.get(rank) for rank in self.survivors}
        if not self.is_ordered:
            if now_ns > self._until_ns or all(state in _ENDED for state in states.values()):
                self.state, self.reason = "over", "it was told, and nobody orders it"
                return []
            return self._now_and_then(self.offer, now_ns)
        ended = sorted(rank for rank, state in states.items() if state in _ENDED)
        if ended:
            return self._withdraw(f"{ranks_words(ended)} cannot, or wait no more", now_ns)
        missing = sorted(rank for rank, state in states.items() if state not in _HAVE_IT)
        if not missing and now_ns + CONFIRM_ANSWER_AHEAD_NS <= self._until_ns:
            self.state, self.reason = "confirming", "all survivors have it; confirming it"
            self._was_confirmed = True
            self._next_ns = now_ns + ANSWER_EVERY_NS
            return [Confirm(ticket=self.offer.ticket)]
        if now_ns + CONFIRM_ANSWER_AHEAD_NS > self._until_ns:
            who = f"{ranks_words(missing)} had not said that they have it" if missing else "no time was left"
            return self._withdraw(f"too late: {who}", now_ns)
        return self._now_and_then(self.offer, now_ns)

    def _confirm(self, now_ns: int) -> list[What]:
        states = {self._ranks.get(rank) for rank in self.survivors}
        if states <= {"applied", *_ENDED}:
            self.state, self.reason = "over", "all survivors have decided"
            return []
        if now_ns > self._until_ns + WITHDRAW_WITHIN_NS:
            self.state, self.reason = "over", "it is confirmed, and not all survivors have said that they use it"
            return []
        # Past the deadline they have decided by their tokens, and who has not heard it keeps to that.
        return self._now_and_then(Confirm(ticket=self.offer.ticket), now_ns) if now_ns < self._until_ns else []

    def _withdraw(self, reason: str, now_ns: int) -> list[What]:
        self.state, self.reason = "withdrawing", reason
        self._until_ns, self._next_ns = now_ns + WITHDRAW_WITHIN_NS, now_ns + ANSWER_EVERY_NS
        return [Withdraw(ticket=self.offer.ticket)]

    def _see_what_became(self, now_ns: int) -> list[What]:
        states = {self._ranks.get(rank) for rank in self.survivors}
        if now_ns > self._until_ns or states <= {"applied", *_ENDED}:
            self.state = "over"
            return []
        return self._now_and_then(Withdraw(ticket=self.offer.ticket), now_ns)

    def _now_and_then(self, what: What, now_ns: int) -> list[What]:
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + ANSWER_EVERY_NS
        return [what]
