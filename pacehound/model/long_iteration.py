"""Iterations that are so long that it is worth while to look at a job at the very end of each.

Otherwise a job is looked at in whole ticks: who ends an iteration just behind one is judged a tick later.
"""

from __future__ import annotations

LONG_TICKS = 5
"""Ticks that such an iteration takes at least (chosen: one look more in five costs little)."""


def is_long(took_ns: float, tick_ns: int) -> bool:
    """Whether an iteration is so long.

    >>> is_long(11.5e9, 1_000_000_000), is_long(0.2e9, 1_000_000_000)
    (True, False)
    """
    return took_ns >= LONG_TICKS * tick_ns
