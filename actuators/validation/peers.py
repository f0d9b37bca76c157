"""Beside whom a few ranks of a job are measured: those that they share a communicator with; pure.

Falcon 4.3 measures the groups that were slow, not the job. A rank is judged by what its peers take, and its links are
those to its neighbours, so that a handful of ranks around it tells as much as ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actuators.validation.thresholds import LEAST_PEERS, PEERS_EACH_SIDE
from pacehound.errors import InvalidInput


def with_peers(ranks: Iterable[int], groups: Iterable[Sequence[int]], world_size: int) -> tuple[int, ...]:
    """The ranks and their nearest neighbours in each communicator that they are in, in order.

    Parameters
    ----------
    ranks
        Who is to be judged.
    groups
        Members of the job's communicators in their order, as far as they are known; -1 where one is not. Where a rank
        has too few peers in those that are smaller than the job, its neighbours in the whole job are measured, too.
    world_size
        How many ranks the job has.

    Raises
    ------
    InvalidInput
        The job has no such rank.

    Examples
    --------
    >>> with_peers([9], [], 32)
    (5, 6, 7, 8, 9, 10, 11, 12, 13)
    >>> with_peers([9], [(8, 9), (1, 9, 17, 25), range(32)], 32)
    (1, 8, 9, 17, 25)

    """
    asked = sorted(set(ranks))
    outside = [rank for rank in asked if not 0 <= rank < world_size]
    if outside:
        raise InvalidInput(f"there is no rank {outside[0]}: the job has ranks 0 to {world_size - 1}")
    small = [group for group in groups if 1 < len(group) < world_size]
    found = set(asked)
    for rank in asked:
        peers = {peer for group in small if rank in group for peer in _nearest(rank, group)}
        found |= peers if len(peers - {rank, -1}) >= LEAST_PEERS else peers | _nearest(rank, range(world_size))
    return tuple(sorted(rank for rank in found if 0 <= rank < world_size))


def _nearest(rank: int, group: Sequence[int]) -> set[int]:
    at, reach = list(group).index(rank), min(PEERS_EACH_SIDE, len(group) // 2)
    return {group[(at + step) % len(group)] for step in range(-reach, reach + 1)}
