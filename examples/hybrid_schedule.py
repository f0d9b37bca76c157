"""The order in which a node of examples/train_hybrid.py computes its micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

Operation = tuple[str, int]
"""`forward` or `backward`, and the number of the micro-batch."""


def one_f_one_b(stage: int, n_stages: int, n_micro_batches: int) -> list[Operation]:
    """The order of one stage, as the estimator has it."""
    warm = min(n_micro_batches, n_stages - stage - 1)
    order = [("forward", number) for number in range(warm)]
    for number in range(n_micro_batches):
        if warm + number < n_micro_batches:
            order.append(("forward", warm + number))
        order.append(("backward", number))
    return order


def routes_of(
    holders: Sequence[Sequence[int | None]], spans: Sequence[Sequence[object]], batches: Sequence[int]
) -> list[list[int]]:
    """The nodes that each micro-batch goes through; at a lost place one of those with the same layers, in turn.

    >>> routes_of([[0, 2], [1, None]], [["a", "b"], ["a", "b"]], [1, 2])
    [[0, 2], [1, 2], [1, 2]]
    """
    peers: dict[object, list[int]] = {}
    for row, of in zip(holders, spans, strict=True):
        for node, span in zip(row, of, strict=True):
            if node is not None:
                peers.setdefault(span, []).append(node)
    turn = dict.fromkeys(peers, 0)
    routes = []
    for row, of, n_micro_batches in zip(holders, spans, batches, strict=True):
        for _ in range(n_micro_batches):
            route = []
            for node, span in zip(row, of, strict=True):
                if node is None:
                    node = peers[span][turn[span] % len(peers[span])]
                    turn[span] += 1
                route.append(node)
            routes.append(route)
    return routes


def rerouted(routes: Sequence[Sequence[int]]) -> dict[int, list[Operation]]:
    """The order of each node where micro-batches of other pipelines pass through it (ReCycle).

    Each does what is ready, backward first, else the earliest forward; with as many under way as a stage of its place
    has for each pipeline that it serves. All nodes' orders come from one such course of events, so nobody waits for
    somebody who waits for him.

    >>> rerouted([[0, 1], [0, 1]])[0]
    [('forward', 0), ('forward', 1), ('backward', 0), ('backward', 1)]
    """
    orders: dict[int, list[Operation]] = {node: [] for route in routes for node in route}
    share = max(len(routes) // len({route[0] for route in routes}), 1)
    most = {
        node: (len(route) - route.index(node)) * -(-sum(node in one for one in routes) // share)
        for route in routes
        for node in route
    }
    under_way = dict.fromkeys(orders, 0)
    at = [0] * len(routes)  # how many of its operations each micro-batch has behind it
    now = dict.fromkeys(orders, 0)  # forward takes one unit, backward two
    ready = [0] * len(routes)
    while any(done < 2 * len(route) for done, route in zip(at, routes, strict=True)):
        able = []
        for number, route in enumerate(routes):
            if at[number] == 2 * len(route):
                continue
            is_forward = at[number] < len(route)
            node = route[at[number]] if is_forward else route[2 * len(route) - 1 - at[number]]
            if not is_forward or under_way[node] < most[node]:
                able.append((max(now[node], ready[number]), is_forward, number, node))
        begun, is_forward, number, node = min(able)
        orders[node].append(("forward" if is_forward else "backward", number))
        under_way[node] += 1 if is_forward else -1
        at[number] += 1
        now[node] = ready[number] = begun + (1 if is_forward else 2)
    return orders
