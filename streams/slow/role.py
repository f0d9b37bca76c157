"""Work that one rank does for all: rank 0 logs, evaluates and saves while the others wait for it.

It is no fault of that rank. It is told by its rhythm, in steps or in seconds, or by what the rank's stack shows it in.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from pacehound.model.events import RankStack
from streams.slow.attribution.records import IterationRecord
from streams.slow.thresholds import EVEN_SHARE, MAX_SPELL_GAP, MIN_SPELLS

_BUSY = {"storage": "reads or writes storage", "data_loading": "loads data"}


def rhythm(slow: Sequence[IterationRecord]) -> str:
    """How often slow spells come where they come evenly, in words; empty where they do not."""
    first = list(slow[:1])
    first += [b for a, b in itertools.pairwise(slow) if b.step - a.step > MAX_SPELL_GAP + 1]
    if len(first) < MIN_SPELLS:
        return ""
    steps = [float(b.step - a.step) for a, b in itertools.pairwise(first)]
    seconds = [(b.time_ns - a.time_ns) / 1e9 for a, b in itertools.pairwise(first)]
    if _is_even(steps):
        return f"every {statistics.median(steps):.0f} steps"
    return f"every {statistics.median(seconds):.1f} s" if _is_even(seconds) else ""


def busy_in(stack: RankStack) -> str:
    """What a rank is busy in by its stack, in words; empty where it waits, or where the stack does not tell."""
    if stack.doing not in _BUSY:
        return ""
    where = f": {' < '.join(stack.frames[:3])}" if stack.frames else ""
    return f"rank {stack.rank} is busy: it {_BUSY[stack.doing]} ({stack.taken_by}){where}"


def _is_even(gaps: Sequence[float]) -> bool:
    typical = statistics.median(gaps)
    return typical > 0 and all(abs(gap - typical) <= EVEN_SHARE * typical for gap in gaps)
