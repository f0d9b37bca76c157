"""Rerouting in closed form, against a list schedule of plain 1F1B with the lost micro-batches among the peers."""

from __future__ import annotations

import heapq
from itertools import count

import pytest

from actuators.recovery.estimator import extra_loads, rerouted_s
from actuators.recovery.models import unit_model
from actuators.recovery.state import State, megatron_state


def listed_s(state: State) -> float:
    """Each node does what is ready, backward before forward, with no more micro-batches under way than 1F1B has."""
    plan = state.plan
    p, lost = plan.pp, set(state.lost)
    route = {}
    for s in range(p):
        live, turn = [d for d in range(plan.dp) if (d, s) not in lost], count()
        for d in range(plan.dp):
            for j in range(plan.batches[d]):
                route[d, s, j] = live[next(turn) % len(live)] if (d, s) in lost else d
    places = [place for place in plan.places() if place not in lost]
    own = dict.fromkeys(places, 0)
    for (_, s, _), d in route.items():
        own[d, s] += 1
    most = {(d, s): -(-(p - s) * own[d, s] // plan.batches[d]) for d, s in places}
    ready: dict[tuple[int, int], list[tuple[int, int, int]]] = {place: [] for place in places}
    for d in range(plan.dp):
        for j in range(plan.batches[d]):
            heapq.heappush(ready[route[d, 0, j], 0], (1, j, d))
    busy, under_way, events, number, now = dict.fromkeys(places, False), dict.fromkeys(places, 0), [], count(), 0.0

    def start(place: tuple[int, int]) -> None:
        if busy[place] or not ready[place] or (ready[place][0][0] and under_way[place] >= most[place]):
            return
        is_forward, j, d = heapq.heappop(ready[place])
        busy[place], under_way[place] = True, under_way[place] + is_forward
        heapq.heappush(events, (now + (1.0 if is_forward else 2.0), next(number), place, is_forward, j, d))

    for place in places:
        start(place)
    while events:
        now, _, place, is_forward, j, d = heapq.heappop(events)
        busy[place], s = False, place[1]
        then: tuple[int, int] | None = place
        if is_forward and s < p - 1:
            then = route[d, s + 1, j], s + 1
            heapq.heappush(ready[then], (1, j, d))
        elif is_forward:
            heapq.heappush(ready[place], (0, j, d))
        else:
            under_way[place] -= 1
            then = (route[d, s - 1, j], s - 1) if s else None
            if then:
                heapq.heappush(ready[then], (0, j, d))
        start(place)
        if then:
            start(then)
    return now


def state_with(dp: int, p: int, m: int, lost: list[int]) -> State:
    """So many nodes lost of each stage, all in different pipelines as long as there are some."""
    turn, failed = count(), []
    for stage, n in enumerate(lost):
        failed += [dp * stage + next(turn) % dp for _ in range(n)]
    return megatron_state(dp=dp, stages=(1,) * p, n_micro_batches=dp * m).without(failed)


CASES = [
    (8, 4, 8, [1, 0, 0, 0]),
    (8, 4, 8, [0, 0, 0, 1]),
    (8, 4, 8, [1, 1, 0, 0]),
    (8, 4, 8, [1, 1, 1, 1]),
    (8, 4, 8, [3, 3, 2, 2]),
    (2, 4, 8, [0, 1, 0, 0]),
    (8, 4, 8, [5, 4, 5, 4]),
]


@pytest.mark.parametrize(("dp", "p", "m", "lost"), CASES)
def test_the_busiest_stage_is_no_more_than_a_schedule_takes_and_a_sixth_less_at_most(
    dp: int, p: int, m: int, lost: list[int]
) -> None:
    state, model = state_with(dp, p, m, lost), unit_model(n_layers=p)
    assert 5 / 6 * listed_s(state) <= rerouted_s(state, model, 0.0) <= listed_s(state) + 3.0


@pytest.mark.parametrize(("dp", "p", "m", "lost"), CASES)
def test_summed_it_is_equation_13(dp: int, p: int, m: int, lost: list[int]) -> None:
    expected = (p + m - 1 + sum(m * f / (dp - f) for f in lost)) * 3.0
    assert rerouted_s(state_with(dp, p, m, lost), unit_model(n_layers=p), 0.0, summed=True) == pytest.approx(expected)


def test_equation_13_counts_twice_what_a_schedule_takes_where_many_are_lost() -> None:
    """Why plans are not priced with it."""
    state, model = state_with(8, 4, 8, [5, 4, 5, 4]), unit_model(n_layers=4)
    assert (
        listed_s(state),
        rerouted_s(state, model, 0.0),
        rerouted_s(state, model, 0.0, summed=True),
    ) == pytest.approx((78.0, 75.0, 161.0))


def test_where_a_stage_is_lost_everywhere_there_is_no_rerouting() -> None:
    state = state_with(2, 2, 4, [2, 0])
    assert extra_loads(state) is None
    with pytest.raises(ValueError, match="no peer"):
        rerouted_s(state, unit_model(n_layers=2), 0.0)
