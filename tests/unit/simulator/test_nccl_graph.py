"""NCCL's trees and rings, as the simulator lays them and as the judge assumes them: each derived in its own way."""

import itertools

import pytest

from pacehound.model.topology import Layout
from simulator import nccl_graph
from simulator.groups import communicators
from simulator.job import JobSpec
from simulator.network_view import edges_of
from streams.rounds import edges
from tests.fakes.for_every import for_every

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 31, 33, 64, 100, 128, 257, 512]


def laid(n):
    return [[-1 if parent is None else parent for parent in parents] for parents in nccl_graph.host_parents(n)]


LAID = {f"{n} hosts, the simulator's": (n, laid(n)) for n in SIZES} | {
    f"{n} hosts, the judge's": (n, [list(tree) for tree in edges.double_binary_tree(n)]) for n in SIZES
}


def children_of(parents):
    found = {}
    for below, above in enumerate(parents):
        found.setdefault(above, []).append(below)
    return found


def depth_of(parents, host):
    return 0 if parents[host] == -1 else 1 + depth_of(parents, parents[host])


@for_every(LAID)
def test_each_tree_is_binary_whole_and_no_deeper_than_the_logarithm(of):
    n, trees = of
    for parents in trees:
        children = children_of(parents)
        assert len(children[-1]) == 1
        assert all(len(below) <= 2 for below in children.values())
        assert max(depth_of(parents, host) for host in range(n)) <= max(0, n - 1).bit_length()


@for_every(LAID)
def test_every_host_is_a_leaf_in_one_of_the_two_trees(of):
    n, trees = of
    first, second = (children_of(parents) for parents in trees)
    inside_both = [host for host in range(n) if host in first and host in second]
    # With an even number each host is inside of one at most; with an odd one, the root of one alone may be of both.
    assert len(inside_both) <= (0 if n % 2 == 0 and n > 2 else 2)


@for_every({f"{n} hosts": n for n in SIZES})
def test_the_second_tree_is_the_first_in_a_mirror_or_shifted(n):
    for first, second in (laid(n), edges.double_binary_tree(n)):
        named = [(n - 1 - host) if n % 2 == 0 else (host + 1) % n for host in range(n)]
        assert all(second[named[host]] == (-1 if first[host] == -1 else named[first[host]]) for host in range(n))


@for_every({f"{n} hosts": n for n in SIZES})
def test_judge_and_simulator_come_to_the_same_trees(n):
    assert laid(n) == [list(parents) for parents in edges.double_binary_tree(n)]


def test_the_published_trees_over_eight_hosts():
    assert laid(8) == [[-1, 2, 4, 2, 0, 6, 4, 6], [1, 3, 1, 7, 5, 3, 5, -1]]


def test_within_a_host_the_ranks_are_a_chain_behind_the_first():
    first, second = nccl_graph.tree_edges(range(12), ranks_per_host=4)
    chain = {(1, 0), (2, 1), (3, 2), (5, 4), (6, 5), (7, 6), (9, 8), (10, 9), (11, 10)}
    assert set(first) == chain | {(4, 8), (8, 0)}
    assert set(second) == chain | {(0, 4), (8, 0)}


@pytest.mark.parametrize("n", [16, 64, 512, 4096])
def test_a_tree_that_is_seen_is_recognised_and_any_other_is_not(n):
    spec = JobSpec(layout=Layout(dp=n), ranks_per_host=8, algorithm="tree")
    group = next(one for one in communicators(spec) if one.kind == "dp")
    hosts = [rank // 8 for rank in group.members]
    for channel, parents in zip(edges_of(spec, group, is_tree=True), laid(n // 8), strict=True):
        seen = [edge for edge in channel if hosts[edge[0]] != hosts[edge[1]]]
        found = edges.seen_tree(seen, hosts)
        assert found is not None
        if n > 16:  # over two hosts both trees have the same edge
            assert list(found.parents) == parents
    heap = [(8 * host, 8 * ((host - 1) // 2)) for host in range(1, n // 8)]
    assert n == 16 or edges.seen_tree(heap, hosts) is None
    missing = {hosts[place] for place in seen[0]}
    assert edges.seen_tree([edge for edge in seen if {hosts[place] for place in edge} != missing], hosts) is None


def test_every_ring_visits_all_and_channels_leave_a_host_at_ranks_of_their_own():
    channels = nccl_graph.ring_edges(range(16), ranks_per_host=8)
    for ring in channels:
        assert [a for a, _ in ring] == [b for _, b in [ring[-1], *ring[:-1]]]
        assert sorted(a for a, _ in ring) == list(range(16))
    leaving = [{a for a, b in ring if a // 8 != b // 8} for ring in channels]
    assert not set.intersection(*leaving)
    assert list(itertools.chain(*nccl_graph.ring_edges([3], ranks_per_host=8))) == []
