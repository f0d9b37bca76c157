"""Ask a job's scripts how fast they go and how many micro-batches each computes; pure.

An offer that every script can answer and none applies (`pacehound.trainer`): while it is open each rank says twice a
second at which step it is, and how many it makes in a second, by its own clock. Nobody waits for anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actuators.control.roll_call import RollCall, is_final
from actuators.control.thresholds import PACE_ANSWER_WITHIN_NS, RENEW_OFFER_EVERY_NS
from pacehound.model.events.control import CommandResult, TrainerAnswer
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.orders import Offer, What, Withdraw
from pacehound.trainer.order import PACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a job goes.

    Attributes
    ----------
    step_time_s
        Mean over the steps that were watched, of the slowest rank.
    micro_batches
        By rank, as its script began with; 0 where it does not say.
    hosts
        By rank.
    layout
        Replicas and stages, where all scripts say the same; else `None`.
    furthest_step
        Of all ranks.

    """

    step_time_s: float
    micro_batches: tuple[int, ...]
    hosts: tuple[str, ...] = ()
    layout: tuple[int, int] | None = None
    furthest_step: int = 0


class PaceProcedure:
    """From the question to the answer of all ranks.

    Parameters
    ----------
    ticket
        Names it; never used before.
    least_steps
        Each rank is watched for so many.
    within_ns
        All must have made them within this time.
    now_ns
        Monotonic time.

    Attributes
    ----------
    pace
        What was found; `None` as long as there is nothing, and where nothing could be found.
    first
        The same as soon as all have answered at all: how fast they go is not known well by then.
    reason
        What it waits for, or why it is over.
    is_unheard
        It is over because agents do not answer: another time they may.

    """

    def __init__(self, ticket: int, least_steps: int, within_ns: int, now_ns: int) -> None:
        self.pace: Pace | None = None
        self.first: Pace | None = None
        self.reason = "asking the ranks how fast they go"
        self.is_over = self.is_unheard = False
        self._ticket, self._least_steps = ticket, least_steps
        self._until_ns, self._next_ns = now_ns + within_ns, now_ns
        self._answer_until_ns = now_ns + PACE_ANSWER_WITHIN_NS
        self._roll = RollCall()
        self._first_steps: dict[int, int] = {}
        self._answers: dict[int, TrainerAnswer] = {}
        self._host_of: dict[int, str] = {}

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        if self.is_over:
            return []
        for result in results:
            if reason := self._hear(result, now_ns):
                return self.end(reason)
        if self._have_all_answered():
            self.first = self._pace()
            if all(one.step - self._first_steps[rank] >= self._least_steps for rank, one in self._answers.items()):
                self.pace = self.first
                return self.end(f"a step takes {1e3 * self.pace.step_time_s:.3g} ms")
        heard_ns = self._roll.hosts
        if silent := sorted(host for host in heard_ns if now_ns - heard_ns[host] > PACE_ANSWER_WITHIN_NS):
            return self._give_up(f"the agent on {', '.join(silent[:3])} says nothing more")
        if now_ns >= self._answer_until_ns and not self._roll.hosts:
            return self._give_up(self._roll.missing())
        if now_ns >= self._until_ns or (now_ns >= self._answer_until_ns and self._missing()):
            return self.end(self._missing() or f"the ranks have not made {self._least_steps} steps in time")
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + RENEW_OFFER_EVERY_NS
        return [Offer(ticket=self._ticket, kind=PACE)]

    def end(self, reason: str) -> list[What]:
        """Ask no more."""
        if self.is_over:
            return []
        self.is_over, self.reason = True, reason
        return [Withdraw(ticket=self._ticket)]

    def _give_up(self, reason: str) -> list[What]:
        self.is_unheard = True
        return self.end(reason)

    def _hear(self, result: CommandResult, now_ns: int) -> str:
        """Remember it; why it is the end, else nothing."""
        if result.ticket != self._ticket:
            return ""
        if result.refused:
            return f"{result.host} has refused to {result.what} it: {result.reason}" if is_final(result) else ""
        self._roll.hear(result, now_ns)
        for answer in result.trainers:
            self._answers[answer.rank], self._host_of[answer.rank] = answer, result.host
            if answer.state == "able":
                self._first_steps.setdefault(answer.rank, answer.step)
            elif answer.state != "asked":
                return f"rank {answer.rank}: {answer.why or answer.state}"
        return ""

    def _have_all_answered(self) -> bool:
        are_all = 0 < self._roll.world_size <= len(self._answers)
        return are_all and all(one.state == "able" and one.per_s > 0 for one in self._answers.values())

    def _pace(self) -> Pace:
        answers = [self._answers[rank] for rank in sorted(self._answers)]
        layouts = {(one.replicas, one.stages) for one in answers}
        return Pace(
            step_time_s=1 / min(one.per_s for one in answers),
            micro_batches=tuple(one.micro_batches for one in answers),
            hosts=tuple(self._host_of[rank] for rank in sorted(self._answers)),
            layout=layouts.pop() if len(layouts) == 1 and (0, 0) not in layouts else None,
            furthest_step=max(one.step for one in answers),
        )

    def _missing(self) -> str:
        """Who has not answered at all, in a sentence."""
        if not self._roll.world_size:
            return "no rank says how many there are (WORLD_SIZE)"
        missing = sorted(set(range(self._roll.world_size)) - set(self._answers))
        who = f"{ranks_words(missing)} of {self._roll.world_size}"
        return f"{who} have no script that takes orders (pacehound.trainer)" if missing else ""
