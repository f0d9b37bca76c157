"""How NCCL would lay rings and trees over the members of a communicator, from its published construction.

NCCL gives half of its channels one binary tree over the hosts and the other half a second one, in which whoever was
inside before is a leaf: each tree then uses what the other one leaves idle. Within a host the ranks form a chain
behind the one that is connected to other hosts. Here there are two channels, one for each tree.
"""

from __future__ import annotations

from collections.abc import Sequence


def tree_parent(position: int, n: int) -> int | None:
    """The parent of a position among `n` in the first tree; position 0 is the root.

    Positions lie as in a binary search tree: how many zeros a number ends with is how high it stands. Its parent stands
    one higher, at the nearer multiple of twice its step; where that one would be beyond the end, at the lower one.

    >>> [tree_parent(position, 7) for position in range(7)]
    [None, 2, 4, 2, 0, 6, 4]
    """
    if position == 0:
        return None
    step = position & -position
    upper = (position | (2 * step)) - step  # the odd multiple of twice the step that it lies beside
    return upper if upper < n else position - step


def host_parents(n: int) -> list[list[int | None]]:
    """By channel, the parent of each of `n` hosts.

    The second tree is the first one in a mirror where `n` is even, and shifted by one host where it is odd.

    >>> host_parents(4)
    [[None, 2, 0, 2], [1, 3, 1, None]]
    """
    first = [tree_parent(position, n) for position in range(n)]
    second: list[int | None] = []
    for host in range(n):
        position = (host - 1) % n if n % 2 else n - 1 - host
        parent = tree_parent(position, n)
        second.append(None if parent is None else (parent + 1) % n if n % 2 else n - 1 - parent)
    return [first, second]


def tree_edges(ranks: Sequence[int], ranks_per_host: int) -> list[list[tuple[int, int]]]:
    """By channel, child and parent of every link of the trees over `ranks`.

    >>> tree_edges((0, 1, 2, 3), ranks_per_host=2)
    [[(1, 0), (2, 0), (3, 2)], [(0, 2), (1, 0), (3, 2)]]
    """
    hosts: dict[int, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(rank // ranks_per_host, []).append(rank)
    chains = list(hosts.values())
    channels = []
    for parents in host_parents(len(chains)):
        edges = []
        for chain, parent in zip(chains, parents, strict=True):
            if parent is not None:
                edges.append((chain[0], chains[parent][0]))
            edges += list(zip(chain[1:], chain, strict=False))
        channels.append(edges)
    return channels


def ring_edges(ranks: Sequence[int], ranks_per_host: int) -> list[list[tuple[int, int]]]:
    """By channel, the links of a ring over `ranks` from each to the next.

    Every ring goes through the hosts in order. On the second channel it enters each at the second rank, so that it
    leaves by another network card.

    >>> ring_edges((0, 1, 2, 3), ranks_per_host=2)
    [[(0, 1), (1, 2), (2, 3), (3, 0)], [(1, 0), (0, 3), (3, 2), (2, 1)]]
    """
    if len(ranks) < 2:
        return [[], []]
    hosts: dict[int, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(rank // ranks_per_host, []).append(rank)
    channels = []
    for channel in (0, 1):
        order = [rank for chain in hosts.values() for rank in (*chain[channel:], *chain[:channel])]
        channels.append(list(zip(order, [*order[1:], order[0]], strict=True)))
    return channels
