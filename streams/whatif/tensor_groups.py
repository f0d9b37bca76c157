"""Ranks that compute one micro-batch together (tensor or context parallelism), told by the collectives in their passes.

Such ranks go through each pass in step: whoever is slow makes all of them slow within it, so that what-if can tell
apart groups of them and not ranks. It takes a group for one worker, as the published traces do, which have one row per
tensor-parallel group (W 3.1). Which rank of a group it is, the critical path says (streams/attribution).

A group is a communicator of one stage on which nearly every forward and nearly every backward pass of its ranks reduces
something. Gradients of data parallelism are reduced in (or after) backward passes alone. Where a script has no pipeline
schedule, its forward passes are told from outside: they begin when the step before has ended, and what is reduced there
for the log, at their beginning, must not be taken for a part of them. There reductions count in the second half of a
forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from streams.whatif import optypes
from streams.whatif.reductions import are_reductions, begins_ns
from streams.whatif.thresholds import MOST_PASSES

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TensorGroups:
    """Which ranks make up one worker."""

    # by rank, all ranks of its group in order; ranks that compute alone are not in it
    of_rank: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    communicators: frozenset[str] = frozenset()  # on which these groups reduce within their passes

    def ranks(self, rank: int) -> tuple[int, ...]:
        """The worker of a rank.

        >>> TensorGroups({1: (0, 1)}).ranks(1), TensorGroups().ranks(4)
        ((0, 1), (4,))
        """
        return self.of_rank.get(rank, (rank,))


NO_GROUPS = TensorGroups()
"""Every rank computes alone."""


def tensor_groups(operations: Sequence[Operations], rounds: Sequence[Rounds]) -> TensorGroups:
    """Find them in some sampled steps.

    Operations are those of all ranks in whole steps, rounds of the time of these steps.
    """
    rank, stage, optype, start_ns, end_ns = (
        np.concatenate([one.integers(name) for one in operations]).astype(np.int64)
        for name in ("rank", "stage", "optype", "start_ns", "end_ns")
    )
    stage_of = dict(zip(rank.tolist(), stage.tolist(), strict=True))
    arrivals_ns: dict[tuple[str, tuple[int, ...]], list[Int64Array]] = {}
    for one in rounds:
        stages = {stage_of.get(member, -1) for member in one.ranks}
        if one.is_pair or len(one.ranks) < 2 or len(stages) > 1 or -1 in stages:
            continue
        first_ns = begins_ns(one)[are_reductions(one), 0]
        arrivals_ns.setdefault((one.communicator, one.ranks), []).append(first_ns[first_ns > 0])
    has_stages = len(set(stage_of.values())) > 1
    together = []
    communicators = set()
    for (communicator, ranks), parts in arrivals_ns.items():
        at_ns = np.sort(np.concatenate(parts))
        is_first = rank == ranks[0]
        forward, backward = (np.flatnonzero(is_first & (optype == kind)) for kind in optypes.COMPUTE)
        if not len(forward) or not len(backward):
            continue
        forward_ns = start_ns[forward]
        if not has_stages:
            forward_ns = (forward_ns + end_ns[forward]) // 2
        shares = _share(at_ns, forward_ns, end_ns[forward]), _share(at_ns, start_ns[backward], end_ns[backward])
        if min(shares) >= MOST_PASSES:
            communicators.add(communicator)
            together.append(ranks)
    members: dict[int, list[int]] = {}
    for member, first in sorted(joined(together).items()):
        members.setdefault(first, []).append(member)
    of_rank = {member: tuple(group) for group in members.values() for member in group}
    return TensorGroups(of_rank, frozenset(communicators))


def joined(sets: Iterable[Collection[int]]) -> dict[int, int]:
    """The lowest number that each one hangs together with, by way of any of the sets.

    >>> joined([(1, 2), (4, 5), (2, 3)])
    {1: 1, 2: 1, 4: 4, 5: 4, 3: 1}
    """
    first_of: dict[int, int] = {}

    def first(one: int) -> int:
        while first_of[one] != one:
            one = first_of[one]
        return one

    for some in sets:
        for one in some:
            first_of.setdefault(one, one)
        firsts = {first(one) for one in some}
        first_of.update(dict.fromkeys(firsts, min(firsts)))
    return {one: first(one) for one in first_of}


def _share(at_ns: Int64Array, starts_ns: Int64Array, ends_ns: Int64Array) -> float:
    """The share of passes in which something arrives."""
    n_in = np.searchsorted(at_ns, ends_ns, side="right") - np.searchsorted(at_ns, starts_ns, side="left")
    return float((n_in > 0).mean())
