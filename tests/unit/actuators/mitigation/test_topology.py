"""Places of ranks: a permutation that makes nothing worse, stragglers in the fewest stages by the fewest moves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.mitigation.thresholds import LIGHT_TRAFFIC_SHARE
from actuators.mitigation.topology import plan_topology
from pacehound.model.topology import Layout


def one_each(layout):
    """A host for each tensor-parallel group."""
    return [f"h{rank // layout.tp}" for rank in range(layout.world_size)]


def traffic(layout, hosts, rank_at, slow_pairs):
    """Over congested links, counted edge by edge."""
    total = 0.0
    for kind, share in (("dp", 1.0), ("pp", LIGHT_TRAFFIC_SHARE)):
        for group in layout.groups(kind):
            if group[0] % layout.tp:
                continue
            edges = list(itertools.pairwise(group))
            if kind == "dp" and len(group) > 2:
                edges.append((group[-1], group[0]))
            for a, b in edges:
                total += share * (frozenset((hosts[rank_at[a]], hosts[rank_at[b]])) in slow_pairs)
    return total


@st.composite
def cases(draw):
    layout = Layout(tp=draw(st.sampled_from([1, 2])), dp=draw(st.integers(2, 4)), pp=draw(st.integers(1, 5)))
    units = layout.dp * layout.pp
    stragglers = draw(st.lists(st.integers(0, layout.world_size - 1), unique=True, max_size=6))
    ends = st.tuples(st.integers(0, units - 1), st.integers(0, units - 1)).filter(lambda pair: pair[0] != pair[1])
    links = draw(st.lists(ends, max_size=3)) if units > 1 else []
    return layout, stragglers, [(a * layout.tp, b * layout.tp) for a, b in links]


@given(cases())
def test_it_is_a_permutation_that_makes_nothing_worse(case):
    layout, stragglers, links = case
    hosts = one_each(layout)
    plan = plan_topology(layout, hosts, slow_links=links, stragglers=stragglers)
    assert sorted(plan.rank_at) == list(range(layout.world_size))
    assert {(move.place, move.rank) for move in plan.moves} == {(p, r) for p, r in enumerate(plan.rank_at) if p != r}
    slow_pairs = {frozenset((hosts[a], hosts[b])) for a, b in links}
    assert plan.congested_before == pytest.approx(traffic(layout, hosts, range(layout.world_size), slow_pairs))
    assert plan.congested_after == pytest.approx(traffic(layout, hosts, plan.rank_at, slow_pairs))
    if not stragglers:
        assert plan.congested_after <= plan.congested_before
    assert plan.shares_after <= plan.shares_before
    for group in layout.groups("tp"):
        assert len({plan.rank_at[place] // layout.tp for place in group}) == 1


@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_stragglers_share_the_fewest_stages_by_the_fewest_moves(dp, pp, data):
    layout = Layout(dp=dp, pp=pp)
    stragglers = data.draw(st.lists(st.integers(0, layout.world_size - 1), unique=True))
    plan = plan_topology(layout, one_each(layout), stragglers=stragglers)
    fewest = -(-len(stragglers) // dp)
    in_stage = [sum(rank // dp == p for rank in stragglers) for p in range(pp)]
    assert plan.shares_after == fewest
    if sum(n > 0 for n in in_stage) == fewest:
        assert plan.moves == ()
        return
    # Of all choices of stages with as few outer ones as can be, the one with most stragglers in it already.
    outer = {0, pp - 1}
    least_outer = min(len(outer & set(c)) for c in itertools.combinations(range(pp), fewest))
    stay = max(
        sum(in_stage[p] for p in c)
        for c in itertools.combinations(range(pp), fewest)
        if len(outer & set(c)) == least_outer
    )
    assert len(plan.moves) == 2 * (len(stragglers) - stay)
    held = {place // dp for place, rank in enumerate(plan.rank_at) if rank in stragglers}
    assert len(held & outer) == least_outer


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_or_the_fewest_replicas(dp, pp, data):
    layout = Layout(dp=dp, pp=pp)
    stragglers = data.draw(st.lists(st.integers(0, layout.world_size - 1), unique=True))
    plan = plan_topology(layout, one_each(layout), stragglers=stragglers, gather_into="replicas")
    assert plan.shares_after == -(-len(stragglers) // pp)
    assert len({place % dp for place, rank in enumerate(plan.rank_at) if rank in stragglers}) == plan.shares_after
    assert sorted(plan.rank_at) == list(range(layout.world_size))


def test_falcons_figure_10_one_exchange_takes_the_ring_off_a_congested_link():
    plan = plan_topology(Layout(dp=2, pp=2), list("abcd"), slow_links=[(2, 3)])
    assert (plan.congested_before, plan.congested_after, len(plan.moves)) == (1.0, 0.0, 2)


@pytest.mark.parametrize("link", [(0, 1), (1, 2), (4, 5), (2, 3)])
def test_one_congested_link_of_a_small_job_is_relieved_as_far_as_any_order_can(link):
    layout = Layout(dp=3, pp=2)
    hosts = one_each(layout)
    slow = {frozenset((hosts[link[0]], hosts[link[1]]))}
    best = min(traffic(layout, hosts, order, slow) for order in itertools.permutations(range(6)))
    assert plan_topology(layout, hosts, slow_links=[link]).congested_after == pytest.approx(best)


def test_an_exchange_for_a_link_leaves_stragglers_in_their_stage():
    layout = Layout(dp=4, pp=4)
    plan = plan_topology(layout, one_each(layout), slow_links=[(4, 5)], stragglers=[1, 6, 9])
    assert (plan.shares_before, plan.shares_after, plan.congested_after) == (3, 1, 0.0)
    assert {place // 4 for place, rank in enumerate(plan.rank_at) if rank in (1, 6, 9)} in ({1}, {2})


def test_where_all_links_are_congested_or_nothing_is_wrong_nobody_moves():
    layout = Layout(dp=2, pp=2)
    links = list(itertools.combinations(range(4), 2))
    assert plan_topology(layout, list("abcd"), slow_links=links).moves == ()
    assert plan_topology(layout, list("abcd")).reason == "no exchange helps"


def test_rings_are_not_torn_over_more_hosts_than_needed():
    """Four groups on each host: what is exchanged leaves the rest of the ring within its host."""
    layout = Layout(tp=2, dp=8, pp=4)
    hosts = [f"h{rank // 8}" for rank in range(64)]
    plan = plan_topology(layout, hosts, slow_links=[(0, 8)])
    assert plan.congested_before > 0
    assert plan.congested_after < plan.congested_before
    assert len(plan.moves) <= 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": ["a"]}, "hosts of 1 ranks and the layout has 4"),
        ({"hosts": list("abcd")}, "is on several hosts"),
        ({"hosts": list("aabb"), "slow_links": [(0, 1)]}, "within host a"),
        ({"hosts": list("aabb"), "stragglers": [7]}, r"stragglers \[7\] are outside"),
    ],
)
def test_what_does_not_fit_the_layout_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        plan_topology(Layout(tp=2, dp=2), given.pop("hosts"), **given)


def test_the_change_of_an_exchange_is_what_comes_of_it():
    """The vectorised change of traffic agrees with exchanging and counting, for neighbours too."""
    from actuators.mitigation.topology import _Grid

    rng = np.random.default_rng(0)
    layout = Layout(dp=4, pp=3)
    for _ in range(20):
        hosts = [f"h{int(h)}" for h in rng.integers(0, 5, 12)]
        pairs = [(a, b) for a, b in rng.integers(0, 12, (3, 2)).tolist() if hosts[a] != hosts[b]]
        grid = _Grid.of(layout, hosts, pairs, [], 0.1)

        def cost(grid=grid):
            return float((grid.weight * grid.cost[grid.host_at[:, None], grid.host_at[grid.near]]).sum()) / 2

        for place, other in rng.integers(0, 12, (6, 2)).tolist():
            change = grid.change(place)[other]
            if np.isinf(change):
                continue
            before = cost()
            grid.exchange(place, other)
            assert cost() - before == pytest.approx(change)
            grid.exchange(place, other)
