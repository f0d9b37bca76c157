"""Whose fault a hang is, from positions alone: every shape of waiting, and what evidence does to a name."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.codes import JOINING
from pacehound.model.events import (
    SWITCHED_OFF,
    CallSignature,
    ChannelTransfers,
    GpuReading,
    HostEvidence,
    HostSample,
    HostVitals,
    OpenCall,
    PairProgress,
    ProcessState,
    Progress,
    RankProgress,
    RankStack,
    TransferEdge,
)
from streams.hang.host_reports import HostReports
from streams.hang.observations import HangObservations, RootCause
from streams.hang.rank_progress import ProgressTable
from streams.hang.root_cause import root_cause
from streams.hang.wait_graph import launch_graph, wait_graph
from streams.rounds.divergence import LastIterations
from tests.fakes.events import topology
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import examples
from tests.fakes.hand_made_rounds import rounds_at

GROUPS = {"world": (0, 1, 2, 3), "left": (0, 1), "right": (2, 3), "even": (0, 2)}


@dataclass
class Stage:
    """A job of four ranks, as a test describes it."""

    world_size: int = 4
    groups: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict(GROUPS))
    table: ProgressTable = field(default_factory=ProgressTable)
    host_reports: HostReports = field(default_factory=HostReports)
    mismatches: dict[tuple[str, int], dict[int, CallSignature]] = field(default_factory=dict)
    iterations: LastIterations | None = None
    frozen_ns: int | None = None

    def __post_init__(self) -> None:
        for name, members in self.groups.items():
            self.table.on_topology(topology(name, members, is_world=name == "world", world_size=self.world_size))
        self.host_reports.host_of = {rank: f"h{rank}" for rank in range(self.world_size)}

    def at(self, group: str, rank: int, *opened: OpenCall, launched: int = -1, completed: int = -1, **more) -> None:
        """Where a rank is on a communicator; what is open has been launched."""
        collective = [call.seq for call in opened if call.direction == "none"]
        pairs = more.pop("pairs", ())
        progress = RankProgress(
            rank=rank,
            last_launched=max([launched, completed, *collective]),
            last_completed=completed,
            open=opened,
            pairs=pairs,
        )
        self.table.on_progress(
            Progress(job="j", attempt=0, time_ns=1_000, host=f"h{rank}", communicator=group, ranks=(progress,), **more)
        )

    def cause(self) -> RootCause:
        graph = wait_graph(self.table, 0, unheard=self.host_reports.unfollowed())
        return root_cause(
            HangObservations(
                graph=graph,
                table=self.table,
                host_reports=self.host_reports,
                mismatches=self.mismatches,
                iterations=self.iterations,
                frozen_ns=self.frozen_ns,
            )
        )


def call(seq: int, op: str = "all_reduce", *, ns: int = 1, count: int = 8, **more) -> OpenCall:
    return OpenCall(seq=seq, op=op, count=count, dtype="float32", launch_ns=ns, **more)


def all_but_one_in(stage: Stage, missing: int, seq: int = 7) -> None:
    for rank in stage.groups["world"]:
        if rank == missing:
            stage.at("world", rank, completed=seq - 1)
        else:
            stage.at("world", rank, call(seq), completed=seq - 1)


def all_in(stage: Stage, *by_rank: dict[str, object]) -> None:
    """Everybody stands in call 7 of the world; `by_rank` holds what else is known of each rank's call."""
    for rank, fields in enumerate(by_rank or [{}] * 4):
        stage.at("world", rank, call(7, **fields), completed=6)


def counts(sent: int, received: int, algorithm: str = "ring") -> dict[str, object]:
    return {"send_count": sent, "recv_count": received, "algorithm": algorithm}


RING_COUNTS = [(8, 9), (5, 8), (6, 5), (7, 6)]
"""1 -> 2 is dead: 1 has sent least, 2 has received least, and each rank further on could still pass something on."""


def process(stage: Stage, rank: int, state: str, **more) -> None:
    stage.host_reports.on_sample(
        HostSample(
            job="j",
            attempt=0,
            time_ns=0,
            host=f"h{rank}",
            processes=(ProcessState(**{"rank": rank, "pid": 1, "state": state, "since_ns": 0} | more),),
        )
    )


def stack(stage: Stage, rank: int, doing: str, libraries: tuple[str, ...] = ()) -> None:
    found = RankStack(rank=rank, pid=1, taken_by="proc", frames=("f",), doing=doing, libraries=libraries)
    stage.host_reports.on_evidence(
        HostEvidence(job="j", attempt=0, time_ns=0, host=f"h{rank}", reason="test", stacks=(found,)), lambda _: False
    )


def test_the_first_progress_does_not_say_who_the_members_are():
    """It may come before the topology, and name but the ranks that had joined by then (seen in a real gloo job)."""
    table = ProgressTable()
    first = RankProgress(rank=3, last_launched=-1, last_completed=-1)
    table.on_progress(Progress(job="j", attempt=0, time_ns=1, host="h", communicator="right", ranks=(first,)))
    stage = Stage(table=table)
    stage.at("right", 3, launched=6, completed=6)
    stage.at("right", 2, call(7), completed=6)
    graph = wait_graph(stage.table, 0)
    assert (graph.standing, graph.absent) == ((2,), (3,))


def test_a_rank_that_did_not_come_is_suspected_and_no_more_without_evidence():
    stage = Stage()
    all_but_one_in(stage, 2)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (2,))


