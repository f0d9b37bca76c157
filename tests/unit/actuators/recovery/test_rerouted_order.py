"""The order in which nodes compute rerouted micro-batches (examples/hybrid_schedule.py): complete, without a knot."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.examples import examples

PATH = Path(__file__).parents[4] / "examples/hybrid_schedule.py"


def schedule() -> Any:
    spec = importlib.util.spec_from_file_location("hybrid_schedule", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEDULE = schedule()


@st.composite
def losses(draw: st.DrawFn) -> tuple[list[list[int | None]], list[int]]:
    """Pipelines of equal stages some of whose places are lost, none of them everywhere; and their micro-batches."""
    dp, pp = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    holders: list[list[int | None]] = [[dp * s + p for s in range(pp)] for p in range(dp)]
    for stage in range(pp):
        for pipeline in draw(st.sets(st.integers(0, dp - 1), max_size=dp - 1)):
            holders[pipeline][stage] = None
    return holders, draw(st.lists(st.integers(1, 5), min_size=dp, max_size=dp))


@examples(60)
@given(losses())
def test_each_micro_batch_passes_each_stage_once_and_nobody_waits_for_ever(
    lost: tuple[list[list[int | None]], list[int]],
) -> None:
    holders, batches = lost
    routes = SCHEDULE.routes_of(holders, [list(range(len(row))) for row in holders], batches)
    assert len(routes) == sum(batches)
    orders = SCHEDULE.rerouted(routes)
    done: set[tuple[str, int, int]] = set()
    waiting = {node: list(order) for node, order in orders.items()}
    moved = True
    while moved:
        moved = False
        for node, order in waiting.items():
            if not order:
                continue
            kind, number = order[0]
            place, last = routes[number].index(node), len(routes[number]) - 1
            if kind == "forward":
                needs = ("forward", number, place - 1) if place else None
            else:
                needs = ("backward", number, place + 1) if place < last else ("forward", number, last)
            if needs is None or needs in done:
                assert (kind, number, place) not in done
                done.add((kind, number, place))
                order.pop(0)
                moved = True
    assert not any(waiting.values())
    assert len(done) == sum(2 * len(route) for route in routes)


@given(losses())
@examples(30)
def test_the_peers_of_a_lost_place_share_its_micro_batches_evenly(
    lost: tuple[list[list[int | None]], list[int]],
) -> None:
    holders, batches = lost
    routes = SCHEDULE.routes_of(holders, [list(range(len(row))) for row in holders], batches)
    for stage in range(len(holders[0])):
        own = {row[stage]: n for row, n in zip(holders, batches, strict=True) if row[stage] is not None}
        extra = [sum(route[stage] == node for route in routes) - own[node] for node in own]
        assert max(extra) - min(extra) <= 1
