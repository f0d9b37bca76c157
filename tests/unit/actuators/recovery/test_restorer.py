"""Fewest bytes moved, and fewest rounds in which gradients are exchanged, against brute force and against sums."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.recovery.restorer import exchanges, layer_bytes, n_rounds, restore, transfer_costs
from actuators.recovery.state import Plan, State, megatron_state
from tests.fakes.examples import examples
from tests.unit.actuators.recovery.strategies_of_states import model, plans, state_of


def lacking(held: tuple[int, int], wanted: tuple[int, int], weights: np.ndarray) -> float:
    return sum(weights[layer] for layer in range(*wanted) if not held[0] <= layer < held[1])


@examples(25)
@given(st.data())
def test_no_assignment_moves_fewer_bytes(data: st.DataObject) -> None:
    small = model(6, head_layers=0.6, embedding_layers=0.4)
    old = data.draw(plans(most_pipelines=3, most_stages=3).filter(lambda plan: 2 <= plan.n_places <= 6))
    state = state_of(old)
    n_lost = data.draw(st.integers(0, old.n_places - 1))
    state = state.without(range(n_lost)).joined(range(100, 100 + data.draw(st.integers(0, 1))))
    nodes = state.survivors
    new = data.draw(plans(most_pipelines=3, most_stages=3).filter(lambda plan: plan.n_places <= len(nodes)))
    weights = layer_bytes(small)
    spans = [new.spans[pipeline][stage] for pipeline, stage in new.places()]
    least = min(
        sum(lacking(state.held(node), span, weights) for node, span in zip(some, spans, strict=True))
        for some in permutations(nodes, len(spans))
    )
    found = restore(state, new, small)
    is_held = all(any(s <= layer < e for s, e in map(state.held, nodes)) for layer in range(6))
    if is_held:
        assert found.moved_bytes == pytest.approx(least)
        assert found.moved_bytes == pytest.approx(sum(weights[move.layer] for move in found.moves))
    else:
        assert found.moved_bytes == 0.0
        assert found.read_bytes == max(sum(weights[start:end]) for start, end in spans)


@examples(25)
@given(plans(), plans())
def test_every_place_gets_a_node_and_every_missing_layer_comes_from_one_that_has_it(old: Plan, new: Plan) -> None:
    state = state_of(old).joined(range(100, 100 + max(0, new.n_places - old.n_places)))
    found = restore(state, new, model(6))
    assert len(found.state.place_of) == new.n_places
    assert found.state.survivors == state.survivors
    for node in found.state.place_of:
        moved = {move.layer for move in found.moves if move.target == node}
        had, has = set(range(*state.held(node))), set(range(*found.state.held(node)))
        assert moved == has - had
    for move in found.moves:
        assert move.source is not None
        assert move.layer in range(*state.held(move.source))


def test_the_figure_of_the_paper_moves_seven_layers() -> None:
    """Figure 3: DP 3 x PP 3 with nine layers becomes DP 2 x PP 4 with [2, 2, 2, 3]; a node without is lost."""
    state = megatron_state(dp=3, stages=(3, 3, 3), n_micro_batches=6).without([8])
    plan = Plan(kind="symmetric", stages=((2, 2, 2, 3),) * 2, batches=(3, 3))
    costs = transfer_costs([(0, 3)], [(0, 2), (2, 4)], model(9))
    assert costs.tolist() == [[0.0, 7.0]]
    found = restore(state, plan, model(9))
    assert found.moved_bytes <= 7 * 7.0
    assert found.state.idle == ()


def test_nothing_moves_where_nothing_changes() -> None:
    state = megatron_state(dp=3, stages=(2, 4), n_micro_batches=6)
    found = restore(state, state.plan, model(6))
    assert found.moves == ()
    assert all(found.state.held(node) == state.held(node) for node in state.survivors)


def test_sources_share_the_work() -> None:
    """A new node needs six layers that three others have: each sends two."""
    state = megatron_state(dp=3, stages=(6,), n_micro_batches=6).joined([9])
    found = restore(state, Plan(kind="symmetric", stages=((6,),) * 4, batches=(2, 2, 1, 1)), model(6))
    assert sorted(move.source for move in found.moves if move.source is not None) == [0, 0, 1, 1, 2, 2]
    assert found.busiest_bytes == 6 * 7.0


@given(plans())
def test_rounds_are_as_few_as_the_busiest_place_has_exchanges(plan: Plan) -> None:
    found = exchanges(state_of(plan))
    of_place = {place: [one for one in found if place in one.members] for place in plan.places()}
    for mine in of_place.values():
        assert len({one.round for one in mine}) == len(mine)
    busiest = max(map(len, of_place.values()))
    neighbours = [sum(set(one.members) & set(other.members) != set() for other in found) - 1 for one in found]
    assert n_rounds(found) == busiest <= max(neighbours) + 1


@given(plans())
def test_every_layer_is_exchanged_once_by_all_that_hold_it(plan: Plan) -> None:
    found = exchanges(state_of(plan))
    assert [layer for one in found for layer in range(*one.span)] == list(range(plan.n_layers))
    for one in found:
        for layer in range(*one.span):
            holders = [(d, s) for d, s in plan.places() if plan.spans[d][s][0] <= layer < plan.spans[d][s][1]]
            assert list(one.members) == holders


def test_equal_pipelines_exchange_in_one_round_and_lost_places_in_none() -> None:
    state = megatron_state(dp=3, stages=(2, 4), n_micro_batches=6)
    assert n_rounds(exchanges(state)) == 1
    assert exchanges(state.without([1]))[0].members == ((0, 0), (2, 0))


@examples(16)
@given(plans(), st.integers(0, 2**32 - 1))
def test_an_asymmetric_exchange_gives_the_gradients_of_a_symmetric_one(plan: Plan, seed: int) -> None:
    """Each pipeline sums its micro-batches, the members of an exchange sum theirs, and all divide by the batch."""
    of_sample = np.random.default_rng(seed).normal(size=(plan.n_micro_batches, plan.n_layers, 3)).astype(np.float32)
    first = np.concatenate([[0], np.cumsum(plan.batches)])
    own = {(d, s): of_sample[first[d] : first[d + 1], slice(*plan.spans[d][s])].sum(axis=0) for d, s in plan.places()}
    found = exchanges(state_of(plan))
    for number in range(n_rounds(found)):
        now = [one for one in found if one.round == number]
        assert len({place for one in now for place in one.members}) == sum(len(one.members) for one in now)
        for one in now:
            parts = []
            for d, s in one.members:
                start = plan.spans[d][s][0]
                parts.append(own[d, s][one.span[0] - start : one.span[1] - start])
            total = np.sum(parts, axis=0)
            for part in parts:
                part[...] = total
    symmetric = of_sample.sum(axis=0) / plan.n_micro_batches
    for (d, s), gradient in own.items():
        np.testing.assert_allclose(gradient / plan.n_micro_batches, symmetric[slice(*plan.spans[d][s])], atol=2e-5)


def test_a_state_with_lost_places_keeps_its_nodes() -> None:
    state = megatron_state(dp=2, stages=(3, 3), n_micro_batches=2).without([0])
    assert isinstance(state, State)
    assert len(restore(state, Plan(kind="symmetric", stages=((2, 2, 2),), batches=(2,)), model(6)).state.place_of) == 3
