"""Work that one rank does for all: rank 0 logs, evaluates and saves while the others wait for it.

It is no fault of that rank. It is told by its rhythm, in steps or in seconds, or by what the rank's stack shows it in.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from pacehound.model.events import RankStack
from pacehound.model.evidence.computing import WorkForAll
from pacehound.model.evidence.machines import BUSY, Stack
from streams.slow.attribution.records import IterationRecord
from streams.slow.thresholds import EVEN_SHARE, MAX_SPELL_GAP, MIN_SPELLS


def rhythm(rank: int, slow: Sequence[IterationRecord]) -> WorkForAll | None:
    """How often the slow episodes of a rank come, where they come evenly."""
    first = list(slow[:1])
    first += [b for a, b in itertools.pairwise(slow) if b.step - a.step > MAX_SPELL_GAP + 1]
    if len(first) < MIN_SPELLS:
        return None
    steps = [float(b.step - a.step) for a, b in itertools.pairwise(first)]
    seconds = [(b.time_ns - a.time_ns) / 1e9 for a, b in itertools.pairwise(first)]
    if _is_even(steps):
        return WorkForAll(rank=rank, every=statistics.median(steps), unit="steps")
    return WorkForAll(rank=rank, every=statistics.median(seconds), unit="s") if _is_even(seconds) else None


def busy_in(stack: RankStack) -> tuple[Stack, ...]:
    """The stack where it shows what a rank is busy in; nothing where it waits, or where the stack does not tell."""
    if stack.doing not in BUSY:
        return ()
    return (Stack(rank=stack.rank, doing=stack.doing, taken_by=stack.taken_by, frames=stack.frames, shown_as="busy"),)


def _is_even(gaps: Sequence[float]) -> bool:
    typical = statistics.median(gaps)
    return typical > 0 and all(abs(gap - typical) <= EVEN_SHARE * typical for gap in gaps)
