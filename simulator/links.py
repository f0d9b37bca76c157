"""How long a transfer takes over the slowest link of a communicator, with the faults of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.topology import Layout
from simulator.nccl_graph import ring_edges, tree_edges

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Bandwidth and latency of the links between ranks, within a host and between hosts."""

    ranks_per_host: int
    within_host_bytes_per_s: float
    between_hosts_bytes_per_s: float
    latency_s: float

    def bytes_per_s(self, a: int, b: int) -> float:
        """Bandwidth of a healthy link."""
        same_host = a // self.ranks_per_host == b // self.ranks_per_host
        return self.within_host_bytes_per_s if same_host else self.between_hosts_bytes_per_s


def expert_groups(layout: Layout, ep: int) -> list[tuple[int, ...]]:
    """World ranks of the groups of `ep` neighbours within each data-parallel group.

    >>> expert_groups(Layout(tp=2, dp=4), 2)
    [(0, 2), (1, 3), (4, 6), (5, 7)]
    """
    return [
        tuple(layout.rank(tp_index, first + i, stage) for i in range(ep))
        for stage in range(layout.pp)
        for first in range(0, layout.dp, ep)
        for tp_index in range(layout.tp)
    ]


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """Seconds per byte of the slowest link of every group, for the steps during which the same links are slow."""

    # per byte over the ring (or tree) of each group; shapes `(pp, dp)`, `(pp, tp)` and `(pp, dp / ep, tp)`
    tp: FloatArray
    dp: FloatArray
    ep: FloatArray
    # per byte from each rank to its peer in the next stage, shape `(pp - 1, dp, tp)`; the same backwards
    forward: FloatArray
    world: float  # per byte over the ring of all ranks
    latency_s: float

    def ring_s(self, op: str, size_bytes: int, ranks: int, s_per_byte: FloatArray | float) -> FloatArray:
        """Duration of a ring algorithm: an all_reduce goes round twice, the others once."""
        turns = 2 if op == "all_reduce" else 1
        share = turns * (ranks - 1) / ranks
        return np.asarray(share * size_bytes * s_per_byte + turns * (ranks - 1) * self.latency_s)

    def tree_s(self, size_bytes: int, ranks: int, s_per_byte: FloatArray | float) -> FloatArray:
        """Duration of an all_reduce over a tree: every byte goes up once and down once, in a pipeline."""
        return np.asarray(2 * size_bytes * s_per_byte + 2 * math.log2(ranks) * self.latency_s)


def slow_factors(slow: Iterable[tuple[tuple[int, int], float]]) -> dict[frozenset[int], float]:
    """How much of its bandwidth each slow link, given as `((a, b), bandwidth_factor)`, has left."""
    factors: dict[frozenset[int], float] = {}
    for (a, b), factor in slow:
        key = frozenset((a, b))
        factors[key] = factors.get(key, 1.0) * factor
    return factors


def transfer_times(
    layout: Layout,
    network: Network,
    slow: Iterable[tuple[tuple[int, int], float]],
    *,
    ep: int = 1,
    is_tree: bool = False,
) -> TransferTimes:
    """Transfer times while the links `slow`, given as `((a, b), bandwidth_factor)`, are slow in both directions.

    `ep` neighbours in a data-parallel group share their experts; with `is_tree` data-parallel groups are trees.
    """
    factors = slow_factors(slow)

    def s_per_byte(a: int, b: int) -> float:
        left = factors.get(frozenset((a, b)), 1.0)
        return math.inf if left == 0.0 else 1.0 / (network.bytes_per_s(a, b) * left)

    def ring(ranks: tuple[int, ...]) -> float:
        channels = ring_edges(ranks, network.ranks_per_host)
        return max((s_per_byte(a, b) for edges in channels for a, b in edges), default=0.0)

    def gradients(ranks: tuple[int, ...]) -> float:
        if not is_tree:
            return ring(ranks)
        channels = tree_edges(ranks, network.ranks_per_host)
        return max((s_per_byte(a, b) for edges in channels for a, b in edges), default=0.0)

    grid = np.arange(layout.world_size).reshape(layout.pp, layout.dp, layout.tp)
    ahead = zip(grid[:-1].ravel().tolist(), grid[1:].ravel().tolist(), strict=True)
    return TransferTimes(
        tp=np.array([ring(group) for group in layout.groups("tp")]).reshape(layout.pp, layout.dp),
        dp=np.array([gradients(group) for group in layout.groups("dp")]).reshape(layout.pp, layout.tp),
        ep=np.array([ring(group) for group in expert_groups(layout, ep)]).reshape(
            layout.pp, layout.dp // ep, layout.tp
        ),
        forward=np.array([s_per_byte(a, b) for a, b in ahead]).reshape(layout.pp - 1, layout.dp, layout.tp),
        world=ring(tuple(range(layout.world_size))),
        latency_s=network.latency_s,
    )