@pytest.mark.parametrize("state", ["stopped", "exited"])
def test_a_halted_process_that_did_not_come_is_the_culprit(state):
    stage = Stage()
    all_but_one_in(stage, 2)
    process(stage, 2, state)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H1", (2,))


@pytest.mark.parametrize("state", ["stopped", "exited"])
def test_whoever_is_stopped_or_leaves_once_the_hang_was_said_is_not_guilty_of_it(state):
    stage = Stage(frozen_ns=500)
    all_but_one_in(stage, 2)
    process(stage, 0, state, since_ns=900)
    assert (stage.cause().verdict, stage.cause().culprits) == ("suspected", (2,))


@pytest.mark.parametrize(
    ("doing", "verdict"),
    [("data_loading", "culprit"), ("storage", "culprit"), ("computing", "culprit"), ("lock", "suspected")],
)
def test_a_stack_outside_of_calls_makes_the_difference(doing, verdict):
    stage = Stage()
    all_but_one_in(stage, 2)
    stack(stage, 2, doing)
    stack(stage, 0, "in_call")
    found = stage.cause()
    assert (found.verdict, found.culprits) == (verdict, (2,))
    waits_for_a_lock = any("they wait for a lock, and who holds it is not seen" in words for words in found.unseen)
    assert waits_for_a_lock is (doing == "lock")


def test_a_rank_in_a_call_that_nobody_sees_is_not_named():
    stage = Stage()
    all_but_one_in(stage, 2)
    stack(stage, 2, "in_call", libraries=("libnvshmem",))
    found = stage.cause()
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), (2,))
    assert any("libnvshmem" in words for words in found.unseen)


GAVE_UP = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 40000ms for recv operation to complete"


def test_who_gave_up_waiting_and_left_is_not_guilty_where_somebody_else_is_missing():
    """Its host is heard of sooner than that of a peer, which waits yet by all that is known."""
    stage = Stage()
    stage.at("world", 0, call(7), completed=6)
    for rank in (1, 2, 3):
        stage.at("world", rank, launched=6, completed=6)
    for rank in (2, 3):
        process(stage, rank, "exited", exit_code=1, detail=GAVE_UP)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (1,))
    process(stage, 3, "exited", exit_code=1, detail="ValueError: of its own")
    assert (stage.cause().verdict, stage.cause().culprits) == ("culprit", (3,))


def test_who_gave_up_waiting_is_asked_where_nobody_else_is_missing():
    stage = Stage()
    all_but_one_in(stage, 2)
    process(stage, 2, "exited", exit_code=1, detail=GAVE_UP)
    assert (stage.cause().verdict, stage.cause().culprits) == ("culprit", (2,))


def test_a_rank_whose_hooks_are_off_is_not_named_for_what_it_seems_not_to_do():
    stage = Stage()
    all_but_one_in(stage, 2)
    process(stage, 2, "running", unseen=(SWITCHED_OFF,))
    found = stage.cause()
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), (2,))


def test_a_call_that_was_open_when_hooks_were_switched_off_holds_nobody():
    """Its peers have gone on, as far as anybody knows."""
    stage = Stage()
    stage.at("left", 0, call(10), call(11), completed=9)
    stage.at("left", 1, completed=12)
    process(stage, 0, "running", unseen=(SWITCHED_OFF,))
    assert stage.cause().culprits == ()


def test_where_most_stand_in_a_call_that_is_not_seen_who_waits_for_them_may_be_missing_there():
    """A `new_group` that not all ranks make; what they stand in is shown."""
    stage = Stage()
    stage.at("world", 2, call(7), completed=6)
    for rank in (0, 1, 3):
        stage.at("world", rank, launched=6, completed=6)
        stack(stage, rank, "in_call")
    found = stage.cause()
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), (0, 1, 2, 3))
    assert words_of(found)[1] == "stack of rank 0 (proc): f"


def test_a_rank_that_may_wait_in_a_replayed_graph_is_not_named():
    stage = Stage()
    all_but_one_in(stage, 2)
    stage.at("right", 2, captured_total=12)
    found = stage.cause()
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), (2,))


def test_two_ranks_that_did_not_come_are_both_named_and_their_victims_are_not():
    stage = Stage(world_size=6, groups={"a": (0, 1), "b": (2, 3), "ab": (0, 2, 4, 5)})
    stage.at("a", 0, call(3))  # waits for 1
    stage.at("b", 2, call(5))  # waits for 3
    stage.at("ab", 4, call(9))  # waits for 0 and 2, which wait themselves
    stage.at("ab", 5, call(9))
    assert stage.cause().culprits == (1, 3)


def test_the_wait_is_followed_through_other_communicators_to_where_it_began():
    stage = Stage()
    stage.at("even", 0, call(4))  # for 2
    stage.at("right", 2, call(6))  # for 3, which stands nowhere
    stage.at("left", 1, call(8))  # for 0
    found = stage.cause()
    assert (found.culprits, found.candidates) == ((3,), ())


def test_a_device_that_does_not_finish_what_its_peers_have_finished_is_the_culprit():
    stage = Stage()
    stage.at("left", 0, call(10), call(11), completed=9)
    stage.at("left", 1, completed=12)  # a later one too: rank 0 must have done 10
    stage.at("world", 1, call(3, ns=5), completed=2)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H3", (0,))


