"""How long a transfer takes over the slowest link of a communicator, with the faults of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.topology import Layout, ring_edges

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


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """Seconds per byte of the slowest link of every group, for the steps during which the same links are slow.

    Attributes
    ----------
    tp, dp
        Per byte over the ring of each group; shapes `(pp, dp)` and `(pp, tp)`.
    forward
        Per byte from each rank to its peer in the next stage, shape `(pp - 1, dp, tp)`; the same backwards.
    world
        Per byte over the ring of all ranks.

    """

    tp: FloatArray
    dp: FloatArray
    forward: FloatArray
    world: float
    latency_s: float

    def ring_s(self, op: str, size_bytes: int, ranks: int, s_per_byte: FloatArray | float) -> FloatArray:
        """Duration of a ring algorithm: an all_reduce goes round twice, the others once."""
        turns = 2 if op == "all_reduce" else 1
        share = turns * (ranks - 1) / ranks
        return np.asarray(share * size_bytes * s_per_byte + turns * (ranks - 1) * self.latency_s)


def transfer_times(layout: Layout, network: Network, slow: Iterable[tuple[tuple[int, int], float]]) -> TransferTimes:
    """Transfer times while the links `slow`, given as `((a, b), bandwidth_factor)`, are slow in both directions."""
    factors: dict[frozenset[int], float] = {}
    for (a, b), factor in slow:
        key = frozenset((a, b))
        factors[key] = factors.get(key, 1.0) * factor

    def s_per_byte(a: int, b: int) -> float:
        left = factors.get(frozenset((a, b)), 1.0)
        return math.inf if left == 0.0 else 1.0 / (network.bytes_per_s(a, b) * left)

    def ring(ranks: tuple[int, ...]) -> float:
        return max((s_per_byte(a, b) for a, b in ring_edges(ranks)), default=0.0)

    grid = np.arange(layout.world_size).reshape(layout.pp, layout.dp, layout.tp)
    ahead = zip(grid[:-1].ravel().tolist(), grid[1:].ravel().tolist(), strict=True)
    return TransferTimes(
        tp=np.array([ring(group) for group in layout.groups("tp")]).reshape(layout.pp, layout.dp),
        dp=np.array([ring(group) for group in layout.groups("dp")]).reshape(layout.pp, layout.tp),
        forward=np.array([s_per_byte(a, b) for a, b in ahead]).reshape(layout.pp - 1, layout.dp, layout.tp),
        world=ring(tuple(range(layout.world_size))),
        latency_s=network.latency_s,
    )
