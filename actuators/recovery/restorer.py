"""What moves and who talks to whom when a plan changes: weights by a cheapest assignment, gradients in fewest rounds.

Odyssey IV-B. *Weights*: each surviving node takes one place of the new plan; what it does not hold yet has to come from
another. The assignment of least bytes in all is the Kuhn-Munkres problem (scipy's solver: O(n³) at worst). Of each
missing layer the live holder that has sent least so far is the source.

*Gradients*: the layers that the same places hold in all pipelines are one exchange. Two exchanges that share a place
cannot run at once: they are neighbours in a graph, and colours are rounds. Each place's layers lie side by side, so
this graph is one of intervals, for which colouring greedily in the order of the layers takes the fewest colours that
there can be: as many as the busiest place has exchanges.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from actuators.recovery.profile import ModelProfile
from actuators.recovery.state import Place, Plan, Span, State


def load() -> None:
    """Import SciPy's solver now, which takes a second: whoever asks for a plan later does not wait for that."""
    with contextlib.suppress(ModuleNotFoundError):
        import scipy.optimize  # noqa: F401


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One layer from a node that has it to one that needs it; `source` is `None` where only a checkpoint has it."""

    layer: int
    source: int | None
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """Who takes which place, and what moves for it.

    Attributes
    ----------
    moved_bytes
        From node to node, in all: the least that there can be.
    busiest_bytes
        The most that one node sends, or receives of other nodes.
    read_bytes
        The most that one node reads from a checkpoint: 0 where all layers have a live holder.

    """

    state: State
    moves: tuple[Move, ...]
    moved_bytes: float
    busiest_bytes: float
    read_bytes: float


def layer_bytes(model: ModelProfile) -> npt.NDArray[np.float64]:
    """What moves with each layer; the embedding with the first, the head with the last."""
    weights = np.full(model.n_layers, model.state_bytes)
    weights[0] += model.embedding_layers * model.state_bytes
    weights[-1] += model.head_layers * model.state_bytes
    return weights


def transfer_costs(held: Sequence[Span], wanted: Sequence[Span], model: ModelProfile) -> npt.NDArray[np.float64]:
    """Bytes that each node (row) lacks of each place (column).

    >>> from actuators.recovery.models import unit_model
    >>> transfer_costs([(0, 3)], [(0, 2), (2, 4)], unit_model(n_layers=4)).tolist()
    [[0.0, 1.0]]
    """
    before = np.concatenate([[0.0], np.cumsum(layer_bytes(model))])
    has, needs = np.array(held), np.array(wanted)
    start = np.maximum(has[:, None, 0], needs[None, :, 0])
    end = np.maximum(np.minimum(has[:, None, 1], needs[None, :, 1]), start)
    lacking = (before[needs[:, 1]] - before[needs[:, 0]])[None, :] - (before[end] - before[start])
    return np.asarray(np.maximum(lacking, 0.0), dtype=np.float64)


def restore(state: State, plan: Plan, model: ModelProfile) -> Restoration:
    """Give the places of a new plan to the survivors of a state, so that the fewest bytes move.

    A node that no place is left for is idle. Nothing moves while places stay as they are: a plan that is the old one
    costs nothing.
    """
    from scipy.optimize import linear_sum_assignment

    nodes = state.survivors
    places = list(plan.places())
    spans = [plan.spans[pipeline][stage] for pipeline, stage in places]
    costs = transfer_costs([state.held(node) for node in nodes], spans, model)
    rows, columns = linear_sum_assignment(costs)
    taken = {places[column]: nodes[row] for row, column in zip(rows.tolist(), columns.tolist(), strict=True)}
    holders = tuple(tuple(taken[pipeline, s] for s in range(len(of))) for pipeline, of in enumerate(plan.stages))
    used = set(taken.values())
    new = State(plan=plan, holders=holders, idle=tuple(node for node in nodes if node not in used))
    return _moves(state, new, layer_bytes(model))


def _moves(old: State, new: State, weights: npt.NDArray[np.float64]) -> Restoration:
    names = old.survivors
    index = {node: number for number, node in enumerate(names)}
    have: list[list[int]] = [[] for _ in weights]
    for node in names:
        for layer in range(*old.held(node)):
            have[layer].append(index[node])
    if not all(have):
        return _read_again(new, weights)
    holders = [np.array(nodes, dtype=np.intp) for nodes in have]
    sent, received = np.zeros(len(index)), np.zeros(len(index))
    moves = []
    for node in sorted(new.place_of):
        start, end = old.held(node)
        for layer in range(*new.held(node)):
            if start <= layer < end:
                continue
            able = holders[layer]
            source = int(able[sent[able].argmin()])
            sent[source] += weights[layer]
            received[index[node]] += weights[layer]
            moves.append(Move(layer=layer, source=names[source], target=node))
    return Restoration(
        state=new,
        moves=tuple(moves),
        moved_bytes=float(sent.sum()),
        busiest_bytes=float(max(sent.max(), received.max())),
        read_bytes=0.0,
    )


def _read_again(new: State, weights: npt.NDArray[np.float64]) -> Restoration:
    """Layers of different steps are no model: where one is lost everywhere, all come from the checkpoint."""
    held = {node: range(*new.held(node)) for node in sorted(new.place_of)}
    moves = tuple(Move(layer=layer, source=None, target=node) for node, layers in held.items() for layer in layers)
    most = max(float(weights[list(layers)].sum()) for layers in held.values())
    return Restoration(state=new, moves=moves, moved_bytes=0.0, busiest_bytes=0.0, read_bytes=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Layers whose gradients the same places reduce, and the round in which they do.

    Attributes
    ----------
    span
        Which layers.
    members
        Of each pipeline the place that has them, without those that are lost.

    """

    span: Span
    members: tuple[Place, ...]
    round: int


def exchanges(state: State) -> tuple[Exchange, ...]:
    """All exchanges of a step, in the order of the layers, each in the first round in which no member is busy.

    >>> from actuators.recovery.state import Plan, State
    >>> plan = Plan(kind="asymmetric", stages=((3, 3), (2, 2, 2)), batches=(1, 1))
    >>> found = exchanges(State(plan=plan, holders=((0, 1), (2, 3, 4))))
    >>> [(one.span, one.round) for one in found]
    [((0, 2), 0), ((2, 3), 1), ((3, 4), 0), ((4, 6), 1)]
    """
    plan = state.plan
    edges = sorted({edge for spans in plan.spans for span in spans for edge in span})
    at = [0] * plan.dp
    busy: dict[Place, int] = {}
    found = []
    for start, end in pairwise(edges):
        members = []
        for pipeline, spans in enumerate(plan.spans):
            while spans[at[pipeline]][1] <= start:
                at[pipeline] += 1
            if state.holders[pipeline][at[pipeline]] is not None:
                members.append((pipeline, at[pipeline]))
        taken = 0
        for place in members:
            taken |= busy.get(place, 0)
        first = (~taken & (taken + 1)).bit_length() - 1
        for place in members:
            busy[place] = busy.get(place, 0) | 1 << first
        found.append(Exchange(span=(start, end), members=tuple(members), round=first))
    return tuple(found)


def n_rounds(found: Sequence[Exchange]) -> int:
    """Rounds that some exchanges take."""
    return max((one.round for one in found), default=-1) + 1