def test_without_a_later_completed_call_a_rank_behind_is_suspected_for_a_link_may_have_died():
    stage = Stage()
    stage.at("left", 0, call(10), completed=9)
    stage.at("left", 1, completed=10)
    assert (stage.cause().verdict, stage.cause().culprits) == ("suspected", (0,))


def test_the_root_of_a_broadcast_that_has_left_accuses_nobody():
    stage = Stage()
    stage.at("world", 0, completed=5)
    for rank in (1, 2, 3):
        stage.at("world", rank, call(5, "broadcast", peer=0), completed=4)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("unknown", "H3", ())


def test_all_have_entered_and_nobody_is_named():
    stage = Stage()
    all_in(stage)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits, found.candidates) == ("unknown", "H3", (), (0, 1, 2, 3))


@pytest.mark.parametrize(("begun", "named"), [((True, False, True, True), (1,)), ((True,) * 4, ()), ((None,) * 4, ())])
def test_a_device_that_has_not_begun_what_the_others_have_is_suspected(begun, named):
    stage = Stage()
    all_in(stage, *({"has_started": has_begun} for has_begun in begun))
    found = stage.cause()
    assert (found.culprits, found.verdict) == (named, "suspected" if named else "unknown")


@pytest.mark.parametrize(
    ("late", "may_wait"), [((0, 1), True), ((0, 2, 4), True), ((0, 2), False), ((0, 1, 2), False), ((5,), False)]
)
def test_devices_of_one_communicator_that_have_not_begun_may_wait_for_each_other_unseen(late, may_wait):
    """All ranks of it, or three and more of them: of a library whose calls are not seen."""
    stage = Stage(world_size=8, groups={"world": tuple(range(8)), "left": (0, 1), "even": (0, 2, 4, 6)})
    for rank in range(8):
        stage.at("world", rank, call(7, has_started=rank not in late), completed=6)
    found = stage.cause()
    assert (found.verdict, found.culprits) == (("unknown", ()) if may_wait else ("suspected", late))
    assert any("wait for each other" in words for words in found.unseen) == may_wait


@pytest.mark.parametrize(("hosts", "verdict"), [({}, "suspected"), (dict.fromkeys(range(4), "h0"), "unknown")])
def test_several_links_within_a_host_do_not_fail_together(hosts, verdict):
    stage = Stage()
    stage.host_reports.host_of |= hosts
    for group in ("left", "right"):
        for rank in stage.groups[group]:
            stage.at(group, rank, call(7), completed=6)
    found = stage.cause()
    assert (found.verdict, found.links) == (verdict, ((0, 1), (2, 3)) if verdict == "suspected" else ())


def test_two_ranks_in_a_call_that_does_not_move_have_one_link_between_them():
    stage = Stage()
    stage.at("left", 0, call(7), completed=6)
    stage.at("left", 1, call(7), completed=6)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits, found.links) == ("suspected", "H3", (), ((0, 1),))


def test_the_counts_of_a_ring_point_to_the_edge_that_does_not_move():
    stage = Stage()
    all_in(stage, *(counts(*pair) for pair in RING_COUNTS))
    found = stage.cause()
    assert (found.verdict, found.cause, found.links) == ("suspected", "H3", ((1, 2),))


def channels(*left, total=12):
    """By channel, what is left to be sent and received; `None` where a rank has no part in it."""
    return tuple(
        ChannelTransfers(
            channel=number,
            send_count=-1 if to_send is None else total - to_send,
            recv_count=-1 if to_receive is None else total - to_receive,
            send_total=-1 if to_send is None else total,
            recv_total=-1 if to_receive is None else total,
            send_rate=0.0,
            recv_rate=0.0,
            still_since_ns=2 * 10**9,
        )
        for number, (to_send, to_receive) in enumerate(left)
    )


def stuck_inside(*by_rank, **fields):
    stage = Stage()
    all_in(stage, *({"algorithm": "ring", **fields, "channels": channels} for channels in by_rank))
    return stage.cause()


DONE, ABSENT = (0, 0), (None, None)


def test_the_edge_with_most_left_on_a_channel_does_not_move():
    # Channel 0 is done everywhere; on channel 1 the edge 1 -> 2 is dead.
    left = [(4, 3), (7, 4), (6, 7), (5, 6)]
    found = stuck_inside(*(channels(DONE, one) for one in left))
    assert (found.verdict, found.cause, found.links) == ("suspected", "H3", ((1, 2),))
    words = "on channel 1 (modulo 8) rank 1 has sent 5 of 12 chunks: more is left to it, and to rank 2 to receive"
    assert any(words in sentence and "nothing has moved there since" in sentence for sentence in words_of(found))


def test_a_ring_that_leaves_its_hosts_at_two_ranks_is_compared_between_those():
    # Hosts are {0, 1} and {2, 3}: channel 0 crosses from 1 to 3 and from 3 to 1, channel 1 from 0 to 2 and from 2 to 0.
    left = [channels(ABSENT, (5, 6)), channels(DONE), channels(ABSENT, (6, 5)), channels(DONE)]
    found = stuck_inside(*left, send_count=20, recv_count=20)
    assert found.links == ((2, 0),)


def test_channels_that_are_added_up_do_not_make_a_rank_the_least():
    # Rank 0 sends on one channel where the others send on two, of which one has finished.
    left = [channels((2, 2), total=12), *(channels((n, n + 1), total=24) for n in (3, 5))]
    left.append(channels((4, 3), total=24))
    assert stuck_inside(*left).links == ()  # rank 2 has most of both: that is no edge
    left[3] = channels((4, 7), total=24)
    assert stuck_inside(*left).links == ((2, 3),)


