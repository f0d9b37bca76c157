"""How the ranks of a job are laid out, by who talks to whom: what a recovery plans with when one of them is lost.

Stages hand activations on and gradients back, so the pairs of point-to-point calls are neighbours, and ranks that are
connected by them are a pipeline. Collectives between the same stages of pipelines are data-parallel. Only regular
layouts are told, those that `dp`, `pp`, `tp` and one distance between stages describe; of any other nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OPS
from pacehound.model.events import HALTS, Finding, Topology
from pacehound.model.evidence import Evidence, merged
from pacehound.model.evidence.leaving import JobShape, Left, Process
from pacehound.model.evidence.machines import Gpu, HostSilent
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.job.thresholds import MOST_GROUPS, MOST_PAIRS, SHAPE_STEPS, SHAPE_TIMES, SHARDED_SHARE
from streams.rounds.round_table import RoundsOfKind, RoundTable

Communicators = Mapping[str, tuple[str, tuple[int, ...]]]
"""The name and the members of each."""

_GATHERS = {OPS.index("all_gather"), OPS.index("reduce_scatter")}
_REDUCES = {OPS.index("all_reduce"), OPS.index("reduce_scatter")}


class ShapeWatch:
    """Of one attempt, as long as its world communicator is the same.

    Attributes
    ----------
    earlier
        What its shape was under the world communicator before, and until when.

    """

    def __init__(self) -> None:
        self.earlier: JobShape | None = None
        self._world, self._world_size, self._began_ns = "", 0, 0
        self._forget()

    def _forget(self) -> None:
        self._pairs: dict[tuple[int, int], None] = {}
        # Of each communicator, bytes that its members gathered of each other or scattered, and bytes that they reduced.
        self._groups: dict[str, tuple[int, int]] = {}
        self._pair: tuple[int, int] | None = None  # the pair whose rounds are counted, and when they ended
        self._pair_ns: list[int] = []
        self._reduced, self._reduced_size = "", 0  # the communicator whose bytes are counted
        self._reduced_ns: list[int] = []
        self._reduced_bytes: list[int] = []
        self._steps_ns: list[int] = []
        self._is_full = False

    def on_world(self, world: Topology, communicators: Communicators, step_time_s: float) -> None:
        """Who is in the job: another world communicator is another layout."""
        if world.communicator == self._world:
            return
        self.earlier = self.shape(communicators, step_time_s) if self._world else None
        self._world, self._world_size, self._began_ns = world.communicator, world.world_size, world.time_ns
        self._forget()

    def on_step(self, time_ns: int) -> None:
        """An iteration has ended."""
        self._steps_ns = [*self._steps_ns, time_ns][-SHAPE_STEPS:]

    def on_rounds(self, arrived: RoundTable) -> None:
        """Closed rounds of communicators, and of pairs in them."""
        columns = (arrived.blocks, arrived.last_ns, arrived.kinds)
        for number, (rounds, last_ns, kinds) in enumerate(zip(*columns, strict=True)):
            if self._is_full:
                return
            if last_ns < self._began_ns:
                continue
            if rounds.is_pair:
                self._on_pair((rounds.ranks[0], rounds.ranks[1]), arrived.times_of(number))
            elif len(rounds.ranks) > 1 and (rounds.communicator in self._groups or len(self._groups) < MOST_GROUPS):
                self._on_group(rounds, kinds)
                if any(kind.op in _REDUCES for kind in kinds):
                    self._on_reduced(rounds, arrived.times_of(number))
        for pairs, begins in zip(arrived.pairs, arrived.begins_of_pairs, strict=True):
            self._on_pairs(pairs, begins)

    def _on_pairs(self, pairs: PairRounds, begins: npt.NDArray[np.int64]) -> None:
        """Of more of them than a layout is read of nobody looks at each."""
        if self._is_full:
            return
        times_ns = pairs.times_ns
        ends = np.append(begins[1:], len(pairs))
        current = np.flatnonzero(np.maximum.reduceat(times_ns, begins) >= self._began_ns)
        ranks = pairs.ranks[begins[current]]
        if len(ranks) > MOST_PAIRS and len(np.unique(ranks, axis=0)) > MOST_PAIRS:
            self._is_full = True
            return
        for (sender, receiver), begin, end in zip(
            ranks.tolist(), begins[current].tolist(), ends[current].tolist(), strict=True
        ):
            if not self._is_full:
                self._on_pair((sender, receiver), times_ns[begin:end])

    def _on_pair(self, pair: tuple[int, int], times_ns: npt.NDArray[np.int64]) -> None:
        self._is_full = pair not in self._pairs and len(self._pairs) >= MOST_PAIRS
        self._pairs[pair] = None
        self._pair = self._pair or pair
        if pair == self._pair:
            self._pair_ns = [*self._pair_ns, *times_ns.tolist()][-SHAPE_TIMES:]

    def _on_group(self, rounds: Rounds, kinds: Sequence[RoundsOfKind]) -> None:
        """Add up what it moves: each member gathers the parts of all others."""
        gathered, reduced = self._groups.get(rounds.communicator, (0, 0))
        for kind in kinds:
            size_bytes = kind.size_bytes * kind.n_rounds
            if kind.op in _GATHERS:
                gathered += size_bytes * len(rounds.ranks)
            elif kind.op in _REDUCES:
                reduced += size_bytes
        self._groups[rounds.communicator] = gathered, reduced

    def _on_reduced(self, rounds: Rounds, times_ns: npt.NDArray[np.int64]) -> None:
        """Of the communicators that reduce that of the fewest ranks is taken: the world's sums are few and small."""
        if not self._reduced or len(rounds.ranks) < self._reduced_size:
            self._reduced, self._reduced_size = rounds.communicator, len(rounds.ranks)
            self._reduced_ns, self._reduced_bytes = [], []
        if rounds.communicator == self._reduced:
            self._reduced_ns = [*self._reduced_ns, *times_ns.tolist()][-SHAPE_TIMES:]
            self._reduced_bytes = [*self._reduced_bytes, *rounds.size_bytes.tolist()][-SHAPE_TIMES:]

    def noted(self, finding: Finding, communicators: Communicators, step_time_s: float) -> Finding:
        """With the layout at its onset, where it names ranks, says that some may be gone, and steps have been made."""
        if finding.kind not in HALTS or not finding.culprits:
            return finding
        if finding.onset is None or finding.onset.step is None:
            return finding
        if not any(map(_may_be_gone, finding.evidence)):
            return finding
        shape = self.earlier if finding.onset.time_ns < self._began_ns else self.shape(communicators, step_time_s)
        return finding if shape is None else replace(finding, evidence=merged(finding.evidence, (shape,)))

    def shape(self, communicators: Communicators, step_time_s: float) -> JobShape | None:
        """The present layout; nothing where it is irregular or not known."""
        if self._world_size < 2 or self._is_full:
            return None
        members = {one: communicators[one][1] for one in self._groups if one in communicators}
        found = layout_of(self._world_size, list(self._pairs), list(members.values()))
        if found is None:
            return None
        dp, pp, tp, stride = found
        per_step = [self._within(self._pair_ns, first, last) for first, last in self._last_steps()]
        reduced = [self._bytes_within(first, last) for first, last in self._last_steps()]
        replicas = {one for one, ranks in members.items() if len(ranks) == dp and (tp == 1 or not _is_near(ranks))}
        return JobShape(
            dp=dp,
            pp=pp,
            tp=tp,
            stage_stride=stride,
            micro_batches=_middle(per_step) if pp > 1 else 0,
            gradient_bytes=_middle(reduced) if self._reduced in replicas else 0,
            step_time_s=step_time_s,
            is_sharded=any(_is_sharded(*self._groups[one]) for one in replicas),
        )

    def _last_steps(self) -> list[tuple[int, int]]:
        return list(zip(self._steps_ns, self._steps_ns[1:], strict=False))

    @staticmethod
    def _within(times_ns: list[int], first_ns: int, last_ns: int) -> int:
        return sum(first_ns < at_ns <= last_ns for at_ns in times_ns)

    def _bytes_within(self, first_ns: int, last_ns: int) -> int:
        rows = zip(self._reduced_ns, self._reduced_bytes, strict=True)
        return sum(size for at_ns, size in rows if first_ns < at_ns <= last_ns)


