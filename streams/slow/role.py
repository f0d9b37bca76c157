"""Work that one rank does for all: rank 0 logs, evaluates and saves while the others wait for it.

It is no fault of that rank. It is told by its rhythm, in steps or in seconds, or by what the rank's stack shows it in.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np

from pacehound.model.events import RankStack
from pacehound.model.evidence.computing import WorkForAll
from pacehound.model.evidence.machines import BUSY, Stack
from streams.slow.attribution.records import IterationRecord, columns_of, level_of
from streams.slow.long_iterations import by_chance
from streams.slow.thresholds import EVEN_GAPS, EVEN_SHARE, IN_STEP, MAX_SPELL_GAP, MIN_SPELLS, STEPS_BY_CHANCE


def rhythm(rank: int, slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> WorkForAll | None:
    """How often the slow episodes of a rank come, where most of them come evenly.

    Pauses of others between them are left out: its own are those in which its own time was long.
    """
    first = _spells(rank, slow, quiet)
    if len(first) < MIN_SPELLS:
        return None
    if every := _every_steps([record.step for record in first]):
        return WorkForAll(rank=rank, every=every, unit="steps")
    seconds = [(b.time_ns - a.time_ns) / 1e9 for a, b in itertools.pairwise(first)]
    return WorkForAll(rank=rank, every=statistics.median(seconds), unit="s") if _is_even(seconds) else None


def may_have_a_rhythm(rank: int, slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> bool:
    """Its slow episodes are too few to tell."""
    return len(_spells(rank, slow, quiet)) < MIN_SPELLS


def _spells(rank: int, slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> list[IterationRecord]:
    """The first iteration of each of a rank's slow episodes."""
    its_own = _its_own(rank, slow, quiet)
    first = list(its_own[:1])
    return first + [b for a, b in itertools.pairwise(its_own) if b.step - a.step > MAX_SPELL_GAP + 1]


def _its_own(rank: int, slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> list[IterationRecord]:
    """Those in which the rank's own time was longer, by half at least of what it is in the middle."""
    ranks = np.array([rank])
    longer_ns = columns_of(slow, "own_ns", ranks)[:, 0] - level_of(quiet, "own_ns", ranks)[0]
    if not np.isfinite(longer_ns).all():
        return list(slow)
    middle_ns = float(np.median(longer_ns))
    return [record for record, ns in zip(slow, longer_ns.tolist(), strict=True) if ns >= 0.5 * middle_ns]


def busy_in(stack: RankStack) -> tuple[Stack, ...]:
    """The stack where it shows what a rank is busy in; nothing where it waits, or where the stack does not tell."""
    if stack.doing not in BUSY:
        return ()
    return (Stack(rank=stack.rank, doing=stack.doing, taken_by=stack.taken_by, frames=stack.frames, shown_as="busy"),)


def _every_steps(steps: Sequence[int]) -> int:
    """Every how many steps most of some come, too many for chance; 0 where there is no such number.

    >>> _every_steps([9, 19, 24, 29, 39, 49]), _every_steps([24, 39, 54, 74, 79, 89]), _every_steps([9, 17, 24, 36, 40])
    (10, 5, 0)
    """
    periods = sorted({b - a for a, b in itertools.pairwise(steps)}, reverse=True)
    for every in periods:
        (_, n_due) = Counter(step % every for step in steps).most_common(1)[0]
        if (
            n_due >= max(MIN_SPELLS, IN_STEP * len(steps))
            and by_chance(n_due, len(steps), 1 / every, 1, every) <= STEPS_BY_CHANCE
        ):
            return every
    return 0


def _is_even(gaps: Sequence[float]) -> bool:
    """Whether most are the typical one or whole multiples of it: one may be hidden, and another come between."""
    typical = statistics.median(gaps)
    if typical <= 0:
        return False
    even = [abs(gap - max(round(gap / typical), 1) * typical) <= EVEN_SHARE * typical for gap in gaps]
    return sum(even) >= EVEN_GAPS * len(even)