def test_what_reaches_the_sender_inside_of_its_host_is_said_to_be_unseen():
    found = stuck_inside(*(channels(one) for one in [(7, None), (None, 7), (3, None), (None, 3)]))
    assert found.links == ((0, 1),)
    assert any("inside of its host is not counted" in sentence for sentence in words_of(found))


@pytest.mark.parametrize(
    "left",
    [
        [[(7, 7)]] * 4,  # all alike
        [[DONE]] * 4,
        [[(7, 7)], [(3, 3)], [(2, 2)], [(1, 1)]],  # one rank, no edge
        [[(7, 3), DONE], [(3, 7), (7, 3)], [(3, 3), (3, 7)], [(3, 3), (3, 3)]],  # two edges
        [[(7, None)], [(None, 7)], [ABSENT], [ABSENT]],  # nothing to compare it with
    ],
)
def test_channels_that_single_out_no_edge_name_none(left):
    assert stuck_inside(*(channels(*one) for one in left)).links == ()


def test_counts_of_an_algorithm_whose_edges_are_not_known_point_nowhere():
    stage = Stage()
    all_in(stage, *(counts(*pair, "nvls_tree") for pair in RING_COUNTS))
    assert (stage.cause().verdict, stage.cause().links) == ("unknown", ())


def test_counts_that_agree_point_nowhere():
    stage = Stage()
    all_in(stage, *[counts(5, 5)] * 4)
    assert (stage.cause().verdict, stage.cause().links) == ("unknown", ())


TREE_OF_SEVEN = [(2, 4), (1, 2), (3, 2), (6, 4), (5, 6), (4, 0)]
"""NCCL's first tree over seven hosts: who is below, and above."""


def stuck_in_a_tree(dead, *, edges=TREE_OF_SEVEN, told=True, lag=0):
    """Of 100 chunks 40 have passed where nothing moves, 8 more elsewhere; above, `lag` fewer."""
    stage = Stage(world_size=7, groups={"world": tuple(range(7))})
    starved = [dead]
    while above := [edge for edge in TREE_OF_SEVEN if edge[0] == starved[-1][1]]:
        starved += above
    up = {edge: 40 - lag * starved.index(edge) if edge in starved else 48 for edge in TREE_OF_SEVEN}
    seen = tuple(
        TransferEdge(algorithm="tree", channel=0, sender=a, receiver=b) for a, b in [*edges, *(e[::-1] for e in edges)]
    )
    for rank in range(7):
        above = [edge for edge in TREE_OF_SEVEN if edge[0] == rank]
        below = [edge for edge in TREE_OF_SEVEN if edge[1] == rank]
        total = 100 * (len(above) + len(below))
        one = ChannelTransfers(
            channel=0,
            send_count=sum(up[edge] for edge in above) + 36 * len(below),
            recv_count=sum(up[edge] for edge in below) + 36 * len(above),
            send_total=total,
            recv_total=total,
        )
        stage.at("world", rank, call(7, algorithm="tree", channels=(one,)), completed=6, edges=seen if told else ())
    return stage.cause()


@pytest.mark.parametrize("dead", TREE_OF_SEVEN)
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("lag", [0, 1])
def test_in_a_tree_the_edge_does_not_move_below_which_there_is_something_to_pass_up(dead, told, lag):
    found = stuck_in_a_tree(dead, told=told, lag=lag)
    assert (found.verdict, found.links) == ("suspected", (dead,))
    assert any("the tree is assumed: NCCL's own over 7 hosts" in words for words in words_of(found)) == (not told)


def test_edges_that_are_no_tree_of_nccls_name_nobody():
    heap = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    found = stuck_in_a_tree((2, 4), edges=heap)
    assert (found.verdict, found.links) == ("unknown", ())
    assert any("are no tree of NCCL's own over 7 hosts" in words for words in words_of(found))


def test_a_tree_whose_counts_are_not_known_by_channel_names_nobody():
    stage = Stage(world_size=7, groups={"world": tuple(range(7))})
    all_in(stage, *(counts(moved, moved, "tree") for moved in [0, 6, 4, 3, 3, 1, 3]))
    assert (stage.cause().verdict, stage.cause().links) == ("unknown", ())


def test_what_most_is_left_to_is_no_edge_where_nothing_goes_from_the_one_to_the_other():
    stage = Stage()
    seen = tuple(TransferEdge(algorithm="ring", channel=0, sender=a, receiver=(a + 2) % 4) for a in range(4))
    left = [(4, 3), (7, 4), (6, 7), (5, 6)]
    for rank, one in enumerate(left):
        stage.at("world", rank, call(7, algorithm="ring", channels=channels(one)), completed=6, edges=seen)
    assert (stage.cause().verdict, stage.cause().links) == ("unknown", ())


def test_a_pair_that_is_stuck_on_both_sides_is_a_link():
    stage = Stage()
    for rank, peer, direction in ((1, 3, "send"), (3, 1, "recv")):
        pairs = (PairProgress(peer=peer, direction=direction, last_launched=4),)
        stage.at("world", rank, call(4, direction, peer=peer, direction=direction), pairs=pairs)
    found = stage.cause()
    assert (found.verdict, found.cause, found.links) == ("suspected", "H3", ((1, 3),))


