"""The order that a rank has been offered and has not decided about, and how fast the rank goes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pacehound.trainer.order import Order

SAY_EVERY_NS = 500_000_000
"""While an order is open its rank says so often how far it is; the step to apply at is chosen by that."""

_RATE_OVER_NS = 200_000_000
"""How fast it goes is measured for so long, and for one step at least, before it says that it can."""


@dataclass(slots=True)
class OpenOrder:
    """It, and since when and since which step it is open; monotonic time."""

    order: Order
    state: Literal["asked", "able", "armed"]
    since_ns: int
    since_step: int
    said_ns: int = 0

    def word(self, step: int, now_ns: int) -> dict[str, Any] | None:
        """That it is open here, how far and how fast the rank is; `None` where that need not be said now.

        >>> one = OpenOrder(Order("collect", None, "", -1, 7), "asked", since_ns=0, since_step=10)
        >>> one.word(11, 100_000_000), one.word(15, 1_000_000_000)
        (None, {'say': 'able', 'ticket': 7, 'step': 15, 'per_s': 5.0})
        """
        took_ns, steps = now_ns - self.since_ns, step - self.since_step
        is_measured = took_ns >= _RATE_OVER_NS and steps > 0
        if (self.state == "asked" and not is_measured) or now_ns - self.said_ns < SAY_EVERY_NS:
            return None
        if self.state == "asked":
            self.state = "able"
        self.said_ns = now_ns
        return {
            "say": self.state,
            "ticket": self.order.ticket,
            "step": step,
            "per_s": max(steps, 0) / (took_ns / 1e9),
        }
