"""How long an iteration of a TP x DP x PP job takes, with slow ranks and slow links: a model, simple and stated.

A replica d with m_d micro-batches takes  sum_p e_pd + (m_d - 1) max_p e_pd  for its pipeline (1F1B), e_pd the time of
a micro-batch on a stage, forward and backward, with what it sends on; a slow rank slows its tensor-parallel group. A
stage p reduces its gradients over a ring of all replicas when the last of them has done its backward pass, which on
stage p ends p backward times before that on stage 0; the ring goes at the pace of its slowest edge. The iteration ends
with the last of these reductions. Left out: overlap of reduction and computing, contention between rings, jitter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from actuators.mitigation.microbatches import Ints
from actuators.mitigation.survival import Floats
from pacehound.model.topology import Layout

BACKWARD_SHARE = 2 / 3
"""Of the time of a micro-batch: a backward pass computes twice what a forward pass does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What is slow: ranks and links between hosts, by how many times."""

    ranks: Mapping[int, float] = field(default_factory=dict)
    links: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridJob:
    """A job, and what its parts take when nothing is slow.

    Attributes
    ----------
    hosts
        By rank.
    micro_batches
        Of a global batch.
    stage_s, send_s, reduce_s
        A micro-batch on a stage; what a stage sends on of it; the reduction of a stage's gradients.

    """

    layout: Layout
    hosts: tuple[str, ...]
    micro_batches: int
    stage_s: float
    send_s: float
    reduce_s: float

    @property
    def even(self) -> Ints:
        """As many micro-batches for each replica."""
        return np.full(self.layout.dp, self.micro_batches // self.layout.dp)

    def replica_times(self, rank_at: Ints, faults: Faults) -> tuple[Floats, Floats]:
        """`(dp,)` each: the time of a further micro-batch of a replica, and of filling its pipeline."""
        computing = self.stage_s * self._slowness(rank_at, faults)
        host = self._hosts_at(rank_at)
        sends = np.array(
            [[_link(faults, a, b) for a, b in zip(one, other, strict=True)] for one, other in pairwise(host)]
        ).reshape(self.layout.pp - 1, self.layout.dp)
        taken = computing + np.vstack([self.send_s * sends, np.zeros((1, self.layout.dp))])
        return taken.max(axis=0), taken.sum(axis=0)

    def iteration_s(self, rank_at: Ints, counts: Ints, faults: Faults) -> float:
        """Of these places and micro-batches."""
        each_s, fill_s = self.replica_times(rank_at, faults)
        computed_s = float((fill_s + (counts - 1) * each_s).max())
        host = self._hosts_at(rank_at)
        ends = []
        for stage in range(self.layout.pp):
            ring = host[stage]
            slowest = max(_link(faults, a, b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True))
            ends.append(self.reduce_s * slowest - stage * BACKWARD_SHARE * self.stage_s)
        return computed_s + max(ends)

    def _slowness(self, rank_at: Ints, faults: Faults) -> Floats:
        slow = np.ones(self.layout.world_size)
        for rank, times in faults.ranks.items():
            slow[rank] = max(slow[rank], times)
        return np.asarray(slow[rank_at].reshape(self.layout.pp, self.layout.dp, self.layout.tp).max(axis=2))

    def _hosts_at(self, rank_at: Ints) -> list[list[str]]:
        at = rank_at.reshape(self.layout.pp, self.layout.dp, self.layout.tp)[:, :, 0]
        return [[self.hosts[rank] for rank in stage] for stage in at.tolist()]


def _link(faults: Faults, a: str, b: str) -> float:
    return 1.0 if a == b else max(faults.links.get((a, b), 1.0), faults.links.get((b, a), 1.0))


def job_of(layout: Layout, *, per_host: int, per_replica: int, iteration_s: float, reduce_share: float) -> HybridJob:
    """A job whose healthy iteration takes so long, of which the reduction of gradients is a share."""
    reduce_s = reduce_share * iteration_s
    slots = layout.pp + per_replica - 1
    stage_s = (iteration_s - reduce_s) / slots * 0.95
    send_s = (iteration_s - reduce_s - slots * stage_s) / (slots if layout.pp > 1 else 1)
    job = HybridJob(
        layout=layout,
        hosts=tuple(f"h{rank // per_host}" for rank in range(layout.world_size)),
        micro_batches=per_replica * layout.dp,
        stage_s=stage_s,
        send_s=send_s,
        reduce_s=reduce_s,
    )
    # The last stage sends nothing on, so that it is shorter by a little: all is stretched to what was asked.
    stretch = iteration_s / job.iteration_s(np.arange(layout.world_size), job.even, Faults())
    return HybridJob(
        layout=layout,
        hosts=job.hosts,
        micro_batches=job.micro_batches,
        stage_s=stage_s * stretch,
        send_s=send_s * stretch,
        reduce_s=reduce_s * stretch,
    )