def test_a_receiver_waits_for_a_sender_that_has_not_come():
    stage = Stage()
    stage.at("world", 3, call(4, "recv", peer=1, direction="recv"))
    for rank in (0, 2):
        stage.at("world", rank, call(7), completed=6)
    assert (stage.cause().cause, stage.cause().culprits) == ("H1", (1,))


def test_a_rank_that_has_stopped_behind_a_send_it_does_not_wait_for_is_found():
    stage = Stage()
    # 2 has posted a send to 3 and gone on; 3 waits for 2 in the world's call, which 2 has not entered.
    stage.at("world", 2, call(0, "send", peer=3, direction="send"), completed=6)
    for rank in (0, 1, 3):
        stage.at("world", rank, call(7, ns=3), completed=6)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (2,))


def send(seq: int, peer: int, ns: int) -> OpenCall:
    return call(seq, "send", ns=ns, peer=peer, direction="send")


def pair(peer: int, direction: str, launched: int, completed: int) -> PairProgress:
    return PairProgress(peer=peer, direction=direction, last_launched=launched, last_completed=completed)


def a_pipeline_whose_stage_2_stands_before_its_third_micro_batch(stage: Stage, n_sent: int = 4) -> None:
    """Sends are waited for at the end of a step: those that have arrived are open, too (a real gloo job)."""
    for rank in (0, 1):
        sends = tuple(send(seq, rank + 1, ns=10 * seq) for seq in range(n_sent))
        recv = call(0, "recv", ns=100, peer=rank + 1, direction="recv")
        counted = (pair(rank + 1, "send", n_sent - 1, -1), pair(rank + 1, "recv", 0, -1))
        got = (pair(rank - 1, "recv", n_sent - 1, n_sent - 1),) if rank else ()
        stage.at("world", rank, *sends, recv, pairs=(*counted, *got))
    sends = tuple(send(seq, 3, ns=30 + seq) for seq in range(2))
    stage.at("world", 2, *sends, pairs=(pair(3, "send", 1, -1), pair(1, "recv", 2, 2)))
    stage.at("world", 3, call(2, "recv", ns=40, peer=2, direction="recv"), pairs=(pair(2, "recv", 2, 1),))


def test_a_stage_that_stands_between_its_calls_is_not_taken_for_a_link_by_its_sends():
    stage = Stage()
    a_pipeline_whose_stage_2_stands_before_its_third_micro_batch(stage)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits, found.links) == ("suspected", "H1", (2,), ())


def test_a_send_whose_receiver_has_it_holds_nobody_and_a_later_one_does():
    table = Stage().table
    stage = Stage(table=table)
    stage.at("world", 1, send(0, 2, ns=1), send(1, 2, ns=2), pairs=(pair(2, "send", 1, -1),))
    stage.at("world", 2, pairs=(pair(1, "recv", 0, 0),))
    graph = wait_graph(table, 0)
    (index,) = {graph.stands_in(1)}
    assert (graph.call(index).seq, graph.absent) == (1, (2,))
    stage.at("world", 2, pairs=(pair(1, "recv", 1, 1),))
    assert wait_graph(table, 0).standing == ()


def test_sends_that_have_arrived_count_where_something_else_is_open_and_was_not_told():
    """Agents of before told the four oldest calls of a rank: behind four sends nobody knows where it stands."""
    stage = Stage()
    sends = tuple(send(seq, 1, ns=10 * seq) for seq in range(4))
    stage.at("world", 0, *sends, pairs=(pair(1, "send", 3, -1), pair(1, "recv", 0, -1)))
    stage.at("world", 1, pairs=(pair(0, "recv", 3, 3),))
    for rank in (2, 3):
        stage.at("world", rank, call(7), completed=6)
    assert wait_graph(stage.table, 0).standing == (0, 2, 3)


def opposite_orders(stage: Stage, astray: tuple[int, ...]) -> None:
    """Everybody calls `world` then `twin`; who went astray the other way round."""
    for rank in range(4):
        stage.at("twin" if rank in astray else "world", rank, call(7, ns=100 + rank), completed=6)


def twins() -> Stage:
    return Stage(groups={"world": (0, 1, 2, 3), "twin": (0, 1, 2, 3)})


def test_groups_called_in_opposite_order_suspect_the_minority():
    stage = twins()
    opposite_orders(stage, (1,))
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H2", (1,))


def test_without_a_majority_all_who_wait_for_each_other_are_candidates():
    stage = twins()
    opposite_orders(stage, (1, 2))
    found = stage.cause()
    assert (found.verdict, found.cause, found.candidates) == ("unknown", "H2", (0, 1, 2, 3))


def history(order: dict[int, tuple[str, ...]]) -> LastIterations:
    """One iteration (times 10 to 50) in which every rank entered its communicators in an order; now is after 50."""
    blocks = []
    for name in ("world", "twin"):
        arrival = np.array([[10 + 10 * order[rank].index(name) for rank in range(4)]])
        blocks.append(rounds_at(name, (0, 1, 2, 3), arrival, arrival + 5, seq=[6], size_bytes=32))
    ranks = range(4)
    return LastIterations(rounds=blocks, begins_ns=dict.fromkeys(ranks, 50), previous_begins_ns=dict.fromkeys(ranks, 5))


def test_the_rank_whose_order_diverges_from_its_own_is_the_culprit_without_a_majority():
    stage = twins()
    opposite_orders(stage, (1, 2))
    stage.iterations = history(dict.fromkeys(range(4), ("world", "twin")))
    stage.table.names |= {"world": "0", "twin": "1"}  # as torch calls its groups; their ids are hashes
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H2", (1, 2))
    assert "rank 1: it has entered a call on '1' before one on '0' that came" in found.evidence[-2].words


