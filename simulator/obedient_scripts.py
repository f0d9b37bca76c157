"""The scripts of a simulated job that take orders at their steps (`pacehound.trainer`), all of one mind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pacehound.model.events import TrainerAnswer
from pacehound.model.events.control import TrainerState
from pacehound.model.orders import Apply, Confirm, Offer, Withdraw
from pacehound.trainer.order import PACE
from simulator.running_job import RunningJob

LEASE_NS = 8_000_000_000
"""What is offered and not confirmed ends when nobody says for so long that he lives."""

Say = Callable[[int, Callable[[int], TrainerAnswer]], None]
"""Tells the controller of an order what each rank says."""


class ObedientScripts:
    """Of all ranks: they are in step, so that what one decides all do.

    Attributes
    ----------
    applied
        By step, what they were given.

    """

    def __init__(self, job: RunningJob, kinds: Sequence[str], micro_batches: int, say: Say) -> None:
        self.applied: dict[int, tuple[str, Any]] = {}
        self._job, self._kinds, self._micro_batches, self._say = job, tuple(kinds), micro_batches, say
        self._offer: Offer | None = None
        self._state: TrainerState = "asked"
        self._at_step, self._until_ns = -1, 0
        job.at_step = self._come_to

    def obey(self, what: Offer | Apply | Confirm | Withdraw, now_ns: int) -> str:
        """Do as an agent does for them; why it cannot be, else nothing."""
        is_open = self._offer is not None and self._offer.ticket == what.ticket
        if isinstance(what, Offer) and not is_open:
            if self._state == "confirmed" and self._offer is not None:
                return "another order waits for its step"
            self._offer, self._at_step = what, -1
            self._state = "able" if what.kind in (*self._kinds, PACE) else "unable"
            self.say()
        elif not is_open:
            return "" if isinstance(what, Withdraw) else "there is no such offer here"
        self._until_ns = now_ns + LEASE_NS
        match what:
            case Apply() if self._state == "able" and what.step <= self._job.step:
                self._keep(f"it had passed step {what.step} by the time it was told")
            case Apply() if self._state == "able":
                self._state, self._at_step = "armed", what.step
                self.say()
            case Confirm() if self._state == "armed":
                self._state = "confirmed"
                self.say()
            case Withdraw():
                self._keep("it was withdrawn")
        return ""

    def look(self, now_ns: int) -> None:
        """End what nobody renews."""
        if self._offer is not None and self._state != "confirmed" and now_ns > self._until_ns:
            self._keep("the controller says nothing more")

    def say(self, why: str = "") -> None:
        """How far they are with the order that is open."""
        if self._offer is None:
            return
        step = self._at_step if self._state == "applied" else self._job.step
        state, per_s, micro_batches = self._state, 1 / self._job.iteration_s, self._micro_batches

        def answer(rank: int) -> TrainerAnswer:
            return TrainerAnswer(rank=rank, state=state, step=step, per_s=per_s, why=why, micro_batches=micro_batches)

        self._say(self._offer.ticket, answer)

    def _come_to(self, step: int) -> None:
        if self._offer is None or step != self._at_step:
            return
        if self._state != "confirmed":
            self._keep("not all ranks had it when they came to its step")
            return
        payload = json.loads(self._offer.payload)
        self.applied[step] = (self._offer.kind, payload)
        if self._offer.kind == "microbatches":
            self._job.counts = list(payload)
        self._state = "applied"
        self.say()
        self._offer = None

    def _keep(self, why: str) -> None:
        self._state = "kept"
        self.say(why)
        self._offer = None
