"""Which ranks compute at the same time where they share the processors of a machine; pure.

A rank that computes while others want its processor is measured by the scheduler's luck: healthy ones, three on two
processors, differ by more than a third. In turns each has half of its machine for itself, and what else runs there the
rest, so that only what keeps this rank from its processor is seen.
"""

from __future__ import annotations

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
