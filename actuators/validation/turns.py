"""Which ranks compute at the same time where they share the processors of a machine, and on which of these.

A rank that computes while others want its processor is measured by the scheduler's luck: healthy ones, three on two
processors, differ by more than a third. In turns each has half of its machine for itself, and what else runs there the
rest, so that only what keeps this rank from its processor is seen.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

from actuators.validation.thresholds import MOST_TURNS

Turn = frozenset[int]
"""Ranks that compute at the same time."""


def turns_of(machines: Sequence[str], processors: Mapping[str, int], repetition: int) -> tuple[Turn, ...]:
    """Everybody once: on each machine at most so many at a time as are half its processors, but never too many turns.

    Parameters
    ----------
    machines
        By rank.
    processors
        Of each machine.
    repetition
        Draws the order, for all ranks alike: what else runs on a machine may have a rhythm.

    Examples
    --------
    >>> [sorted(turn) for turn in turns_of(["a", "a", "b", "b"], {"a": 2, "b": 64}, 0)]
    [[0, 2, 3], [1]]

    """
    members: dict[str, list[int]] = {}
    for rank, machine in enumerate(machines):
        members.setdefault(machine, []).append(rank)
    turns: list[set[int]] = []
    for machine, ranks in sorted(members.items()):
        random.Random(f"{repetition} {machine}").shuffle(ranks)
        at_once = max(processors[machine] // 2, -(-len(ranks) // MOST_TURNS), 1)
        for number, first in enumerate(range(0, len(ranks), at_once)):
            if number == len(turns):
                turns.append(set())
            turns[number].update(ranks[first : first + at_once])
    return tuple(map(frozenset, turns))


def move_to_another_processor(number: int) -> None:
    """Go to the one of this number among those that it may use, and be free again to leave it.

    What runs beside a processor (on the same core, in another guest) may slow it by more than half. A rank would stay
    where it was in the repetition before, and be called slow for it.
    """
    if hasattr(os, "sched_setaffinity"):
        may_use = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {sorted(may_use)[number % len(may_use)]})
        os.sched_setaffinity(0, may_use)
