"""In which order nodes compute micro-batches of their own pipeline and of lost places (ReCycle), and how long it takes.

A lost place's micro-batches pass through the places that hold the same layers, in turn. Each place does what is ready:
backward before forward; of what is equal, the micro-batch that comes first in its pipeline, and one of a pipeline with
a lost place before one of a whole one, for it has the longer way. All orders come from one such course of events with
the stages' own times, so nobody waits for somebody who waits for him: whoever holds the last layers can always go on.

That order decides what rerouting costs. With one of eight nodes of two stages lost, taking whole pipelines one after
the other makes a step a third longer than this does (`tests/unit/actuators/recovery/test_rerouting.py`).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from actuators.recovery.state import Place, Span, State

Operation = tuple[Literal["forward", "backward"], int]
"""What is computed, and of which micro-batch: they are numbered pipeline by pipeline."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a micro-batch passes.

    Attributes
    ----------
    pipeline, index
        Of which pipeline it is, and which one of it.
    places
        First stage first.

    """

    pipeline: int
    index: int
    places: tuple[Place, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it stays in its pipeline."""
        return all(pipeline == self.pipeline for pipeline, _ in self.places)


@dataclass(frozen=True, slots=True)
class Rerouted:
    """A step's pipelines, some places of which are lost.

    Attributes
    ----------
    orders
        Of each place, what it computes, in that order.
    duration_s
        Until the last one is done.

    """

    orders: dict[Place, list[Operation]]
    duration_s: float


def routes_of(state: State) -> list[Route] | None:
    """Where each micro-batch passes; `None` where a lost place has no peer.

    A peer is a place that holds exactly the same layers; they take its micro-batches in turn.

    >>> from actuators.recovery.state import megatron_state
    >>> state = megatron_state(dp=2, stages=(1, 1), n_micro_batches=3).without([3])
    >>> [route.places for route in routes_of(state)]
    [((0, 0), (0, 1)), ((0, 0), (0, 1)), ((1, 0), (0, 1))]
    """
    peers = _peers_of(state)
    turn = dict.fromkeys(peers, 0)
    routes = []
    for pipeline, (holders, spans) in enumerate(zip(state.holders, state.plan.spans, strict=True)):
        for index in range(state.plan.batches[pipeline]):
            places = []
            for stage, (node, span) in enumerate(zip(holders, spans, strict=True)):
                place = pipeline, stage
                if node is None:
                    if span not in peers:
                        return None
                    place = peers[span][turn[span] % len(peers[span])]
                    turn[span] += 1
                places.append(place)
            routes.append(Route(pipeline, index, tuple(places)))
    return routes


def extra_loads(state: State) -> dict[Span, float] | None:
    """Micro-batches that each holder of these layers takes for lost ones; `None` where a lost place has no peer.

    A peer is a place that holds exactly the same layers; they share evenly.
    """
    lost: dict[Span, int] = {}
    for pipeline, stage in state.lost:
        span = state.plan.spans[pipeline][stage]
        lost[span] = lost.get(span, 0) + state.plan.batches[pipeline]
    peers = _peers_of(state)
    return {span: n / len(peers[span]) for span, n in lost.items()} if lost.keys() <= peers.keys() else None


def _peers_of(state: State) -> dict[Span, list[Place]]:
    """The places that somebody holds, by their layers."""
    peers: dict[Span, list[Place]] = defaultdict(list)
    for pipeline, stage in state.place_of.values():
        peers[state.plan.spans[pipeline][stage]].append((pipeline, stage))
    return dict(peers)


def listed(
    routes: Mapping[int, Route],
    under_way: Mapping[Place, int],
    times_s: Mapping[Place, tuple[float, float]],
    hop_s: float,
) -> Rerouted:
    """The course of events.

    Parameters
    ----------
    routes
        Of the micro-batches that count, by their numbers.
    under_way
        How many each place may have begun and not ended: what it has memory for.
    times_s
        Of each place, of one forward and one backward pass.
    hop_s
        From one place to the next.

    >>> a, b = (0, 0), (0, 1)
    >>> routes = {number: Route(0, number, (a, b)) for number in range(2)}
    >>> found = listed(routes, {a: 2, b: 1}, {a: (1.0, 2.0), b: (1.0, 2.0)}, 0.0)
    >>> found.duration_s, found.orders[b]
    (9.0, [('forward', 0), ('backward', 0), ('forward', 1), ('backward', 1)])
    """
    orders: dict[Place, list[Operation]] = {place: [] for route in routes.values() for place in route.places}
    urgency = {number: (one.index, one.is_whole, number) for number, one in routes.items()}  # the least is first
    ways = {number: (*one.places, *reversed(one.places)) for number, one in routes.items()}
    ready: dict[Place, list[tuple[bool, tuple[int, bool, int]]]] = {place: [] for place in orders}
    for number, way in ways.items():
        heapq.heappush(ready[way[0]], (True, urgency[number]))
    n_passed = dict.fromkeys(ways, 0)
    free = {place: under_way[place] for place in orders}
    busy = dict.fromkeys(orders, False)
    events: list[tuple[float, int, Place, bool]] = []  # when, which micro-batch, where, and whether it is done there
    now_s, touched = 0.0, set(orders)
    while True:
        for place in touched:
            if busy[place] or not ready[place] or (ready[place][0][0] and not free[place]):
                continue
            is_forward, (_, _, number) = heapq.heappop(ready[place])
            busy[place] = True
            free[place] -= is_forward
            orders[place].append(("forward" if is_forward else "backward", number))
            heapq.heappush(events, (now_s + times_s[place][not is_forward], number, place, True))
        if not events:
            return Rerouted(orders, now_s)
        now_s, touched = events[0][0], set()
        while events and events[0][0] == now_s:
            _, number, place, is_done = heapq.heappop(events)
            touched.add(place)
            way = ways[number]
            if not is_done:
                heapq.heappush(ready[place], (2 * n_passed[number] < len(way), urgency[number]))
                continue
            busy[place] = False
            n_passed[number] += 1
            free[place] += 2 * n_passed[number] > len(way)
            if n_passed[number] < len(way):
                then = way[n_passed[number]]
                heapq.heappush(events, (now_s + hop_s * (then != place), number, then, False))
