"""Hangs of every class: who waits for whom follows from the fault, and nobody but the culprits departs."""

import numpy as np
import pytest

from pacehound.model.calls import CallBatch
from pacehound.model.events import HostEvidence, HostSample, HostVitals, Progress, Tick, Topology
from pacehound.model.topology import Layout
from simulator.faults import DeadDevice, SilentHost, SlowLink, StopRank, StuckRanks, SymmetricHang, WrongCall
from simulator.job import JobSpec, simulate
from simulator.source import (
    C10D_GLOO,
    COUNTS_ONLY,
    DEVICE_TIMES,
    FLIGHT_RECORDER,
    GRAPH_REPLAY,
    LAUNCH_ONLY,
    UNSEEN_TP,
)

LAYOUT = Layout(tp=2, dp=4, pp=2)
STEP = 6


def job(*faults, source=DEVICE_TIMES, **given):
    spec = {"layout": LAYOUT, "iterations": STEP + 2, "micro_batches": 2, "tp_calls": 1, "hang_s": 4.0, **given}
    return simulate(JobSpec(faults=faults, source=source, **spec))


def waiting_in(simulation):
    """By rank, the kind of the call that it entered in the last step and did not leave; None where there is none."""
    timeline, found = simulation.timeline, {}
    for rank in range(simulation.spec.layout.world_size):
        tp, dp, stage = simulation.spec.layout.position(rank)
        slots = timeline.programs[stage].slots
        arrived, ended = (times[stage][-1, :, dp, tp] for times in (timeline.arrival_s, timeline.end_s))
        stuck = np.isfinite(arrived) & np.isinf(ended)
        collective = [slot.kind for slot, is_stuck in zip(slots, stuck, strict=True) if is_stuck]
        found[rank] = collective[0] if collective else None
    return found


def last_progress(simulation):
    """By rank and communicator, what was said last before the job was killed."""
    names, found = {}, {}
    killed_ns = simulation.spec.start_unix_ns + (simulation.observed.finish_s - 0.1) * 1e9
    for event in simulation.events():
        if isinstance(event, Topology):
            names[event.communicator] = event.name
        elif isinstance(event, Progress) and event.time_ns < killed_ns:
            found |= {(told.rank, names[event.communicator]): told for told in event.ranks}
    return found


@pytest.mark.parametrize("what", ["op", "larger", "smaller"])
@pytest.mark.parametrize("kind", ["tp", "dp"])
@pytest.mark.parametrize("source", [C10D_GLOO, DEVICE_TIMES])
def test_a_call_that_differs_lets_all_of_its_group_in_and_none_out(what, kind, source):
    simulation = job(WrongCall(rank=5, step=STEP, what=what, kind=kind), source=source)
    group = (1, 3, 5, 7) if kind == "dp" else (4, 5)
    waiting = waiting_in(simulation)
    assert {rank for rank, where in waiting.items() if where == kind and rank in group} == set(group)
    (found,) = simulation.truth.findings
    assert (found.kind, found.cause, found.culprits) == ("hang", "H2", (5,))
    name = "dp1" if kind == "dp" else "tp2"
    told = last_progress(simulation)
    calls = {rank: told[rank, name].open[0] for rank in group}
    signature = {rank: (call.op, call.count) for rank, call in calls.items()}
    others = {signature[rank] for rank in group if rank != 5}
    assert len(others) == 1
    assert signature[5] not in others
    assert len({call.seq for call in calls.values()}) == 1


@pytest.mark.parametrize("kind", ["tp", "dp"])
def test_a_rank_that_skips_a_call_waits_elsewhere_and_its_peers_wait_for_it(kind):
    simulation = job(WrongCall(rank=5, step=STEP, what="skip", kind=kind))
    name, peers = ("dp1", (1, 3, 7)) if kind == "dp" else ("tp2", (4,))
    waiting = waiting_in(simulation)
    assert waiting[5] == "world"
    assert {waiting[rank] for rank in peers} == {kind}
    told = last_progress(simulation)
    ahead, behind = told[peers[0], name], told[5, name]
    assert behind.last_launched == ahead.last_launched - 1 == ahead.last_completed
    assert ahead.open[0].seq == ahead.last_launched


