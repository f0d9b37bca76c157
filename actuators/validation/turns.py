"""Which ranks compute at the same time where hosts share processors between them; pure.

A rank that computes while others want its processor is measured by the scheduler's luck: healthy ones, three on two
processors, differ by more than a third. In turns each has half of its host for itself, and what else runs there the
rest, so that only what keeps this rank from its processor is seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from actuators.validation.thresholds import MOST_TURNS

Turn = frozenset[int]
"""Ranks that compute at the same time."""


def turns_of(hosts: Sequence[str], processors: Mapping[str, int], repetition: int) -> tuple[Turn, ...]:
    """Everybody once: on each host at most so many at a time as are half its processors, but never too many turns.

    Parameters
    ----------
    hosts
        By rank.
    processors
        Of each host.
    repetition
        Draws the order, for all ranks alike: what else runs on a host may have a rhythm.

    Examples
    --------
    >>> [sorted(turn) for turn in turns_of(["a", "a", "b", "b"], {"a": 2, "b": 64}, 0)]
    [[0, 2, 3], [1]]

    """
    members: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        members.setdefault(host, []).append(rank)
    turns: list[set[int]] = []
    for host, ranks in sorted(members.items()):
        random.Random(f"{repetition} {host}").shuffle(ranks)
        at_once = max(processors[host] // 2, -(-len(ranks) // MOST_TURNS), 1)
        for number, first in enumerate(range(0, len(ranks), at_once)):
            if number == len(turns):
                turns.append(set())
            turns[number].update(ranks[first : first + at_once])
    return tuple(map(frozenset, turns))
