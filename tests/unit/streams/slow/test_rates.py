"""Links that the rates of single ranks name: rings, trees, all-to-all, and what must not be named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pacehound.model.events import Progress, TransferEdge
from pacehound.model.rounds import ALGORITHMS
from streams.rounds.round_table import RoundTable
from streams.slow.rates import RateTracker, SlowEdges
from tests.fakes.events import topology
from tests.fakes.hand_made_rounds import BASE_NS, MS, rounds

NAN = float("nan")
TREE = [(1, 2), (2, 4), (3, 2), (4, 0), (5, 6), (6, 4)]
ONSET_NS = BASE_NS + 4_000 * MS


def tracker(
    quiet: list[tuple[float, float]],
    slow: list[tuple[float, float]],
    *,
    algorithm: str = "ring",
    op: str = "all_reduce",
    n_quiet: int = 10,
    n_slow: int = 10,
    is_told: bool = True,
) -> RateTracker:
    """A communicator whose ranks send and receive at `quiet` rates before the onset and at `slow` ones since.

    Its edges are told of unless `is_told` says otherwise: a ring in order, or NCCL's first tree over seven hosts.
    """
    made = RateTracker()
    ranks = range(len(quiet))
    made.on_topology(topology("c", ranks, host_ranks=ranks))
    edges = TREE if algorithm == "tree" else [(rank, (rank + 1) % len(ranks)) for rank in ranks]
    told = (TransferEdge(algorithm=algorithm, channel=0, sender=a, receiver=b) for a, b in edges)
    made.on_progress(
        Progress(
            job="j", attempt=0, time_ns=0, host="h0", communicator="c", ranks=(), edges=tuple(told) if is_told else ()
        )
    )
    for rates, first_ms, n in ((quiet, 0, n_quiet), (slow, 4_000, n_slow)):
        if n:
            spans = [[(first_ms + 10 * i, first_ms + 10 * i + 5)] * len(quiet) for i in range(n)]
            block = rounds("c", ranks, spans, op=op)
            send, receive = (np.tile([pair[side] for pair in rates], (n, 1)) for side in (0, 1))
            code = np.full(n, ALGORITHMS.index(algorithm), np.int8)
            rated = replace(block, send_rate=send, recv_rate=receive, algorithm=code)
            for at in range(0, n, 2):  # a second each
                made.add(RoundTable([rated.chosen(np.isin(np.arange(n), (at, at + 1)))]))
    return made


def links(found: SlowEdges | None) -> tuple[tuple[int, int], ...]:
    return found.links if found else ()


def ring(slow_sender: int, n: int = 6, share: float = 0.2) -> list[tuple[float, float]]:
    """Behind a slow edge everybody receives at its pace, and its sender alone takes long to send."""
    return [(share if rank == slow_sender else 1.0, share) for rank in range(n)]


@pytest.mark.parametrize("sender", range(6))
def test_the_sender_of_a_ring_and_its_successor_are_the_edge(sender: int) -> None:
    found = tracker([(1.0, 1.0)] * 6, ring(sender)).slow_edges("c", ONSET_NS)
    assert links(found) == ((sender, (sender + 1) % 6),)
    assert found is not None
    assert found.is_sure


def test_what_is_received_alone_names_nobody() -> None:
    slow = [(1.0, 0.2)] * 6
    assert links(tracker([(1.0, 1.0)] * 6, slow).slow_edges("c", ONSET_NS)) == ()


def test_a_slow_sender_whose_successor_receives_as_ever_names_no_link() -> None:
    slow = [(0.2, 1.0)] + [(1.0, 1.0)] * 5
    assert links(tracker([(1.0, 1.0)] * 6, slow).slow_edges("c", ONSET_NS)) == ()


def test_an_edge_that_always_was_the_slowest_is_not_blamed() -> None:
    """Rank 0 sends to another host and always took longer; rank 3 has become slower than itself."""
    quiet = [(0.3, 1.0)] + [(1.0, 1.0)] * 5
    slow = [(0.3, 0.5), (1.0, 0.5), (1.0, 0.5), (0.5, 0.5), (1.0, 0.5), (1.0, 0.5)]
    assert links(tracker(quiet, slow).slow_edges("c", ONSET_NS)) == ((3, 4),)


def test_ranks_without_a_part_in_the_network_are_never_the_slowest() -> None:
    quiet = [(1.0, NAN), (NAN, NAN), (0.0, 1.0), (1.0, NAN), (NAN, 1.0), (0.0, 0.0)]
    slow = [(1.0, NAN), (NAN, NAN), (0.0, 0.2), (0.2, NAN), (NAN, 0.2), (0.0, 0.0)]
    assert links(tracker(quiet, slow).slow_edges("c", ONSET_NS)) == ((3, 4),)


def test_without_earlier_rates_a_rank_that_stands_apart_from_its_like_is_no_certainty() -> None:
    assert RateTracker().slow_edges("c", ONSET_NS) is None
    found = tracker(
        [(1.0, 1.0)] * 6, [(0.2 if r == 2 else 1.0, 0.2 if r == 3 else 1.0) for r in range(6)], n_quiet=0
    ).slow_edges("c", ONSET_NS)
    assert links(found) == ((2, 3),)
    assert found is not None
    assert not found.is_sure


def tree(child: int, parent: int, n: int = 7) -> list[tuple[float, float]]:
    """Both ends of a slow edge of a tree send more slowly; everybody receives at its pace."""
    return [(0.3 if rank in (child, parent) else 1.0, 0.3) for rank in range(n)]


@pytest.mark.parametrize(("child", "parent"), TREE)
def test_both_ends_of_an_edge_of_a_tree_name_it(child: int, parent: int) -> None:
    found = tracker([(1.0, 1.0)] * 7, tree(child, parent), algorithm="tree").slow_edges("c", ONSET_NS)
    assert {frozenset(link) for link in links(found)} == {frozenset((child, parent))}
    assert found is not None
    assert found.is_sure


def test_two_slow_ranks_of_a_tree_that_are_no_neighbours_are_no_edge() -> None:
    assert links(tracker([(1.0, 1.0)] * 7, tree(3, 5), algorithm="tree").slow_edges("c", ONSET_NS)) == ()


@pytest.mark.parametrize(
    ("algorithm", "slow", "words"),
    [
        ("ring", ring(2), "the ring is assumed: it goes through the ranks in their order"),
        ("tree", tree(2, 4), "the tree is assumed: NCCL's own over 7 hosts"),
    ],
)
def test_edges_that_nobody_has_seen_are_assumed_and_no_certainty(
    algorithm: str, slow: list[tuple[float, float]], words: str
) -> None:
    made = tracker([(1.0, 1.0)] * len(slow), slow, algorithm=algorithm, is_told=False)
    for rank in range(len(slow)):
        made.on_topology(topology("c", range(len(slow)), host=f"h{rank}", host_ranks=(rank,)))
    found = made.slow_edges("c", ONSET_NS)
    assert found is not None
    assert (len(found.links), found.is_sure, found.evidence[-1].words) == (1, False, words)


def test_two_ranks_of_an_all_to_all_are_their_link() -> None:
    slow = [(0.3 if rank in (1, 4) else 1.0, 0.3 if rank in (1, 4) else 1.0) for rank in range(8)]
    found = tracker([(1.0, 1.0)] * 8, slow, algorithm="", op="all_to_all").slow_edges("c", ONSET_NS)
    assert links(found) == ((1, 4),)


def test_where_everybody_sends_slowly_nobody_stands_apart() -> None:
    assert links(tracker([(1.0, 1.0)] * 8, [(0.3, 0.3)] * 8).slow_edges("c", ONSET_NS)) == ()


def test_old_rates_make_room_and_a_baseline_stays() -> None:
    """Long after the onset the recent rounds are all slow ones."""
    found = tracker([(1.0, 1.0)] * 6, ring(2), n_quiet=400, n_slow=300).slow_edges("c", ONSET_NS)
    assert links(found) == ((2, 3),)
    assert found is not None
    assert found.is_sure


def test_without_a_time_before_a_ring_is_held_against_others_like_it() -> None:
    """Two hosts of two ranks: only the ranks next to the other host have rates, and so no peers in their own ring."""
    usual = [(NAN, 40.0), (80.0, NAN), (NAN, 80.0), (40.0, NAN)]
    slow = [(NAN, 40.0), (20.0, NAN), (NAN, 20.0), (40.0, NAN)]
    tracked = RateTracker()
    for name, first, rates in (("a", 0, usual), ("b", 10, usual), ("c", 20, slow)):
        ranks = range(first, first + 4)
        block = rounds(name, ranks, [[(10 * i, 10 * i + 5)] * 4 for i in range(4)])
        send, receive = (np.tile([pair[side] for pair in rates], (4, 1)) for side in (0, 1))
        rated = replace(block, send_rate=send, recv_rate=receive, algorithm=np.full(4, 1, np.int8))
        for at in range(0, 4, 2):
            tracked.add(RoundTable([rated.chosen(np.isin(np.arange(4), (at, at + 1)))]))
    found = tracked.uneven_edges("c", ["a", "b"])
    assert links(found) == ((21, 22),)
    assert found is not None
    assert not found.is_sure
    assert links(tracked.uneven_edges("a", ["b", "c"])) == ()
    assert tracked.uneven_edges("c", []) is None


def test_without_others_a_ring_from_the_start_is_told_by_who_sends_far_more_slowly_than_the_rest() -> None:
    """All receive at the pace of the slowest, so that what is received tells nothing."""
    for share, named in ((0.2, ((2, 3),)), (0.6, ())):
        found = tracker([(1.0, 1.0)] * 6, ring(2, share=share), n_quiet=0).uneven_edges("c", [])
        assert links(found) == named
        assert found is None or not found.is_sure
    assert tracker([(1.0, 1.0)] * 6, [(1.0, 0.2)] * 6, n_quiet=0).uneven_edges("c", []) is None