@pytest.mark.parametrize(("rank", "peer"), [(5, 13), (13, 5)])
@pytest.mark.parametrize("nth", [0, -1])
def test_a_rank_that_leaves_out_a_send_has_counted_fewer_than_its_receiver_waits_for(rank, peer, nth):
    simulation = job(WrongCall(rank=rank, step=STEP, what="skip", kind="pp", nth=nth))
    assert waiting_in(simulation)[peer] == "pp"
    told = last_progress(simulation)
    (sent,) = [pair for pair in told[rank, "pp5"].pairs if (pair.peer, pair.direction) == (peer, "send")]
    (waited,) = [call for call in told[peer, "pp5"].open if (call.peer, call.direction) == (rank, "recv")]
    assert waited.seq == sent.last_launched + 1


@pytest.mark.parametrize("what", ["op", "order"])
def test_a_send_can_be_left_out_and_nothing_else(what):
    with pytest.raises(ValueError, match="a send can be left out"):
        WrongCall(rank=5, step=STEP, what=what, kind="pp")


def test_a_rank_that_swaps_two_groups_waits_in_the_one_that_nobody_reaches():
    wrong = WrongCall(rank=5, step=STEP, what="order", kind="dp")
    gloo, device = job(wrong, source=C10D_GLOO), job(wrong)
    for simulation in (gloo, device):
        waiting = waiting_in(simulation)
        assert waiting[5] == "world"
        assert {waiting[rank] for rank in (1, 3, 7)} == {"dp"}
    assert not last_progress(gloo)[5, "dp1"].open
    # A host that runs ahead has launched both: its device alone comes to them in the other order.
    told = last_progress(device)
    (late,), (early,) = told[5, "dp1"].open, told[5, "world"].open
    assert (early.has_started, late.has_started) == (True, False)
    assert early.launch_ns < late.launch_ns


def test_the_numbers_of_a_rank_that_skipped_a_call_have_no_gap():
    simulation = job(WrongCall(rank=5, step=STEP, what="skip", kind="tp", nth=0))
    seqs = [
        row["seq"]
        for event in simulation.events()
        if isinstance(event, CallBatch)
        for row in event.rows.select(["rank", "seq", "op", "count"]).to_pylist()
        if row["rank"] == 5 and row["op"] == "all_reduce" and row["count"] == (8 << 20) // 2
    ]
    assert seqs == list(range(STEP * 4 + 3))


def test_a_dead_device_has_not_finished_what_its_peers_have_and_its_host_launches_on():
    simulation = job(DeadDevice(rank=5, step=STEP, kind="tp"))
    told = last_progress(simulation)
    dead, peer = told[5, "tp2"], told[4, "tp2"]
    assert peer.last_completed == dead.open[0].seq == dead.last_completed + 1
    assert dead.last_launched == peer.last_launched
    assert dead.last_launched > dead.open[0].seq
    (found,) = simulation.truth.findings
    assert (found.cause, found.culprits) == ("H3", (5,))


@pytest.mark.parametrize("kind", ["tp", "dp"])
def test_in_a_symmetric_hang_all_members_look_alike(kind):
    simulation = job(SymmetricHang(kind=kind, group=1, step=STEP), ranks_per_host=2)
    name, members = ("dp1", (1, 3, 5, 7)) if kind == "dp" else ("tp1", (2, 3))
    told = last_progress(simulation)
    calls = [told[rank, name].open[0] for rank in members]
    assert len({(c.seq, c.op, c.count, c.has_started, c.send_count, c.recv_count) for c in calls}) == 1
    assert simulation.truth.findings[0].culprits == ()


