"""The order in which nodes compute rerouted micro-batches: complete, without a knot, in the time that it says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from actuators.recovery.estimator import pipeline_s, rerouted
from actuators.recovery.memory import under_way
from actuators.recovery.models import unit_model
from actuators.recovery.rerouting import routes_of
from actuators.recovery.state import Place, Plan, State
from tests.fakes.examples import examples


@st.composite
def losses(draw: st.DrawFn) -> State:
    """Pipelines of the same stages some of whose places are lost, none of them everywhere; and their micro-batches."""
    dp, stages = draw(st.integers(2, 4)), tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    pp = len(stages)
    lost = {
        (pipeline, stage) for stage in range(pp) for pipeline in draw(st.sets(st.integers(0, dp - 1), max_size=dp - 1))
    }
    batches = tuple(draw(st.lists(st.integers(1, 5), min_size=dp, max_size=dp)))
    holders = tuple(tuple(None if (p, s) in lost else dp * s + p for s in range(pp)) for p in range(dp))
    return State(plan=Plan(kind="reroute", stages=(stages,) * dp, batches=batches), holders=holders)


def follow_the_orders(state: State, hop_s: float, memory_bytes: float) -> None:
    """Each node follows its order and waits for what it needs; the time is told by nothing but that."""
    model = replace(unit_model(n_layers=state.plan.n_layers), activation_bytes=1.0, parameter_bytes=1.0)
    found, routes = rerouted(state, model, hop_s, memory_bytes), routes_of(state)
    assert routes is not None
    most = under_way(state, model, memory_bytes)
    passed: dict[tuple[str, int, Place], float] = {}
    free_s, held = dict.fromkeys(found.orders, 0.0), Counter[Place]()
    waiting = {place: list(order) for place, order in found.orders.items()}
    moved = True
    while moved:
        moved = False
        for place, order in waiting.items():
            while order:
                kind, number = order[0]
                way = routes[number].places
                at, is_forward = way.index(place), kind == "forward"
                before = (at - 1 if at else None) if is_forward else (at + 1 if at + 1 < len(way) else at)
                needs = (
                    None if before is None else ("forward" if is_forward or before == at else kind, number, way[before])
                )
                if needs is not None and needs not in passed:
                    break
                came_s = 0.0 if needs is None else passed[needs] + hop_s * (before != at)
                layers = state.plan.stages[place[0]][place[1]]
                free_s[place] = max(free_s[place], came_s) + layers * (
                    model.forward_s if is_forward else model.backward_s
                )
                assert (kind, number, place) not in passed
                passed[kind, number, place] = free_s[place]
                held[place] += 1 if is_forward else -1
                assert held[place] <= most[place]
                order.pop(0)
                moved = True
    assert not any(waiting.values()), "a knot"
    reached = {number for order in found.orders.values() for _, number in order}
    assert len(passed) == sum(2 * len(routes[number].places) for number in reached)
    others = set(range(state.plan.dp)) - {routes[number].pipeline for number in reached}
    rest_s = [pipeline_s(model, state.plan.stages[p], state.plan.batches[p], hop_s) for p in others]
    assert abs(found.duration_s - max([*free_s.values(), *rest_s])) < 1e-9


@examples(25)
@given(losses(), st.sampled_from([0.0, 0.25]))
def test_each_micro_batch_passes_each_stage_once_and_nobody_waits_for_ever(state: State, hop_s: float) -> None:
    follow_the_orders(state, hop_s, float("inf"))
    follow_the_orders(state, hop_s, 1.0)  # no more memory than it needs


@examples(12)
@given(losses())
def test_the_peers_of_a_lost_place_share_its_micro_batches_evenly(state: State) -> None:
    routes = routes_of(state)
    assert routes is not None
    assert len(routes) == state.plan.n_micro_batches
    for stage in range(state.plan.pp):
        taken = Counter(one.places[stage][0] for one in routes)
        extra = [
            taken[pipeline] - state.plan.batches[pipeline]
            for pipeline in range(state.plan.dp)
            if state.holders[pipeline][stage] is not None
        ]
        assert max(extra) - min(extra) <= 1
