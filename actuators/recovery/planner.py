"""The plans worth pricing for so many nodes: Odyssey's algorithm 1 without listing what cannot win.

Algorithm 1 lists all divisions of the nodes into pipelines and takes the one of the shortest step. Their number grows
beyond all bounds (31 nodes in up to 8 stages: thousands; 1,023: more than can be counted one by one). Yet a
pipeline of l stages can do m_l(T) micro-batches in a time T whatever its neighbours do, so a division that takes no
longer than T exists if and only if

    max { sum of m_l(T) over the pipelines : their lengths add up to N or less } >= the batch,

a knapsack for each number of pipelines. The least T is found by bisection over the times that pipelines can take, and
is that of the best of *all* divisions. `fill_and_cycle_s` stands for a pipeline's time in it; what is found is then
estimated in full.

For each number of pipelines near the old one and near the best one there are up to three plans: the one of the
shortest step, the symmetric one (it exchanges gradients in one round), and the one whose pipelines differ by one stage
at most (few layers move).

The knapsack takes O(D N R) for D pipelines, N nodes and R lengths, a few dozen times; D is N divided by the stages.
`python -m bench recovery` measures how it grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from actuators.recovery.estimator import fill_and_cycle_s, hop_s
from actuators.recovery.layers import split_layers
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.state import Plan, even_batches
from actuators.recovery.thresholds import DP_SPREAD, PP_ALWAYS, PP_GROWTH, PP_SPREAD

_NONE = -(2**30)
_SLACK = 1e-9  # of a time that is compared with a sum of the same numbers in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """A pipeline of so many stages: its layers, and what its micro-batches take."""

    n_stages: int
    stages: tuple[int, ...]
    fill_s: float
    cycle_s: float

    def micro_batches(self, within_s: float) -> int:
        """How many it can do."""
        if within_s * (1 + _SLACK) < self.fill_s:
            return 0
        return 1 + int((within_s * (1 + _SLACK) - self.fill_s) / self.cycle_s)

    def step_s(self, n_micro_batches: int) -> float:
        """How long it takes for some."""
        return self.fill_s + (n_micro_batches - 1) * self.cycle_s


def lengths_that_fit(
    model: ModelProfile, cluster: ClusterProfile, n_nodes: int, pp: int, memory_bytes: float | None = None
) -> tuple[Length, ...]:
    """Pipelines of all lengths that may be tried: none out of memory, none much longer than before."""
    hop = hop_s(model, cluster)
    memory = cluster.memory_bytes if memory_bytes is None else memory_bytes
    found: list[Length] = []
    for n_stages in range(1, min(n_nodes, model.n_layers) + 1):
        if found and n_stages > max(PP_GROWTH * pp, found[0].n_stages + PP_SPREAD, PP_ALWAYS):
            break
        stages = split_layers(model, n_stages, memory)
        if stages is not None:
            fill_s, cycle_s = fill_and_cycle_s(model, stages, hop)
            found.append(Length(n_stages=n_stages, stages=stages, fill_s=fill_s, cycle_s=cycle_s))
    return tuple(found)


def distribute_batch(pipelines: Sequence[Length], n_micro_batches: int) -> tuple[int, ...]:
    """Each micro-batch to the pipeline that is the first to be done with it; every pipeline has one.

    Times only grow with each, so that no other distribution has a shorter longest time. (Odyssey IV-A divides by the
    number of nodes and hands out the rest one by one.)
    """
    batches = [1] * len(pipelines)
    waiting = [(one.step_s(2), number) for number, one in enumerate(pipelines)]
    heapify(waiting)
    for _ in range(n_micro_batches - len(pipelines)):
        _, number = waiting[0]
        batches[number] += 1
        heapreplace(waiting, (pipelines[number].step_s(batches[number] + 1), number))
    return tuple(batches)


class _Knapsack:
    """How many micro-batches D pipelines on N nodes can do within a time, for all D and N at once."""

    def __init__(self, lengths: Sequence[Length], n_nodes: int, most_pipelines: int, n_micro_batches: int) -> None:
        self.lengths, self.n_nodes, self.most, self.batch = lengths, n_nodes, most_pipelines, n_micro_batches
        numbers = np.arange(n_micro_batches)
        self.times_s = np.unique(np.concatenate([one.fill_s + numbers * one.cycle_s for one in lengths]))
        self._tables: dict[int, npt.NDArray[np.int32]] = {}

    def table(self, at: int) -> npt.NDArray[np.int32]:
        """`table[d, n]`: the most micro-batches of d pipelines that take n nodes."""
        if at in self._tables:
            return self._tables[at]
        can = [(one.n_stages, one.micro_batches(self.times_s[at])) for one in self.lengths]
        can = [(nodes, micro_batches) for nodes, micro_batches in can if micro_batches]
        table = np.full((self.most + 1, self.n_nodes + 1), _NONE, dtype=np.int32)
        table[0, 0] = 0
        for d in range(1, self.most + 1):
            for nodes, micro_batches in can:
                row = table[d, nodes:]
                np.maximum(row, table[d - 1, : self.n_nodes + 1 - nodes] + micro_batches, out=row)
        self._tables[at] = table
        return table

    def least(self, rows: slice) -> int | None:
        """The position of the least time in which some numbers of pipelines can do the batch."""
        low, high = 0, len(self.times_s) - 1
        if self.table(high)[rows].max(initial=_NONE) < self.batch:
            return None
        while low < high:
            middle = (low + high) // 2
            if self.table(middle)[rows].max() >= self.batch:
                high = middle
            else:
                low = middle + 1
        return low

    def fewest_nodes(self, at: int, d: int) -> list[Length]:
        """The lengths of d pipelines that can do it within that time, on as few nodes as that takes."""
        table = self.table(at)
        n = int(np.argmax(table[d] >= self.batch))
        chosen = []
        for left in range(d, 0, -1):
            for one in self.lengths:
                micro_batches = one.micro_batches(self.times_s[at])
                if (
                    micro_batches
                    and one.n_stages <= n
                    and table[left - 1, n - one.n_stages] + micro_batches == table[left, n]
                    and table[left, n] >= 0
                ):
                    chosen.append(one)
                    n -= one.n_stages
                    break
        return sorted(chosen, key=lambda one: -one.n_stages)


def plans_for(
    model: ModelProfile, cluster: ClusterProfile, *, n_nodes: int, dp: int, pp: int, n_micro_batches: int
) -> list[Plan]:
    """Plans for some nodes, none of them twice; none where no pipeline fits into memory.

    Parameters
    ----------
    model, cluster
        What layers cost and nodes give.
    n_nodes
        How many are well.
    dp, pp
        Pipelines of the plan before, and stages of its longest.
    n_micro_batches
        Of a step, over all pipelines: the global batch stays as it was.

    """
    lengths = lengths_that_fit(model, cluster, n_nodes, pp)
    if not lengths:
        return []
    around = max(dp, n_nodes // pp)
    most = min(n_nodes // lengths[0].n_stages, n_micro_batches, 2 * around + DP_SPREAD)
    if most < 1:
        return []
    sack = _Knapsack(lengths, n_nodes, most, n_micro_batches)
    at = sack.least(slice(1, most + 1))
    if at is None:
        return []
    best_dp = int(np.argmax(sack.table(at)[1:].max(axis=1) >= n_micro_batches)) + 1
    near = {best_dp, min(dp, most), min(n_nodes // pp, most)} - {0}
    degrees = {d for one in near for d in range(one - DP_SPREAD, one + DP_SPREAD + 1) if 1 <= d <= most}
    found: dict[tuple[tuple[int, ...], ...], Plan] = {}
    for d in sorted(degrees):
        asked = [_even(lengths, n_nodes, d, differ=0), _even(lengths, n_nodes, d, differ=1)]
        least = sack.least(slice(d, d + 1))
        asked.append(None if least is None else sack.fewest_nodes(least, d))
        for pipelines in asked:
            if pipelines is not None:
                plan = _plan(pipelines, n_micro_batches)
                found.setdefault(plan.stages, plan)
    return list(found.values())


def _even(lengths: Sequence[Length], n_nodes: int, d: int, *, differ: int) -> list[Length] | None:
    """Pipelines of equal lengths, or of two that differ by one, on as many nodes as there are."""
    known = {one.n_stages: one for one in lengths}
    stages, more = divmod(n_nodes, d)
    if differ == 0:
        stages, more = min(stages, lengths[-1].n_stages), 0
    if stages not in known or (more and stages + 1 not in known):
        return None
    return [known[stages + (number < more)] for number in range(d)]


def _plan(pipelines: Sequence[Length], n_micro_batches: int) -> Plan:
    stages = tuple(one.stages for one in pipelines)
    if len(set(stages)) == 1:
        return Plan(kind="symmetric", stages=stages, batches=even_batches(n_micro_batches, len(stages)))
    return Plan(kind="asymmetric", stages=stages, batches=distribute_batch(pipelines, n_micro_batches))
