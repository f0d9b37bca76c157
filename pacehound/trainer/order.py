"""What a script is told to do, and what it can say to that beforehand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
"""What a kind of orders is called: by whoever writes the script."""

PACE = "pacehound.pace"
"""Asks how fast a rank goes, and is never applied; every script that takes orders answers it."""

COLLECT = "pacehound.collect"
"""Every so many steps (`{"every": 100}`) the process collects its garbage, and never otherwise; `{"every": 0}`: as
before. Nothing is handed to the script, which need not know of it."""

RECOVERY = "pacehound.recovery"
"""Which plan to go on with after a loss: what `Control.recovery` has asked for is answered with it, and nobody else."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order.

    Attributes
    ----------
    kind
        Which: one of those that the script has named.
    payload
        What JSON can say; `None` where there is none.
    why
        A sentence for people.
    step
        At which it is applied; -1 while that is open.
    ticket
        Names it; the same on all ranks.

    """

    kind: str
    payload: Any
    why: str
    step: int
    ticket: int


Can = Callable[[Order], bool | str]
"""Whether the script can carry an order out; where it cannot, why."""

Agree = Callable[[list[int]], list[int]]
"""The smallest of each number over all ranks: an all-reduce of the script's own."""


def refusal(order: Order, kinds: tuple[str, ...], can: Can | None) -> str:
    """Why the script cannot carry it out, else nothing.

    >>> refusal(Order("collect", None, "", -1, 1), ("microbatches",), None)
    "its script takes no 'collect', only: microbatches"
    """
    if order.kind == PACE:
        return ""
    if order.kind == COLLECT:
        return "" if interval_of(order.payload) is not None else f"{order.payload!r} is no number of steps"
    if order.kind not in kinds:
        named = f"only: {', '.join(kinds)}" if kinds else "and names no kinds in trainer.connect"
        return f"its script takes no {order.kind!r}, {named}"
    if can is None:
        return ""
    try:
        found = can(order)
    except Exception as error:
        return f"its script cannot say: {type(error).__name__}: {error}"
    return "" if found is True else (found if isinstance(found, str) and found else "its script says no")


def interval_of(payload: Any) -> int | None:
    """Steps between two collections; 0: as the interpreter does it. `None` where it says neither.

    >>> interval_of({"every": 100}), interval_of({"every": -1}), interval_of(None)
    (100, None, None)
    """
    every = payload.get("every") if isinstance(payload, dict) else None
    return every if isinstance(every, int) and every >= 0 else None
