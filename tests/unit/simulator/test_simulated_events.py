"""What the simulated agents publish keeps the promises of a real agent and shows no more than its source sees."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from pacehound.model.calls import CallBatch, Sees
from pacehound.model.codec import decode, encode
from pacehound.model.events import HostSample, Markers, Progress, Topology
from pacehound.model.topology import Layout
from simulator.faults import ExitRank, Pause, SlowLink, StopRank
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO, COUNTS_ONLY, DEVICE_TIMES, FLIGHT_RECORDER, LAUNCH_ONLY

LAYOUT = Layout(tp=2, dp=2, pp=2)
SOURCES = [C10D_GLOO, DEVICE_TIMES, LAUNCH_ONLY, FLIGHT_RECORDER, COUNTS_ONLY]
HANG = StopRank(rank=3, step=10)


def stream(**given):
    given = {"layout": LAYOUT, "iterations": 20, "ranks_per_host": 4, "hang_s": 4.0, **given}
    return list(simulate(JobSpec(**given)).events())


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def column(events, name):
    return np.concatenate([batch.integers(name) for batch in of_kind(events, CallBatch)])


def names(events):
    return {topology.communicator: topology.name for topology in of_kind(events, Topology)}


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.name)
def test_every_event_survives_the_codec(source):
    for event in stream(source=source, faults=(HANG,), dropped_fraction=0.05):
        (read,) = decode(encode(event))
        assert encode(read) == encode(event)
        if not isinstance(event, CallBatch):  # its unknown rates are NaN, which equals nothing
            assert read == event


@pytest.mark.parametrize("source", [DEVICE_TIMES, LAUNCH_ONLY, COUNTS_ONLY, FLIGHT_RECORDER], ids=lambda s: s.name)
def test_another_source_sees_what_it_would_have_seen_of_the_same_job(source):
    spec = JobSpec(iterations=20, faults=(StopRank(rank=3, step=10, resume_after_s=4),), clock_offsets_ms=(0, 50))
    theirs = simulate(replace(spec, source=source))
    ours = simulate(spec).seen_by(source)
    assert [encode(event) for event in ours.events()] == [encode(event) for event in theirs.events()]
    assert ours.truth == theirs.truth


def test_topology_comes_first_and_announces_everything():
    events = stream()
    topologies = of_kind(events, Topology)
    assert events[: len(topologies)] == topologies
    assert [t.name for t in topologies if t.host == "host0"] == [
        "world",
        "tp0",
        "tp1",
        "dp0",
        "dp1",
        *map("pp{}".format, range(4)),
    ]
    assert [t.communicator for t in topologies if t.is_world and t.host == "host0"] == [topologies[0].communicator]
    for progress in of_kind(events, Progress):
        expected = {t.communicator for t in topologies if t.host == progress.host}
        is_world = progress.communicator == topologies[0].communicator
        assert set(progress.announced) == (expected if is_world else set())


@pytest.mark.parametrize("offsets", [(), (3.0, -250.0)])
@pytest.mark.parametrize("faults", [(), (HANG,), (Pause(kind="checkpoint", every_steps=5, duration_s=1.5),)])
def test_what_ended_by_the_time_of_a_progress_was_sent_before_it(offsets, faults):
    promised = defaultdict(int)
    for event in stream(clock_offsets_ms=offsets, faults=faults):
        if isinstance(event, Progress):
            assert event.time_ns > promised[event.host, event.communicator]
            promised[event.host, event.communicator] = event.time_ns
        elif isinstance(event, CallBatch):
            end_ns = event.integers("end_ns")
            assert (end_ns[end_ns > 0] > promised[event.host, event.communicator]).all()
        elif isinstance(event, Markers):
            assert min(event.times_ns) > promised[event.host, event.communicator]


def test_each_rank_makes_each_call_once_and_numbers_have_no_gap():
    events = stream()
    rows = set()
    numbers = defaultdict(list)
    for batch in of_kind(events, CallBatch):
        for rank, seq, peer, direction in zip(
            *(batch.integers(name).tolist() for name in ("rank", "seq", "peer")), batch.codes("direction"), strict=True
        ):
            assert (batch.communicator, rank, seq, peer, direction) not in rows
            rows.add((batch.communicator, rank, seq, peer, direction))
            numbers[batch.communicator, rank, peer, direction].append(seq)
    assert all(sorted(found) == list(range(len(found))) for found in numbers.values())
    # Per rank and iteration, of 8 micro-batches: 32 tensor-parallel, 16 p2p, 4 gradient buckets, 1 world.
    assert len(rows) == 8 * 20 * (32 + 16 + 4 + 1)


def test_both_sides_of_a_send_carry_the_same_number():
    sides = {"send": set(), "recv": set()}
    for batch in of_kind(stream(), CallBatch):
        for row in batch.rows.select(["rank", "seq", "peer", "direction", "op", "end_ns"]).to_pylist():
            if row["direction"] == "send":
                sides["send"].add((row["rank"], row["peer"], row["seq"], row["end_ns"]))
            elif row["direction"] == "recv":
                sides["recv"].add((row["peer"], row["rank"], row["seq"], row["end_ns"]))
    assert sides["send"] == sides["recv"]
    assert len(sides["send"]) == 20 * 8 * 8


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.name)
def test_rows_hold_the_instants_that_the_source_sees_and_no_other(source):
    events = stream(source=source)
    batches = of_kind(events, CallBatch)
    if source.rows != "all":
        assert batches == []  # nothing was incomplete
        return
    assert {batch.sees for batch in batches} == {source.sees}
    for instant, name in ((Sees.LAUNCH, "launch_ns"), (Sees.START, "start_ns"), (Sees.END, "end_ns")):
        times_ns = column(events, name)
        assert (times_ns > 0).all() if instant in source.sees else (times_ns == 0).all()


def test_on_gloo_a_call_starts_when_it_is_launched_and_on_a_device_later():
    gloo, device = stream(source=C10D_GLOO), stream(source=DEVICE_TIMES)
    assert (column(gloo, "launch_ns") == column(gloo, "start_ns"))[column(gloo, "peer") < 0].all()
    assert np.median(column(device, "start_ns") - column(device, "launch_ns")) > 5_000_000


def test_in_a_hang_time_goes_on_and_the_open_calls_travel_in_progress():
    events = stream(faults=(HANG,))
    of_tp1 = [p for p in of_kind(events, Progress) if names(events)[p.communicator] == "tp1"]
    assert [p.closed for p in of_tp1] == [False] * (len(of_tp1) - 1) + [True]
    hanging = of_tp1[-4:-1]
    for progress in hanging:
        waiting, stopped = progress.ranks
        assert (waiting.rank, stopped.rank, stopped.open) == (2, 3, ())
        (call,) = waiting.open
        assert call.op == "all_reduce"
        assert call.seq == waiting.last_launched == waiting.last_completed + 1 == stopped.last_launched + 1
    assert {p.ranks for p in hanging} == {hanging[0].ranks}
    samples = [s for s in of_kind(events, HostSample) if s.host == "host0"]
    assert [s.processes[3].state for s in samples[-5:]] == ["stopped"] * 3 + ["exited"] * 2
    assert (samples[-1].closed, samples[-1].closed_why) == (True, "job killed")
    assert samples[-1].processes[0].signal == 9


def test_open_calls_are_given_up_as_rows_without_an_end_when_the_job_is_killed():
    events = stream(faults=(HANG,))
    given_up = [
        row
        for batch in of_kind(events, CallBatch)
        for row in batch.rows.select(["rank", "seq", "op", "launch_ns", "end_ns"]).to_pylist()
        if row["end_ns"] == 0
    ]
    last_open = sum(
        len(rank.open) for p in of_kind(events, Progress)[-(8 + 10 + 8) * 2 :] if not p.closed for rank in p.ranks
    )
    assert given_up
    assert len(given_up) <= last_open
    assert all(row["launch_ns"] > 0 and row["rank"] != 3 for row in given_up)


def test_a_rank_that_exits_says_how_at_once():
    events = stream(faults=(ExitRank(rank=6, step=10, exit_code=3),))
    samples = [s for s in of_kind(events, HostSample) if s.host == "host1"]
    first = next(s for s in samples if s.processes[2].state == "exited")
    assert (first.processes[2].rank, first.processes[2].exit_code, first.time_ns) == (6, 3, first.processes[2].since_ns)
    assert first.time_ns % 1_000_000_000
    assert {p.state for p in first.processes if p.rank != 6} == {"running"}


def test_innocent_peers_leave_after_the_rank_that_left_first():
    fault = ExitRank(rank=6, step=10, signal=11, peers_fail_after_s=1.5)
    events = stream(faults=(fault,))
    last = {p.rank: p for sample in of_kind(events, HostSample) for p in sample.processes}
    assert {rank: (p.exit_code, p.signal) for rank, p in last.items()} == {
        rank: (None, 11) if rank == 6 else (1, None) for rank in range(8)
    }
    assert min(last.values(), key=lambda p: p.since_ns).rank == 6
    assert min(p.since_ns for p in last.values() if p.rank != 6) == last[6].since_ns + 1_500_000_000
    for progress in of_kind(events, Progress):
        for rank in progress.ranks:
            assert not rank.open or last[rank.rank].since_ns > progress.time_ns
    assert of_kind(events, HostSample)[-1].closed_why == "job killed"


def test_a_stopped_rank_that_resumes_is_seen_in_both_states_and_the_job_ends_well():
    events = stream(faults=(StopRank(rank=3, step=10, resume_after_s=3.0),))
    states = [s.processes[3].state for s in of_kind(events, HostSample) if s.host == "host0"]
    assert [s for i, s in enumerate(states) if i == 0 or s != states[i - 1]] == [
        "running",
        "stopped",
        "running",
        "exited",
    ]
    assert of_kind(events, HostSample)[-1].closed_why == "job ended"
    assert of_kind(events, HostSample)[-1].processes[0].exit_code == 0


def test_a_dead_link_is_symmetric_with_launches_alone():
    """Counters that know launches only look the same for every member: the hang is found by joining completions."""
    dead = SlowLink(link=(0, 1), bandwidth_factor=0.0, from_step=10)
    events = stream(source=COUNTS_ONLY, faults=(dead,))
    tp0 = [p for p in of_kind(events, Progress) if names(events)[p.communicator] == "tp0"][-2]
    assert len({rank.last_launched for rank in tp0.ranks}) == 1
    assert {rank.last_completed for rank in tp0.ranks} == {-1}


def test_a_flight_recorder_knows_incomplete_calls_of_living_ranks_at_the_end_alone():
    events = stream(source=FLIGHT_RECORDER, faults=(ExitRank(rank=3, step=10, signal=11),))
    batches = of_kind(events, CallBatch)
    last_ns = max(p.time_ns for p in of_kind(events, Progress))
    assert batches
    assert 3 not in column(events, "rank")
    position = {id(event): i for i, event in enumerate(events)}
    seconds = [i for i, e in enumerate(events) if isinstance(e, Progress) and e.time_ns < last_ns]
    assert min(position[id(batch)] for batch in batches) > max(seconds)


def test_dropped_rows_are_counted_and_missing():
    full, lossy = stream(), stream(dropped_fraction=0.2)
    n_full, n_lossy = (sum(map(len, of_kind(events, CallBatch))) for events in (full, lossy))
    n_dropped = sum(p.dropped_total for p in of_kind(lossy, Progress) if p.closed)
    assert n_full - n_lossy == n_dropped > 0.15 * n_full
    assert sum(batch.dropped for batch in of_kind(lossy, CallBatch)) == n_dropped
    counters = [[p.ranks for p in of_kind(events, Progress)] for events in (full, lossy)]
    assert counters[0] == counters[1]


def test_a_clock_offset_moves_every_time_of_its_host_and_no_other():
    def instants(events):
        found = {}
        for batch in of_kind(events, CallBatch):
            for row in batch.rows.to_pylist():
                key = tuple(row[name] for name in ("communicator", "rank", "seq", "peer", "direction"))
                found[key] = np.array([row["launch_ns"], row["start_ns"], row["end_ns"]])
        return found

    plain, shifted = instants(stream(iterations=4)), instants(stream(iterations=4, clock_offsets_ms=(0.0, 40.0)))
    assert plain.keys() == shifted.keys()
    moved = {key[1]: set() for key in plain}
    for key, before in plain.items():
        moved[key[1]] |= set((shifted[key] - before).tolist())
    assert moved == {rank: {0} if rank < 4 else {40_000_000} for rank in range(8)}


def test_markers_number_the_steps_of_every_rank_and_frame_a_pause():
    events = stream(iterations=10, faults=(Pause(kind="evaluation", every_steps=5, duration_s=0.5),))
    rows = [row for m in of_kind(events, Markers) for row in zip(m.ranks, m.names, m.steps, m.times_ns, strict=True)]
    of_rank_5 = [row[1:3] for row in sorted(rows, key=lambda row: row[3]) if row[0] == 5]
    steps = [("optimizer_step", step) for step in range(10)]
    pause = [[("evaluation_begin", step), ("evaluation_end", step)] for step in (5, 10)]
    assert of_rank_5 == steps[:5] + pause[0] + steps[5:] + pause[1]
