"""The dependency graph, contracted for simulating: one node per group of peers, in an order that respects it.

A node begins when everything that its members wait for has ended, and each member ends its own duration later. Ends are
kept in slots that are used again once nobody needs them, so that what a step of a thousand DP ranks needs at one time
stays in the processor's cache.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput
from streams.whatif import optypes
from streams.whatif.layout import Ops
from streams.whatif.model import Model

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Graph(NamedTuple):
    """Nodes, each behind everything that it waits for. (A tuple: compiled functions take it.)"""

    # operations of node `i`: `members[member_bounds[i]:member_bounds[i + 1]]`
    member_bounds: Int64Array
    members: Int64Array
    # operations that node `i` waits for, without repeats, in the same form
    wait_bounds: Int64Array
    waits: Int64Array
    # operations that each member waits for by itself, in the order of `members`
    own_bounds: Int64Array
    own_waits: Int64Array
    over_dp: BoolArray  # whether the node begins when it can on all DP ranks; shape `(n_nodes,)`
    slot: Int64Array  # where the end of each operation is kept, shape `(n_ops,)`
    n_slots: int  # slots in use at one time, at most
    is_last: BoolArray  # operations that nobody waits for: the step ends with one of them; shape `(n_ops,)`
    is_optimizer: BoolArray  # the optimizers, or where none was recorded what `is_last` names; shape `(n_ops,)`


def graph_of(ops: Ops, model: Model, starts_s: npt.NDArray[Any], name: str) -> Graph:
    """The graph of a model.

    `starts_s` is of one step of one DP rank, shape `(n_ops,)`: among nodes that may come next the earliest does, which
    keeps few ends in use at a time.

    Raises
    ------
    InvalidInput
        The operations wait for each other in a circle.
    """
    nodes = list(model.groups)
    grouped = {op for group in nodes for op in group}
    nodes += [(op,) for op in range(len(ops)) if op not in grouped]
    over_dp = [*model.over_dp, *(False for _ in range(len(nodes) - len(model.over_dp)))]
    order = _sorted(nodes, model, starts_s, ops, name)
    waits = [list(dict.fromkeys(before for op in nodes[i] for before in model.waits_for[op])) for i in order]
    members = [nodes[i] for i in order]
    slot, n_slots = _slots(members, waits, len(ops))
    is_waited_for = np.zeros(len(ops), dtype=bool)
    is_waited_for[[before for one in waits for before in one]] = True
    flat = [op for one in members for op in one]
    is_optimizer = ops.optype == optypes.OPTIMIZER
    return Graph(
        member_bounds=_bounds(members),
        members=np.array(flat, dtype=np.int64),
        wait_bounds=_bounds(waits),
        waits=np.array([before for one in waits for before in one], dtype=np.int64),
        own_bounds=_bounds([model.waits_for[op] for op in flat]),
        own_waits=np.array([before for op in flat for before in model.waits_for[op]], dtype=np.int64),
        over_dp=np.array([over_dp[i] for i in order], dtype=bool),
        slot=slot,
        n_slots=n_slots,
        is_last=~is_waited_for,
        is_optimizer=is_optimizer if is_optimizer.any() else ~is_waited_for,
    )


def _bounds(lists: Any) -> Int64Array:
    return np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)


def _sorted(nodes: list[tuple[int, ...]], model: Model, starts_s: npt.NDArray[Any], ops: Ops, name: str) -> list[int]:
    node_of = {op: i for i, group in enumerate(nodes) for op in group}
    before = [{node_of[earlier] for op in group for earlier in model.waits_for[op]} for group in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].append(i)
    left = [len(one) for one in before]
    launched_s = [max(float(starts_s[op]) for op in group) for group in nodes]
    ready = [(launched_s[i], i) for i in range(len(nodes)) if not left[i]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            left[j] -= 1
            if not left[j]:
                heapq.heappush(ready, (launched_s[j], j))
    if len(order) < len(nodes):
        stuck = [ops.name(nodes[i][0]) for i in range(len(nodes)) if left[i]]
        raise InvalidInput(
            f"{name}: {len(stuck)} operations wait for each other in a circle, among them {'; '.join(stuck[:4])}; "
            "sends and receives do not match, or starts of different workers are not on one clock"
        )
    return order


def _slots(members: list[tuple[int, ...]], waits: list[list[int]], n_ops: int) -> tuple[Int64Array, int]:
    """A slot for the end of each operation, free again after the last node that waits for it has begun."""
    last_use = {before: i for i, one in enumerate(waits) for before in one}
    slot = np.full(n_ops, -1, dtype=np.int64)
    free: list[int] = []
    n_slots = 0
    for i, group in enumerate(members):
        # A node's own slots are taken before those that it reads are given back: it writes while it reads.
        for op in group:
            slot[op], n_slots = (free.pop(), n_slots) if free else (n_slots, n_slots + 1)
        free += [int(slot[before]) for before in waits[i] if last_use[before] == i]
        free += [int(slot[op]) for op in group if op not in last_use]
    return slot, n_slots