@pytest.mark.parametrize(
    ("before", "named"), [(("left", "world"), (1,)), (("world", "left"), (0,)), ((), ())], ids=["1", "0", "nobody"]
)
def test_of_two_hosts_that_have_launched_both_calls_the_one_with_another_order_than_before_is_suspected(before, named):
    """They run ahead of their devices: how many calls they have launched says nothing of the order."""
    stage = Stage()
    for rank, order in ((0, ("left", "world")), (1, ("world", "left"))):
        for at, name in enumerate(order):
            stage.at(name, rank, call(7, ns=100 + at), completed=6)
    for rank in (2, 3):
        stage.at("right", rank, completed=7)
        stage.at("world", rank, call(7, ns=101), completed=6)
    if before:
        blocks = []
        for name in ("world", "left"):
            arrival = np.full((1, len(GROUPS[name])), 10 + 10 * before.index(name))
            blocks.append(rounds_at(name, GROUPS[name], arrival, arrival + 5, seq=[6], size_bytes=32))
        began = dict.fromkeys(range(4), 50)
        stage.iterations = LastIterations(rounds=blocks, begins_ns=began, previous_begins_ns=dict.fromkeys(range(4), 5))
    found = stage.cause()
    assert (found.cause, found.culprits, found.candidates) == ("H2", named, () if named else (0, 1))
    assert found.verdict == ("suspected" if named else "unknown")


def test_of_two_that_wait_to_receive_from_each_other_the_one_that_never_did_is_suspected():
    stage = Stage(world_size=2, groups={"world": (0, 1), "stages": (0, 1)})
    for rank, peer in ((0, 1), (1, 0)):
        stage.at("stages", rank, call(7, "recv", ns=60, peer=peer, direction="recv"))
    stage.iterations = LastIterations(
        rounds=[rounds_at("stages", (0, 1), np.array([[20, 25]]), np.array([[26, 27]]), seq=[6], is_pair=True)],
        begins_ns={0: 50, 1: 50},
        previous_begins_ns={0: 5, 1: 5},
    )
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H2", (0,))
    stage.iterations = None
    assert (stage.cause().verdict, stage.cause().candidates) == ("unknown", (0, 1))


@pytest.mark.parametrize("waits_at_once", [True, False])
def test_a_sender_that_left_out_a_send_is_the_culprit_whenever_its_receiver_begins_to_wait(waits_at_once):
    """A stage posts its first receive at the moment in which its iteration begins, or later: both belong to it."""
    stage = Stage(world_size=2, groups={"world": (0, 1), "stages": (0, 1)})
    sent = PairProgress(peer=1, direction="send", last_launched=6, last_completed=6)
    stage.at("stages", 0, pairs=(sent,))
    stage.at("world", 0, call(4, ns=100), completed=3)
    stage.at("stages", 1, call(7, "recv", ns=60, peer=0, direction="recv"))
    stage.at("world", 1, completed=3)
    posted_ns = 5 if waits_at_once else 8
    sends = rounds_at("stages", (0, 1), np.array([[10, posted_ns]]), np.array([[12, 12]]), seq=[6], is_pair=True)
    worlds = rounds_at("world", (0, 1), np.array([[30, 30]]), np.array([[35, 35]]), seq=[3])
    begins_ns = dict.fromkeys(range(2), 50)
    stage.iterations = LastIterations(
        rounds=[sends, worlds], begins_ns=begins_ns, previous_begins_ns=dict.fromkeys(range(2), 5)
    )
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H2", (0,))


def test_an_order_that_was_always_so_is_no_divergence():
    stage = twins()
    opposite_orders(stage, (1, 2))
    stage.iterations = history({0: ("world", "twin"), 1: ("twin", "world"), 2: ("twin", "world"), 3: ("world", "twin")})
    assert stage.cause().culprits == ()


@pytest.mark.parametrize("other", [call(7, "broadcast", peer=0), call(7, count=16), call(7, count=4)])
def test_another_operation_or_size_suspects_the_minority_and_its_own_past_proves_it(other):
    stage = twins()
    for rank in range(4):
        stage.at("world", rank, other if rank == 3 else call(7), completed=6)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H2", (3,))
    stage.iterations = history(dict.fromkeys(range(4), ("world", "twin")))
    assert (stage.cause().verdict, stage.cause().culprits) == ("culprit", (3,))


def test_a_root_that_the_past_does_not_tell_is_judged_by_the_majority():
    stage = twins()
    for rank in range(4):
        stage.at("world", rank, call(7, "broadcast", peer=1 if rank == 3 else 0), completed=6)
    arrival = np.full((1, 4), 10)
    past = rounds_at("world", (0, 1, 2, 3), arrival, arrival + 5, op="broadcast", seq=[6], size_bytes=32)
    ranks = range(4)
    stage.iterations = LastIterations(
        rounds=[past], begins_ns=dict.fromkeys(ranks, 50), previous_begins_ns=dict.fromkeys(ranks, 5)
    )
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H2", (3,))


def test_with_two_ranks_only_the_past_tells_who_went_astray():
    stage = Stage()
    stage.at("left", 0, call(7, count=16), completed=6)
    stage.at("left", 1, call(7), completed=6)
    found = stage.cause()
    assert (found.verdict, found.cause, found.candidates) == ("unknown", "H2", (0, 1))


