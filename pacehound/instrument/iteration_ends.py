"""Which steps of a process's optimizers end its iterations, and the number of each.

A script may have several optimizers, one may step its groups of parameters one after the other (DeepSpeed's ZeRO), and
a loop may be followed by another one with an optimizer of its own.
"""

from __future__ import annotations

import weakref
from typing import Any

PATIENT_STEPS = 16
"""Another optimizer may make so many steps to one of the first (critics of GANs make five, WGAN), or four times as
many as it has made before."""


class IterationEnds:
    """The optimizer that steps first leads, with the parameters that it steps then: each such step ends an iteration.

    Another one takes the lead when the first is gone, or makes no more steps while the other one does. The numbers of
    iterations go on as if it had led since then, so that they are the same in all ranks, whenever each has seen it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._leader: weakref.ref[Any] | None = None
        self._lead = 0, 0
        self._others: dict[tuple[int, int], int] = {}  # steps since the leader's last
        self._most = 0  # that another one has made between two of the leader's

    def leads(self, optimizer: Any) -> bool:
        """Whether a step of it ends an iteration, as far as is known before it is made."""
        return self._leader is None or (self._leader() is optimizer and self._lead == _which(optimizer))

    def number(self, optimizer: Any) -> int | None:
        """The number, from 0 on, of the iteration that ends with this step; `None` where none does."""
        leader, which = None if self._leader is None else self._leader(), _which(optimizer)
        if leader is optimizer and which == self._lead:
            self._most = max(self._most, *self._others.values(), 0)
            self._others.clear()
            self.count += 1
            return self.count - 1
        steps = self._others[which] = self._others.get(which, 0) + 1
        if leader is not None and steps <= max(PATIENT_STEPS, 4 * self._most):
            return None
        self._leader, self._lead = weakref.ref(optimizer), which
        self._others, self._most = {}, 0
        self.count += steps
        return self.count - 1


def _which(optimizer: Any) -> tuple[int, int]:
    """The optimizer and the first parameter that it steps."""
    first = next((parameter for group in optimizer.param_groups for parameter in group["params"]), None)
    return id(optimizer), id(first)
