"""Odyssey's definition 1: how a job is laid out over its nodes, and which of them are lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal

from pacehound.errors import InvalidInput

Kind = Literal["reroute", "symmetric", "asymmetric"]
Span = tuple[int, int]
"""The layers of a stage: the first, and the one after the last."""
Place = tuple[int, int]
"""A pipeline and a stage of it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Pipelines side by side, each with all layers.

    Attributes
    ----------
    kind
        `symmetric`: all pipelines have the same stages and micro-batches. `reroute`: the stages of before, some of them
        lost, whose micro-batches others take.
    stages
        Of each pipeline, how many layers each of its stages has.
    batches
        Micro-batches of each pipeline in a step.

    >>> plan = Plan(kind="asymmetric", stages=((4, 4), (3, 3, 2)), batches=(5, 7))
    >>> plan.dp, plan.pp, plan.n_micro_batches, plan.spans[1]
    (2, 3, 12, ((0, 3), (3, 6), (6, 8)))
    """

    kind: Kind
    stages: tuple[tuple[int, ...], ...]
    batches: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.stages or len(self.stages) != len(self.batches):
            raise InvalidInput(f"{len(self.stages)} pipelines and {len(self.batches)} shares of the batch")
        if len({sum(pipeline) for pipeline in self.stages}) != 1 or min(map(min, self.stages)) < 1:
            raise InvalidInput(f"each pipeline must have every layer once, and each stage one: {self.stages}")
        if min(self.batches) < 1:
            raise InvalidInput(f"each pipeline needs a micro-batch: {self.batches}")

    @property
    def dp(self) -> int:
        """Pipelines."""
        return len(self.stages)

    @property
    def pp(self) -> int:
        """Stages of the longest pipeline."""
        return max(map(len, self.stages))

    @property
    def n_places(self) -> int:
        """Nodes that it takes."""
        return sum(map(len, self.stages))

    @property
    def n_layers(self) -> int:
        """Of the model."""
        return sum(self.stages[0])

    @property
    def n_micro_batches(self) -> int:
        """Of a step, over all pipelines."""
        return sum(self.batches)

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """Of each pipeline, the layers of each stage."""
        found = []
        for pipeline in self.stages:
            ends = list(accumulate(pipeline))
            found.append(tuple(zip([0, *ends[:-1]], ends, strict=True)))
        return tuple(found)

    def places(self) -> Iterator[Place]:
        """All of them, pipeline by pipeline."""
        for pipeline, stages in enumerate(self.stages):
            for stage in range(len(stages)):
                yield pipeline, stage


@dataclass(frozen=True, kw_only=True)
class State:
    """A plan and who holds its places.

    Attributes
    ----------
    holders
        Of each place the node; `None` where it is lost.
    idle
        Nodes that are well and hold no layer.

    >>> state = megatron_state(dp=2, stages=(4, 4), n_micro_batches=8)
    >>> state.holders, state.without([2]).holders
    (((0, 2), (1, 3)), ((0, None), (1, 3)))
    >>> state.without([2]).survivors, state.held(3)
    ((0, 1, 3), (4, 8))
    """

    plan: Plan
    holders: tuple[tuple[int | None, ...], ...]
    idle: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if tuple(map(len, self.holders)) != tuple(map(len, self.plan.stages)):
            raise InvalidInput("the holders are not as many as the stages of the plan")
        nodes = self.survivors
        if len(set(nodes)) != len(nodes):
            raise InvalidInput("a node holds two places")

    @cached_property
    def place_of(self) -> dict[int, Place]:
        """Of each node that holds layers, where."""
        return {
            node: (pipeline, stage)
            for pipeline, stages in enumerate(self.holders)
            for stage, node in enumerate(stages)
            if node is not None
        }

    @property
    def survivors(self) -> tuple[int, ...]:
        """All nodes that are well, by number."""
        return tuple(sorted([*(n for stages in self.holders for n in stages if n is not None), *self.idle]))

    @property
    def lost(self) -> tuple[Place, ...]:
        """Places that nobody holds."""
        return tuple(place for place in self.plan.places() if self.holders[place[0]][place[1]] is None)

    def held(self, node: int) -> Span:
        """The layers that a node has; none of one that is idle or new."""
        if node not in self.place_of:
            return 0, 0
        pipeline, stage = self.place_of[node]
        return self.plan.spans[pipeline][stage]

    def without(self, failed: Iterable[int]) -> State:
        """The same after some nodes are lost."""
        gone = set(failed)
        unknown = sorted(gone - set(self.survivors))
        if unknown:
            raise InvalidInput(f"node {unknown[0]} is none of the {len(self.survivors)} nodes of the job")
        holders = tuple(tuple(None if node in gone else node for node in stages) for stages in self.holders)
        return replace(self, holders=holders, idle=tuple(node for node in self.idle if node not in gone))

    def joined(self, nodes: Iterable[int]) -> State:
        """The same after nodes have come, which hold nothing yet."""
        new = set(nodes)
        known = sorted(new & set(self.survivors))
        if known:
            raise InvalidInput(f"node {known[0]} belongs to the job already")
        return replace(self, idle=tuple(sorted([*self.idle, *new])))


def megatron_state(*, dp: int, stages: tuple[int, ...], n_micro_batches: int) -> State:
    """A symmetric job whose nodes are numbered as Megatron does it: data-parallel first, then the stages.

    Micro-batches that cannot be divided evenly go to the first pipelines.
    """
    if dp < 1 or n_micro_batches < dp:
        raise InvalidInput(f"{n_micro_batches} micro-batches cannot be divided among {dp} pipelines: each needs one")
    batches = even_batches(n_micro_batches, dp)
    plan = Plan(kind="symmetric", stages=(stages,) * dp, batches=batches)
    return State(plan=plan, holders=tuple(tuple(dp * s + d for s in range(len(stages))) for d in range(dp)))


def even_batches(n_micro_batches: int, dp: int) -> tuple[int, ...]:
    """As evenly as they can be divided.

    >>> even_batches(8, 3)
    (3, 3, 2)
    """
    each, more = divmod(n_micro_batches, dp)
    return tuple(each + (pipeline < more) for pipeline in range(dp))
