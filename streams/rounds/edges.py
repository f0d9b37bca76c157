"""Over which edges the members of a communicator send: as their profiler plugins have seen them, else as NCCL builds.

An edge is seen when a call makes a transfer over the network on it; edges inside of a host (NVLink) never are. Ends are
places in the communicator, as NCCL counts. Where nothing was seen, a tree is taken to be NCCL's own: two binary trees
over the hosts in their order, one for each half of the channels, and the ranks of a host in a chain behind its first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pacehound.model.events import Progress

Edge = tuple[int, int]

ROOT = -1
"""Stands for the parent of the host at the top."""


@dataclass(frozen=True, slots=True)
class HostTree:
    """A tree over the hosts of a communicator, numbered in their order.

    `parents` holds each host's parent, or `ROOT`; `ends` the places of the ranks that an edge connects, by the host
    below it: the one there, then its parent's.
    """

    parents: tuple[int, ...]
    ends: Mapping[int, Edge]


class SeenEdges:
    """Edges of each communicator, by algorithm and channel (modulo 8)."""

    def __init__(self) -> None:
        self._edges: dict[str, dict[tuple[str, int], set[Edge]]] = {}

    def add(self, progress: Progress) -> None:
        """Take in the edges that a host tells of, each of them once."""
        for edge in progress.edges:
            channels = self._edges.setdefault(progress.communicator, {})
            channels.setdefault((edge.algorithm, edge.channel), set()).add((edge.sender, edge.receiver))

    def of_channel(self, communicator: str, algorithm: str, channel: int) -> frozenset[Edge]:
        """From sender to receiver; empty where none was seen."""
        return frozenset(self._edges.get(communicator, {}).get((algorithm, channel), ()))

    def of_all_channels(self, communicator: str, algorithm: str) -> frozenset[Edge]:
        """Those of all channels together."""
        channels = self._edges.get(communicator, {})
        return frozenset().union(*(edges for (name, _), edges in channels.items() if name == algorithm))


def hosts_in_order(hosts: Iterable[str | None]) -> list[int]:
    """The number of each place's host, from 0 in order of first place; a place whose host is not known has its own.

    >>> hosts_in_order(["b", "b", "a", None, "b"])
    [0, 0, 1, 2, 0]
    """
    numbers: dict[object, int] = {}
    return [numbers.setdefault(host if host is not None else place, len(numbers)) for place, host in enumerate(hosts)]


def binary_tree(n: int) -> tuple[int, ...]:
    """The parent of each of `n` hosts in the first of NCCL's two trees.

    The first host has one child, the middle of all others; each side of a middle is built the same way. A middle is
    the highest power of two that fits, so that the left side is full.

    >>> binary_tree(8)
    (-1, 2, 4, 2, 0, 6, 4, 6)
    """
    parents = [ROOT] * n
    parts = [(0, n - 1, 0)]  # (the number before the first one, how many there are, what they hang on)
    while parts:
        before, length, parent = parts.pop()
        if length < 1:
            continue
        half = 1 << (length.bit_length() - 1)
        parents[before + half] = parent
        parts += [(before, half - 1, before + half), (before + half, length - half, before + half)]
    return tuple(parents)


def double_binary_tree(n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both of NCCL's trees over `n` hosts: who is inside of one is a leaf of the other.

    The second one is the first with the hosts turned round where their number is even, and moved on by one where it is
    odd.

    >>> double_binary_tree(3)
    ((-1, 2, 0), (1, -1, 0))
    """
    first = binary_tree(n)
    named = range(n - 1, -1, -1) if n % 2 == 0 else [(at + 1) % n for at in range(n)]
    second = [ROOT] * n
    for at, parent in enumerate(first):
        second[named[at]] = ROOT if parent == ROOT else named[parent]
    return first, tuple(second)


def seen_tree(edges: Iterable[Edge], hosts: Sequence[int]) -> HostTree | None:
    """The tree that edges between hosts make, where it is one of NCCL's two: that alone tells which end is above."""
    pairs: dict[frozenset[int], Edge] = {}
    for edge in sorted(edges):
        pairs.setdefault(frozenset(hosts[place] for place in edge), edge)
    for parents in double_binary_tree(max(hosts) + 1):
        found = {below: pairs.get(frozenset((below, above))) for below, above in enumerate(parents) if above != ROOT}
        ends = {
            below: edge if hosts[edge[0]] == below else (edge[1], edge[0])
            for below, edge in found.items()
            if edge is not None
        }
        if len(ends) == len(pairs) == len(parents) - 1:
            return HostTree(parents, ends)
    return None


def assumed_trees(hosts: Sequence[int]) -> tuple[HostTree, HostTree]:
    """NCCL's own trees over the hosts, with the edges between their first ranks."""
    heads = [hosts.index(number) for number in range(max(hosts) + 1)]
    first, second = (
        HostTree(parents, {below: (heads[below], heads[up]) for below, up in enumerate(parents) if up != ROOT})
        for parents in double_binary_tree(len(heads))
    )
    return first, second


def assumed_neighbours(hosts: Sequence[int]) -> frozenset[Edge]:
    """Every edge of NCCL's own trees, both ways: between hosts, and along the chains inside of them."""
    found = {edge for tree in assumed_trees(hosts) for edge in tree.ends.values()}
    last: dict[int, int] = {}
    for place, host in enumerate(hosts):
        if host in last:
            found.add((last[host], place))
        last[host] = place
    return frozenset(found | {(b, a) for a, b in found})
