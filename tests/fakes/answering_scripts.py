"""The agents of a job of two ranks whose scripts take orders for micro-batches, as a controller hears them."""

from __future__ import annotations

import json

from pacehound.model.events import CommandResult, TrainerAnswer
from pacehound.model.events.control import TrainerState
from pacehound.model.orders import Apply, Confirm, Offer, What
from tests.fakes.answering_agents import Agents

MICRO_BATCHES = 8
STEPS_BETWEEN = 40


class Scripts(Agents):
    """Rank 1 takes `ratio` times as long; whatever is ordered is answered at once."""

    def __init__(self) -> None:
        super().__init__()
        self.ratio = 2.0
        self.micro_batches = MICRO_BATCHES
        self.counts = [MICRO_BATCHES, MICRO_BATCHES]
        self.payloads: list[list[int]] = []
        self.step = 100
        self._offer: Offer | None = None
        self._at_step = -1

    @property
    def per_s(self) -> float:
        """Steps."""
        return 10 * MICRO_BATCHES / max(self.counts[0], self.counts[1] * self.ratio)

    def answers(self, orders: list[What]) -> list[CommandResult]:
        found = super().answers([one for one in orders if not isinstance(one, Offer | Apply | Confirm)])
        for order in orders:
            self.step += STEPS_BETWEEN
            if isinstance(order, Offer):
                self._offer = order
                found += self._said(order.ticket, "able", self.step)
            elif isinstance(order, Apply):
                self._at_step = order.step
                found += self._said(order.ticket, "armed", self.step)
            elif isinstance(order, Confirm) and self._offer is not None:
                self.counts = json.loads(self._offer.payload)
                self.payloads.append(self.counts)
                found += self._said(order.ticket, "confirmed", self.step)
                found += self._said(order.ticket, "applied", self._at_step)
        return found

    def _said(self, ticket: int, state: TrainerState, step: int) -> list[CommandResult]:
        said = {"step": step, "per_s": self.per_s, "micro_batches": self.micro_batches}
        return [
            self.result(rank, "offer", ticket=ticket, trainers=(TrainerAnswer(rank=rank, state=state, **said),))  # type: ignore[arg-type]
            for rank in (0, 1)
        ]