@pytest.mark.parametrize("source", [C10D_GLOO, DEVICE_TIMES, LAUNCH_ONLY])
@pytest.mark.parametrize("doing", ["stopped", "data_loading"])
def test_ranks_that_never_begin_have_launched_nothing_of_the_step(source, doing):
    simulation = job(StuckRanks(ranks=(3, 9), step=STEP, doing=doing), source=source, has_stacks=True)
    for rank in range(16):
        tp, dp, stage = LAYOUT.position(rank)
        launched = np.isfinite(simulation.observed.launch_s[stage][-1, :, dp, tp])
        assert launched.any() != (rank in (3, 9))
    assert simulation.truth.findings[0].culprits == (3, 9)
    stopped = {
        p.rank for e in simulation.events() if isinstance(e, HostSample) for p in e.processes if p.state == "stopped"
    }
    assert stopped == ({3, 9} if doing == "stopped" else set())
    stacks = {s.rank: s.doing for e in simulation.events() if isinstance(e, HostEvidence) for s in e.stacks}
    assert {rank for rank, what in stacks.items() if what == doing} == {3, 9}
    assert {what for rank, what in stacks.items() if rank not in (3, 9)} == {"in_call"}


def test_nobody_looks_at_stacks_unless_the_job_says_so():
    assert not [e for e in job(StopRank(rank=3, step=STEP)).events() if isinstance(e, HostEvidence | HostVitals)]


def test_a_dead_edge_of_a_ring_has_the_fewest_sent_before_it_and_the_fewest_received_behind_it():
    # One rank per host, so that every edge is counted.
    dead = SlowLink(link=(2, 3), bandwidth_factor=0.0, from_step=STEP)
    simulation = job(dead, layout=Layout(dp=8), ranks_per_host=1)
    told = last_progress(simulation)
    calls = [told[rank, "dp0"].open[0] for rank in range(8)]
    on_channel = [call.channels[0] for call in calls]
    sent, received = ([getattr(one, name) for one in on_channel] for name in ("send_count", "recv_count"))
    assert sent[2] == received[3]
    assert [rank for rank in range(8) if sent[rank] == min(sent)] == [2]
    assert [rank for rank in range(8) if received[rank] == min(received)] == [3]
    assert [sent[rank] for rank in (3, 4, 5)] == [sent[2] + 1, sent[2] + 2, sent[2] + 3]


def test_ranks_without_a_connection_between_hosts_have_no_counts():
    dead = SlowLink(link=(7, 8), bandwidth_factor=0.0, from_step=STEP)
    simulation = job(dead, layout=Layout(dp=16))
    told = last_progress(simulation)
    calls = {rank: told[rank, "dp0"].open[0] for rank in range(16)}
    sending, receiving = {}, {}
    for rank, call in calls.items():
        for one in call.channels:
            if one.send_count >= 0:
                sending.setdefault(one.channel, set()).add(rank)
            if one.recv_count >= 0:
                receiving.setdefault(one.channel, set()).add(rank)
    # Each channel leaves a host at a rank of its own, and enters the next one at the rank behind it.
    assert (sending, receiving) == ({0: {7, 15}, 1: {0, 8}}, {0: {0, 8}, 1: {1, 9}})
    assert {rank for rank, call in calls.items() if call.send_count >= 0} == {0, 7, 8, 15}


def test_below_a_dead_edge_of_a_tree_a_rank_has_more_than_it_passes_on():
    # In the first tree over seven hosts 6 is below 4, and 5 below 6; the second tree does not use that edge.
    dead = SlowLink(link=(6, 4), bandwidth_factor=0.0, from_step=STEP)
    simulation = job(dead, layout=Layout(dp=7), ranks_per_host=1, algorithm="tree")
    told = last_progress(simulation)
    calls = [told[rank, "dp0"].open[0] for rank in range(7)]
    assert {call.algorithm for call in calls} == {"tree"}
    first, second = ([call.channels[channel] for call in calls] for channel in (0, 1))
    assert all((one.send_count, one.recv_count) == (one.send_total, one.recv_total) for one in second)
    moved = first[0].send_count  # what the root has passed down, to all
    assert (first[5].send_count, first[5].recv_count) == (moved + 8, moved)
    assert (first[6].send_count, first[6].recv_count) == (2 * moved, 2 * moved + 8)
    assert first[0].recv_count == moved  # the root waits


def test_before_a_missing_rank_an_innocent_has_sent_least():
    simulation = job(StuckRanks(ranks=(4,), step=STEP), layout=Layout(dp=8), ranks_per_host=1)
    told = last_progress(simulation)
    sent = {rank: told[rank, "dp0"].open[0].send_count for rank in range(8) if rank != 4}
    assert sent[3] == min(sent.values()) == 0
    assert told[4, "dp0"].open == ()