def _is_sharded(gathered_bytes: int, reduced_bytes: int) -> bool:
    """Whether what is gathered is parameters or gradients, and not a number of each rank, or once at the beginning."""
    return gathered_bytes > SHARDED_SHARE * (gathered_bytes + reduced_bytes)


def _may_be_gone(piece: Evidence) -> bool:
    """Whether it says that a process has left, a GPU has failed or a host is not heard of."""
    match piece:
        case Left() | HostSilent() | Process(state="exited") | Gpu(has_failed=True):
            return True
        case _:
            return False


def _middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0


def layout_of(
    world_size: int, pairs: list[tuple[int, int]], groups: list[tuple[int, ...]]
) -> tuple[int, int, int, int] | None:
    """The degrees (dp, pp, tp) and the distance between stages; `None` where they are not regular.

    Parameters
    ----------
    world_size
        Ranks.
    pairs
        Senders and receivers.
    groups
        Members of communicators whose ranks meet in collectives.

    >>> layout_of(8, [(0, 4), (4, 0), (1, 5), (5, 1), (2, 6), (6, 2), (3, 7), (7, 3)], [(0, 1, 2, 3), (4, 5, 6, 7)])
    (4, 2, 1, 4)
    >>> layout_of(4, [], [(0, 1, 2, 3)])
    (4, 1, 1, 4)
    >>> layout_of(4, [(0, 1), (1, 3)], [(0, 2)]) is None
    True
    """
    if not pairs:
        return (world_size, 1, 1, world_size) if all(len(one) == world_size for one in groups) else None
    strides = {abs(a - b) for a, b in pairs}
    stride = min(strides)
    if strides != {stride} or any(not 0 <= rank < world_size for pair in pairs for rank in pair):
        return None
    neighbours = {min(pair) for pair in pairs}
    pp = 2
    while stride * (pp - 1) in neighbours and stride * pp < world_size:
        pp += 1
    if world_size % (pp * stride):
        return None
    expected = {rank for rank in range(world_size) if rank // stride % pp < pp - 1}
    if neighbours != expected:
        return None
    replicas = world_size // pp
    of_stage = [one for one in groups if len({rank // stride % pp for rank in one}) == 1]
    sizes = {len(one) for one in of_stage}
    if sizes <= {replicas}:
        return replicas, pp, 1, stride
    near, far = {len(one) for one in of_stage if _is_near(one)}, {len(one) for one in of_stage if not _is_near(one)}
    if len(near) == len(far) == 1 and max(near) * max(far) == replicas:
        return max(far), pp, max(near), stride
    return None


def _is_near(ranks: tuple[int, ...]) -> bool:
    """Side by side, as tensor-parallel ranks are."""
    return ranks[-1] - ranks[0] == len(ranks) - 1