def test_sizes_of_all_to_all_may_differ():
    stage = Stage()
    for rank in range(4):
        stage.at("world", rank, call(7, "all_to_all", count=100 + rank), completed=6)
    assert stage.cause().cause == "H3"


def test_who_has_left_a_round_with_another_call_is_seen_in_its_rows():
    stage = Stage()
    stage.at("world", 0, completed=7)  # its broadcast has ended; the others wait for an all_reduce
    for rank in (1, 2, 3):
        stage.at("world", rank, call(7), completed=6)
    stage.mismatches["world", 7] = {0: CallSignature("broadcast", 8, "float32", root=0)}
    found = stage.cause()
    assert (found.cause, found.culprits) == ("H2", (0,))


@pytest.mark.parametrize(("doing", "verdict"), [("unknown", "suspected"), ("storage", "culprit")])
def test_who_stands_in_no_call_by_its_stack_while_most_others_do_has_not_entered_it(doing, verdict):
    """A group that one rank does not make: making it is no call (a real gloo job)."""
    stage = Stage()
    for rank in range(4):
        stage.at("world", rank, launched=7, completed=7)
        process(stage, rank, "running")
        stack(stage, rank, doing if rank == 1 else "in_call")
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == (verdict, "H1", (1,))
    assert "by the stacks rank 1 stands in no call" in found.evidence[0].words
    stack(stage, 0, "unknown")
    assert stage.cause().culprits == ()  # no more than half of them are


def an_evaluation_that_one_rank_goes_on_with(n_rounds: int) -> RootCause:
    """Each iteration makes one call of 12 bytes, this one has made so many; rank 1 makes one more, the others train."""
    stage = Stage()
    times = 10 * np.arange(1, n_rounds + 2).reshape(-1, 1) + np.zeros((1, 4), np.int64)
    block = rounds_at("world", (0, 1, 2, 3), times, times + 5, seq=list(range(n_rounds + 1)), size_bytes=12)
    ranks = range(4)
    stage.iterations = LastIterations(
        rounds=[block], begins_ns=dict.fromkeys(ranks, 18), previous_begins_ns=dict.fromkeys(ranks, 5)
    )
    trained, evaluated = CallSignature("all_reduce", 999, "float32"), CallSignature("all_reduce", 3, "float32")
    stage.mismatches["world", n_rounds + 1] = {0: trained, 1: evaluated, 2: trained, 3: trained}
    return stage.cause()


def test_an_iteration_with_more_calls_than_the_one_before_says_nothing_of_whose_call_is_strange():
    """By the one before everybody but the rank that evaluates one batch too many would be (a real gloo job)."""
    found = an_evaluation_that_one_rank_goes_on_with(10)
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H2", (1,))


def met_at_the_end(arrivals_ns: list[list[int]], ended_ns: dict[int, int]) -> RootCause:
    """Iterations of one call and one of 12 bytes when all are done, which rank 0 takes for one of those before.

    Rank 0 never ends the last iteration (real gloo jobs).
    """
    stage = Stage()
    arrivals = np.array(arrivals_ns)
    block = rounds_at("world", (0, 1, 2, 3), arrivals, arrivals + 1, seq=list(range(len(arrivals))), size_bytes=32)
    stage.iterations = LastIterations(
        rounds=[block], begins_ns={1: 35, 2: 35, 3: 35}, previous_begins_ns=ended_ns, third_begins_ns={}
    )
    trained, told = CallSignature("all_reduce", 8, "float32"), CallSignature("all_reduce", 3, "float32")
    stage.mismatches["world", 3] = {0: trained, 1: told, 2: told, 3: told}
    return stage.cause()


def test_who_has_made_a_call_by_itself_is_a_call_ahead_when_all_had_ended_an_iteration():
    """It evaluated through its DistributedDataParallel alone; the last of the others' calls is strange to it alone."""
    ended_ns = dict.fromkeys(range(4), 25)
    found = met_at_the_end([[10, 10, 10, 10], [18, 20, 20, 20], [22, 30, 30, 30]], ended_ns)
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H2", (0,))
    assert found.evidence[-1].words == (
        "rank 0 had made 1 call more than its peers when it ended the same iteration: its calls have met with those of "
        "another one since"
    )


@pytest.mark.parametrize(
    ("ahead", "ended_ns"),
    [((), dict.fromkeys(range(4), 25)), ((0, 1), dict.fromkeys(range(4), 25)), ((0,), {1: 25, 2: 25, 3: 25})],
    ids=["all alike", "half and half", "no iteration that all have ended"],
)
def test_where_most_do_not_agree_how_many_calls_were_made_nobody_is_ahead(ahead, ended_ns):
    last = [22 if rank in ahead else 30 for rank in range(4)]
    found = met_at_the_end([[10, 10, 10, 10], [20, 20, 20, 20], last], ended_ns)
    assert found.verdict != "culprit"
    assert not any("fewer" in piece.words or "more than" in piece.words for piece in found.evidence)


def test_who_is_done_and_waited_for_by_nobody_holds_nobody_up():
    """Two pairs of ranks that have nothing to do with each other: one has trained to its end (a real gloo job)."""
    stage = Stage()
    stage.at("left", 0, call(7), completed=6)
    stage.at("left", 1, completed=6)
    for rank in (2, 3):
        stage.at("right", rank, completed=20)
        process(stage, rank, "exited", exit_code=0)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (1,))
    process(stage, 1, "exited", exit_code=0)
    assert (stage.cause().verdict, stage.cause().culprits) == ("culprit", (1,))