def test_a_captured_call_is_seen_once_and_its_replays_never():
    simulation = job(source=GRAPH_REPLAY)
    names, captured, rows = {}, {}, {}
    for event in simulation.events():
        if isinstance(event, Topology):
            names[event.communicator] = event.name[:2]
        elif isinstance(event, CallBatch):
            kind = names[event.communicator]
            rows[kind] = rows.get(kind, 0) + len(event)
            captured.setdefault(kind, set()).update(event.column("captured").tolist())
        elif isinstance(event, Progress) and event.closed:
            assert (event.captured_total > 0) == (names[event.communicator] == "tp")
    assert captured == {"tp": {True}, "dp": {False}, "pp": {False}, "wo": {False}}
    assert rows["tp"] == 16 * 4  # two micro-batches, forward and backward, of one step
    assert rows["wo"] == 16 * (STEP + 2)


def test_a_library_that_nobody_sees_has_no_communicator_and_is_named_in_stacks():
    simulation = job(StopRank(rank=3, step=STEP), source=UNSEEN_TP, has_stacks=True)
    events = list(simulation.events())
    assert not [e for e in events if isinstance(e, Topology) and e.name.startswith("tp")]
    stacks = [s for e in events if isinstance(e, HostEvidence) for s in e.stacks]
    assert {s.libraries for s in stacks} == {("custom all-reduce",)}
    assert {s.doing for s in stacks} == {"stopped", "unknown"}


@pytest.mark.parametrize("source", [LAUNCH_ONLY, COUNTS_ONLY])
def test_a_source_without_ends_says_that_it_sees_none(source):
    progress = [e for e in job(StopRank(rank=3, step=STEP), source=source).events() if isinstance(e, Progress)]
    assert not any(p.sees_completion for p in progress)
    assert all(r.last_completed == -1 and not r.open for p in progress for r in p.ranks)


def test_a_flight_recorder_tells_nothing_before_its_dump_and_a_stopped_rank_writes_none():
    simulation = job(StopRank(rank=3, step=STEP), source=FLIGHT_RECORDER)
    progress = [e for e in simulation.events() if isinstance(e, Progress) and e.host == "host0"]
    before = [p for p in progress if not p.sees_completion]
    after = [p for p in progress if p.sees_completion]
    assert before
    assert after
    assert max(p.time_ns for p in before) < min(p.time_ns for p in after)
    assert all(r.last_launched == -1 for p in before for r in p.ranks)
    assert not [r for p in after for r in p.ranks if r.rank == 3]
    states = {p.state for e in simulation.events() if isinstance(e, HostSample) for p in e.processes}
    assert states == {"unknown"}  # there is no agent that could know


@pytest.mark.parametrize("is_gone", [False, True])
def test_of_a_silent_host_there_are_ticks_alone_and_only_a_gone_one_stops_the_job(is_gone):
    simulation = job(SilentHost(host=1, step=50, is_gone=is_gone), iterations=100)
    assert simulation.observed.was_killed == is_gone
    silent_ns = simulation.spec.start_unix_ns + simulation.observed.silent_s[1] * 1e9
    events = list(simulation.events())
    said = [e.time_ns for e in events if isinstance(e, Progress) and e.host == "host1"]
    assert max(said) < silent_ns
    ticks = [e for e in events if isinstance(e, Tick)]
    assert min(e.time_ns for e in ticks) >= silent_ns
    streams = {e.communicator for e in events if isinstance(e, Topology) and e.host == "host1"}
    assert {e.stream for e in ticks} == streams | {"host:simulated/host1"}


def test_pairs_count_their_calls_apart():
    simulation = job(StopRank(rank=3, step=STEP))
    told = last_progress(simulation)[0, "pp0"]
    assert {(p.peer, p.direction) for p in told.pairs} == {(8, "send"), (8, "recv")}
    assert all(p.last_launched >= p.last_completed >= 2 * STEP - 1 for p in told.pairs)
    assert told.last_launched == -1
