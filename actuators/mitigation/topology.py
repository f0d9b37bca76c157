"""S3: which rank takes which place of the layout, so that slow links carry little and stragglers share few stages.

Two things are done, in this order (Falcon 5.3):

- **Stragglers into few stages.** All replicas of a stage wait for its slowest, so that n stragglers in one stage cost
  as much as one. The fewest stages that hold n of them are ceil(n / places per stage); interior ones first, for the
  first and the last have the embedding and the loss besides; those that hold most of them already, so that fewest
  ranks are moved. Stragglers that stand in so few stages already stay where they are.
- Or, where micro-batches can be adjusted afterwards, **into few replicas**: n stragglers in ceil(n / stages) replicas,
  which then get fewer micro-batches (`microbatches`). Better than stages where several replicas have one.
- **Congested links to light traffic.** A link between two hosts that a data-parallel ring runs over carries the
  gradients of the model, one between stages only activations. Ranks are exchanged two by two, each time those that take
  most traffic off congested links; between equals the exchange after which rings cross hosts least often.

What is moved are whole tensor-parallel groups: their ranks stay together on their host, and one straggler slows down
all of its group. An exchange for a link never takes a straggler out of its stage. It is a greedy search: it never
makes anything worse, and does not always find the best of all orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from actuators.mitigation.microbatches import Ints
from actuators.mitigation.survival import Floats
from actuators.mitigation.thresholds import LIGHT_TRAFFIC_SHARE, MOST_LINK_MOVES
from pacehound.model.topology import Layout

Gathered = Literal["stages", "replicas"]

_CROSSES = 1e-4
"""What an edge between healthy hosts counts beside one over a congested link: enough to choose between equals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A rank takes another place of the layout: it stays on its device, and gets the parameters of that place."""

    rank: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPlan:
    """Who takes which place.

    Attributes
    ----------
    rank_at
        By place (the rank numbers of the layout) the rank that takes it; a permutation.
    moves
        The ranks that take another place than before.
    congested_before, congested_after
        Traffic over congested links, in edges of data-parallel rings.
    shares_before, shares_after
        Stages, or replicas, that hold a straggler.
    reason
        What it does, in a sentence.

    """

    rank_at: tuple[int, ...]
    moves: tuple[Move, ...]
    congested_before: float
    congested_after: float
    shares_before: int
    shares_after: int
    reason: str


def plan_topology(
    layout: Layout,
    hosts: Sequence[str],
    *,
    slow_links: Sequence[tuple[int, int]] = (),
    stragglers: Sequence[int] = (),
    gather_into: Gathered = "stages",
    light_share: float = LIGHT_TRAFFIC_SHARE,
) -> TopologyPlan:
    """Who takes which place from now on.

    Parameters
    ----------
    layout
        The grid of places; at first rank r is at place r.
    hosts
        By rank.
    slow_links
        Pairs of ranks whose hosts have a congested link between them, as in `Finding.links`.
    stragglers
        Ranks that compute slowly.
    gather_into
        What stragglers are to share.
    light_share
        Traffic between two stages over that between two neighbours of a data-parallel ring.

    Raises
    ------
    ValueError
        Hosts or ranks that do not fit the layout, a tensor-parallel group on several hosts, a link within a host.

    Examples
    --------
    Falcon's figure 10: four nodes, two replicas of two stages, and the link of the second replica pair is congested.

    >>> plan = plan_topology(Layout(dp=2, pp=2), ["a", "b", "c", "d"], slow_links=[(2, 3)])
    >>> plan.congested_before, plan.congested_after, len(plan.moves)
    (1.0, 0.0, 2)

    """
    grid = _Grid.of(layout, hosts, slow_links, stragglers, light_share)
    congested_before, shares_before = grid.congested(), grid.shares(gather_into)
    grid.gather(gather_into)
    gathered = grid.shares(gather_into)
    grid.relieve()
    rank_at = (grid.unit_at[:, None] * layout.tp + np.arange(layout.tp)).ravel()
    places = np.flatnonzero(rank_at != np.arange(layout.world_size))
    moves = tuple(Move(rank=int(rank_at[place]), place=int(place)) for place in places)
    after = grid.congested()
    said = []
    if gathered < shares_before:
        word = gather_into if gathered > 1 else gather_into.removesuffix("s")
        said.append(f"stragglers share {gathered} {word} instead of {shares_before}")
    if after < congested_before:
        said.append(f"congested links carry {after:g} ring edges' traffic instead of {congested_before:g}")
    reason = (
        f"{len(moves)} of {layout.world_size} ranks change places: {'; '.join(said)}" if moves else "no exchange helps"
    )
    return TopologyPlan(
        rank_at=tuple(rank_at.tolist()),
        moves=moves,
        congested_before=congested_before,
        congested_after=after,
        shares_before=shares_before,
        shares_after=gathered,
        reason=reason,
    )


@dataclass(slots=True)
class _Grid:
    """Tensor-parallel groups (units) at places of the data x pipeline grid."""

    dp: int
    pp: int
    unit_at: Ints
    host_at: Ints
    slow_at: np.ndarray
    near: Ints
    weight: Floats
    cost: Floats

    @classmethod
    def of(
        cls,
        layout: Layout,
        hosts: Sequence[str],
        slow_links: Sequence[tuple[int, int]],
        stragglers: Sequence[int],
        light_share: float,
    ) -> _Grid:
        world = layout.world_size
        if len(hosts) != world:
            raise ValueError(
                f"there are hosts of {len(hosts)} ranks and the layout has {world}; name one for each rank"
            )
        if strange := sorted({rank for rank in stragglers if not 0 <= rank < world}):
            raise ValueError(f"stragglers {strange[:3]} are outside the world of {world} ranks")
        names = {name: number for number, name in enumerate(dict.fromkeys(hosts))}
        host = np.array([names[name] for name in hosts]).reshape(-1, layout.tp)
        if (host != host[:, :1]).any():
            unit = int(np.flatnonzero((host != host[:, :1]).any(axis=1))[0])
            raise ValueError(
                f"the tensor-parallel group of rank {unit * layout.tp} is on several hosts; it is not moved"
            )
        cost = np.full((len(names), len(names)), _CROSSES)
        np.fill_diagonal(cost, 0.0)
        for a, b in slow_links:
            if hosts[a] == hosts[b]:
                raise ValueError(f"the link {a}->{b} is within host {hosts[a]}; ranks are moved between hosts")
            cost[names[hosts[a]], names[hosts[b]]] = cost[names[hosts[b]], names[hosts[a]]] = 1.0
        slow = np.zeros(world, bool)
        slow[list(stragglers)] = True
        near, weight = _neighbours(layout.dp, layout.pp, light_share)
        n = layout.dp * layout.pp
        slow_at = np.asarray(slow.reshape(-1, layout.tp).any(axis=1))
        return cls(layout.dp, layout.pp, np.arange(n), host[:, 0].copy(), slow_at, near, weight, cost)

    def shares(self, gather_into: Gathered) -> int:
        """How many stages or replicas hold a straggler."""
        return int(self.slow_at.reshape(self.pp, self.dp).any(axis=1 if gather_into == "stages" else 0).sum())

    def congested(self) -> float:
        """Traffic over congested links; each edge is seen from both of its ends."""
        is_slow = self.cost[self.host_at[:, None], self.host_at[self.near]] == 1.0
        return round(float((self.weight * is_slow).sum()) / 2, 9)

    def gather(self, into: Gathered) -> None:
        """Stragglers into the fewest stages or replicas, each at its place along the other axis if that is free."""
        place_of = np.arange(self.pp * self.dp).reshape(self.pp, self.dp)
        place_of = place_of if into == "stages" else place_of.T
        n_shares, width = place_of.shape
        held = self.slow_at[place_of].sum(axis=1)
        fewest = -(-int(held.sum()) // width)
        if self.shares(into) <= fewest:
            return
        outer = (0, n_shares - 1) if into == "stages" else ()
        chosen = sorted(range(n_shares), key=lambda share: (share in outer, -held[share], share))[:fewest]
        free = {share: np.flatnonzero(~self.slow_at[place_of[share]]).tolist() for share in chosen}
        for share, at in np.argwhere(self.slow_at[place_of]).tolist():
            if share in free:
                continue
            to = next((s for s in chosen if at in free[s]), None)
            to = next(s for s in chosen if free[s]) if to is None else to
            column = at if at in free[to] else free[to][0]
            free[to].remove(column)
            self.exchange(int(place_of[share, at]), int(place_of[to, column]))

    def relieve(self) -> None:
        """Exchange units, two by two, as long as that takes traffic off congested links."""
        for _ in range(MOST_LINK_MOVES):
            is_slow = (self.cost[self.host_at[:, None], self.host_at[self.near]] == 1.0) & (self.weight > 0)
            best, pair = -_CROSSES, None
            for place in np.flatnonzero(is_slow.any(axis=1)).tolist():
                change = self.change(place)
                other = int(np.argmin(change))
                if change[other] < best:
                    best, pair = float(change[other]), (place, other)
            if pair is None:
                return
            before = self.congested()
            self.exchange(*pair)
            if self.congested() >= before:
                self.exchange(*pair)
                return

    def change(self, place: int) -> Floats:
        """`(n,)`: by how much traffic costs more if the unit at `place` is exchanged with each other one."""
        here, there = self.host_at[place], self.host_at
        of_all = self.host_at[self.near]
        mine = of_all[place]
        now = (self.weight * self.cost[there[:, None], of_all]).sum(axis=1)
        if_here = (self.weight * self.cost[here, of_all]).sum(axis=1)
        if_there = (self.weight[place] * self.cost[there[:, None], mine[None, :]]).sum(axis=1)
        change = if_here + if_there - now - now[place]
        # Between two neighbours the edge stays what it is; each end had been counted with the other's old host.
        beside = self.near == place
        edge = (self.weight * beside).sum(axis=1)
        change += 2 * edge * self.cost[here, there]
        stage = np.arange(len(there)) // self.dp
        keeps = (self.slow_at == self.slow_at[place]) | (stage == stage[place])
        return np.asarray(np.where(keeps & (there != here), change, np.inf))

    def exchange(self, a: int, b: int) -> None:
        """Two units change places."""
        for of in (self.unit_at, self.host_at, self.slow_at):
            of[[a, b]] = of[[b, a]]


def _neighbours(dp: int, pp: int, light_share: float) -> tuple[Ints, Floats]:
    """`(n, 4)`: whom each place speaks with, before and after it in its ring and in its pipeline, and how much."""
    places = np.arange(dp * pp)
    column, stage = places % dp, places // dp
    ring = [stage * dp + (column + step) % dp for step in (-1, 1)]
    pipe = [np.clip(stage + step, 0, pp - 1) * dp + column for step in (-1, 1)]
    near = np.stack([*ring, *pipe], axis=1)
    weight = np.where(near == places[:, None], 0.0, [[1.0, 1.0, light_share, light_share]])
    if dp == 2:
        weight[:, 1] = 0.0  # a ring of two is one link
    return near, weight