def test_who_did_not_wait_to_join_lacks_no_call():
    table = Stage().table
    table.on_topology(topology("early", (0, 1, 2, 3), name=JOINING))
    stage = Stage(table=table)
    for rank in (0, 2, 3):
        stage.at("early", rank, launched=0, completed=0)
    assert table.behind() == ()
    stage.at("early", 0, call(0, "barrier"))
    assert wait_graph(table, 0).absent == (1,)  # but whoever waits in it waits for who has not come


def test_hardware_that_has_failed_names_its_rank():
    stage = Stage()
    all_in(stage)
    stage.host_reports.on_vitals(
        HostVitals(job="j", attempt=0, time_ns=0, host="h3", gpus=(GpuReading(uuid="G", index=0, ranks=(3,), xid=79),))
    )
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H3", (3,))


def test_memory_errors_of_before_accuse_nobody_and_new_ones_do():
    def errors(count: int) -> HostVitals:
        gpu = GpuReading(uuid="G", index=0, ranks=(3,), ecc_uncorrected=count)
        return HostVitals(job="j", attempt=0, time_ns=count, host="h3", gpus=(gpu,))

    stage = Stage()
    all_in(stage)
    stage.host_reports.on_vitals(errors(5))
    assert stage.cause().verdict == "unknown"
    stage.host_reports.on_vitals(errors(6))
    assert (stage.cause().verdict, stage.cause().culprits) == ("culprit", (3,))


def test_a_silent_host_is_suspected_where_others_wait_for_it_and_its_old_position_is_not_believed():
    stage = Stage()
    stage.at("world", 0, call(3, ns=1), completed=2)  # the last that was heard of rank 0, long ago
    stage.host_reports.silent = frozenset({"h0"})
    for rank in (1, 2, 3):
        stage.at("world", rank, call(9), completed=8)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (0,))
    assert any("h0" in words for words in words_of(found))


def test_a_silent_host_that_nobody_waits_for_is_nobodys_hang():
    stage = Stage()
    stage.at("world", 0, call(3, ns=1), completed=2)
    stage.host_reports.silent = frozenset({"h0"})
    for rank in (1, 2, 3):
        stage.at("world", rank, completed=9)
    graph = wait_graph(stage.table, 0, unheard=stage.host_reports.unheard())
    assert not graph


def test_lost_calls_weaken_the_proof_by_completions():
    stage = Stage()
    stage.at("left", 0, call(10), completed=9)
    stage.at("left", 1, completed=12)
    stage.host_reports.dropped["h0"] = 3
    assert (stage.cause().verdict, stage.cause().culprits) == ("suspected", (0,))


def test_launches_alone_suspect_who_stopped_first_and_not_whom_it_stopped():
    stage = Stage()
    for rank, launched in ((0, 30), (1, 28), (2, 10), (3, 30)):
        stage.at("world", rank, launched=launched, sees_completion=False)
    stage.at("left", 0, launched=50, sees_completion=False)
    stage.at("left", 1, launched=49, sees_completion=False)
    found = stage.cause()
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (2,))
    for rank in range(4):
        stage.at("world", rank, launched=30, sees_completion=False)
        stage.at("left", rank, launched=50, sees_completion=False) if rank < 2 else None
    assert launch_graph(stage.table) == {}
    assert stage.cause().verdict == "unknown"


def test_who_lacks_half_as_many_launches_may_have_been_stopped_by_who_lacks_most():
    stage = Stage()
    for group, rank, launched in (("left", 0, 30), ("left", 1, 20), ("even", 0, 30), ("even", 2, 10)):
        stage.at(group, rank, launched=launched, sees_completion=False)
    assert (stage.cause().verdict, stage.cause().culprits, stage.cause().candidates) == ("suspected", (2,), (1,))


@examples(30)
@given(
    st.integers(2, 12).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.lists(st.integers(0, n - 1), min_size=2, unique=True), min_size=1, max_size=5),
            st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1),
            st.randoms(use_true_random=False),
        )
    )
)
def test_ranks_that_never_come_are_found_and_whoever_stands_somewhere_is_not_called_absent(drawn):
    """Any job, any groups: each live rank stands in one of its groups' next calls, the dead in none."""
    n_ranks, groups, dead, random = drawn
    stage = Stage(world_size=n_ranks, groups={f"g{i}": tuple(sorted(group)) for i, group in enumerate(groups)})
    for rank in range(n_ranks):
        mine = [name for name, members in stage.groups.items() if rank in members]
        if rank not in dead and mine:
            stage.at(random.choice(mine), rank, call(1, ns=1), completed=0)
    graph = wait_graph(stage.table, 0)
    live = set(graph.standing)
    assert not live & set(graph.absent)
    waited_for = {other for rank in live for other in graph.waits_for(rank)}
    assert set(graph.absent) == waited_for - live
    assert set(graph.cycle) <= live
    # Everybody who stands somewhere leads to an end or waits in a circle.
    ends = np.zeros(n_ranks, np.bool_)
    settled = [*graph.behind, *graph.joint]
    for rank in range(n_ranks):
        ends[rank] = rank in graph.absent or graph.stands_in(rank) in settled or rank in graph.cycle
    assert all(graph.leads_to(ends)[rank] for rank in live)
