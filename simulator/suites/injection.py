"""What a scenario draws from, what it puts into a job, and how it marks whether that must be named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pacehound.model.calls import Sees
from pacehound.model.events import Cause, VerdictWord
from pacehound.model.topology import Layout
from simulator.faults import Fault
from simulator.nccl_graph import ring_edges, tree_edges
from simulator.network_view import is_network
from simulator.program import CommunicatorKind, build
from simulator.source import Source
from simulator.spec import JobSpec

NAMED: frozenset[VerdictWord] = frozenset({"culprit", "suspected"})
SURELY: frozenset[VerdictWord] = frozenset({"culprit"})
PERHAPS: frozenset[VerdictWord] = frozenset({"suspected"})
NOBODY: frozenset[VerdictWord] = frozenset({"unknown", "suspected"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    must_name: bool
    words: frozenset[VerdictWord]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What a scenario puts into a job."""

    faults: tuple[Fault, ...] = ()
    cause: Cause | None = None
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    mark: Mark


def must(words: frozenset[VerdictWord], why: str) -> Mark:
    return Mark(must_name=True, words=words, why=why)


def may(why: str, words: frozenset[VerdictWord] = NOBODY) -> Mark:
    return Mark(must_name=False, words=words, why=why)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a scenario may choose with, and from."""

    rng: np.random.Generator
    base: JobSpec
    has_drops: bool

    @property
    def source(self) -> Source:
        return self.base.source

    @property
    def layout(self) -> Layout:
        return self.base.layout

    @property
    def step(self) -> int:
        return self.base.iterations

    def chance(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def ranks(self, most: int = 3) -> tuple[int, ...]:
        n = int(self.rng.integers(1, min(most, self.layout.world_size // 2) + 1))
        return tuple(sorted(self.rng.choice(self.layout.world_size, n, replace=False).tolist()))

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    @property
    def has_times(self) -> bool:
        return Sees.START in self.source.sees and self.source.rows == "all"

    @property
    def has_agent(self) -> bool:
        return not self.source.dumps

    @property
    def sees_open(self) -> bool:
        return self.source.counts_completed

    def is_seen(self, kind: CommunicatorKind) -> bool:
        """Calls on these communicators are seen, every one of them."""
        return kind not in self.source.replayed and kind not in self.source.unseen

    def hides_peers(self) -> bool:
        """Ranks wait for each other in calls that nobody sees: who is late, and who waits for it, look alike."""
        sizes: dict[CommunicatorKind, int] = {"tp": self.layout.tp, "ep": self.base.ep}
        return any(size > 1 and not self.is_seen(kind) for kind, size in sizes.items())

    def launches_whole_steps(self) -> bool:
        """Hosts run so far ahead that whoever is not held launches all calls of the step."""
        programs, _ = build(self.layout, self.base.work)
        return max(len(program.slots) for program in programs) <= self.source.run_ahead_calls


Scenario = Callable[[Draw], Injected | None]
"""Puts something into a job, or says that this layout has no place for it."""


def dp_ring_edges(draw: Draw) -> list[tuple[int, int]]:
    """Links of the rings of all channels, each once."""
    rings = [edges for group in draw.layout.groups("dp") for edges in ring_edges(group, draw.base.ranks_per_host)]
    return list(dict.fromkeys(edge for edges in rings for edge in edges))


def tree_links(draw: Draw) -> list[tuple[int, int]]:
    """Links between hosts of the trees of all channels, each once."""
    trees = [edges for group in draw.layout.groups("dp") for edges in tree_edges(group, draw.base.ranks_per_host)]
    return list(dict.fromkeys(edge for edges in trees for edge in edges if is_network(draw.base, *edge)))
