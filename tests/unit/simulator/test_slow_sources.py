"""Slowness as sources see it: rates, overlap, experts, readings of the hardware."""

import numpy as np
import pytest

from pacehound.model.calls import CallBatch
from pacehound.model.events import HostVitals, Topology
from pacehound.model.topology import Layout
from simulator.faults import DeadDevice, HiddenLateness, RandomPauses, SlowCompute, SlowLink
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO, DEVICE_TIMES

ONSET = 8


def job(*faults, **given):
    spec = {"layout": Layout(dp=8), "iterations": 2 * ONSET, "micro_batches": 2, "tp_calls": 1, **given}
    return simulate(JobSpec(faults=faults, **{"source": DEVICE_TIMES, **spec}))


def mean_rates(simulation, name):
    """By rank, the mean rates of sending and receiving on a communicator while the fault lasts."""
    found, wanted = {}, set()
    for event in simulation.events():
        if isinstance(event, Topology) and event.name == name:
            wanted.add(event.communicator)
        elif isinstance(event, CallBatch) and event.communicator in wanted:
            per_step = 4 if name.startswith("dp") else 1
            for row in event.rows.select(["rank", "seq", "send_rate", "recv_rate"]).to_pylist():
                if row["seq"] >= ONSET * per_step:
                    found.setdefault(row["rank"], []).append((row["send_rate"], row["recv_rate"]))
    return {rank: np.mean(values, axis=0) for rank, values in found.items()}


def test_behind_a_slow_edge_of_a_ring_all_receive_slowly_and_one_sends_slowly():
    rates = mean_rates(job(SlowLink(link=(2, 3), bandwidth_factor=0.2, from_step=ONSET), ranks_per_host=1), "dp0")
    sent, received = (np.array([rates[rank][side] for rank in range(8)]) for side in (0, 1))
    assert np.flatnonzero(sent < 0.5 * np.median(sent)).tolist() == [2]
    assert received == pytest.approx(np.full(8, 0.2 * 25e9), rel=0.1)


def test_over_nvlink_nobody_sees_a_rate():
    rates = mean_rates(job(layout=Layout(dp=16)), "dp0")
    # Two rings, which leave a host at its last rank, or at its first.
    assert {rank for rank, (sent, _) in rates.items() if not np.isnan(sent)} == {0, 7, 8, 15}
    assert {rank for rank, (_, received) in rates.items() if not np.isnan(received)} == {0, 1, 8, 9}


def test_gloo_has_no_rates():
    rates = mean_rates(job(source=C10D_GLOO, ranks_per_host=1), "dp0")
    assert np.isnan(list(rates.values())).all()


def test_in_a_tree_rates_are_alike_among_ranks_with_as_many_neighbours():
    slow = SlowLink(link=(5, 6), bandwidth_factor=0.2, from_step=ONSET)
    simulation = job(slow, layout=Layout(dp=15), ranks_per_host=1, algorithm="tree")
    sent = {rank: rates[0] for rank, rates in mean_rates(simulation, "dp0").items()}
    # Inside of one tree with three neighbours, a leaf of the other with one more.
    assert sent[6] < 0.7 * sent[8]
    assert sent[5] < 0.7 * sent[8]
    assert sent[8] == pytest.approx(sent[12], rel=0.1)
    assert sent[8] < 0.6 * sent[1]  # the inner ranks share their card, and are no slower for that


def test_a_slow_link_slows_the_job_of_a_tree_too():
    slow = SlowLink(link=(6, 4), bandwidth_factor=0.2, from_step=ONSET)
    times = job(slow, layout=Layout(dp=15), ranks_per_host=1, algorithm="tree").iteration_times_s
    assert times[ONSET:].mean() > 1.1 * times[:ONSET].mean()


def test_gradients_that_overlap_cost_less_and_end_before_the_step_does():
    plain, overlapping = job(tp_calls=4), job(tp_calls=4, overlaps=True)
    assert overlapping.iteration_times_s.mean() < plain.iteration_times_s.mean() - 0.001
    timeline = overlapping.timeline
    slots = timeline.programs[0].slots
    buckets = [i for i, slot in enumerate(slots) if slot.kind == "dp"]
    assert len(buckets) == 4
    arrival, end = timeline.arrival_s[0][:, buckets], timeline.end_s[0][:, buckets]
    assert (np.diff(end, axis=1) > 0).all()
    assert (end[:, 0] < arrival[:, -1]).all()  # the first bucket is done before the last one is there
    assert (timeline.arrival_s[0][:, -1] >= end[:, -1]).all()


def test_lateness_that_is_hidden_costs_nothing():
    late = HiddenLateness(rank=3, share=0.6, from_step=ONSET)
    simulation = job(late, tp_calls=4, overlaps=True, seed=3)
    times = simulation.iteration_times_s
    assert times[ONSET:].mean() == pytest.approx(times[:ONSET].mean(), rel=0.02)
    assert simulation.truth.findings == ()
    slots = simulation.timeline.programs[0].slots
    first = next(i for i, slot in enumerate(slots) if slot.kind == "dp")
    arrival = simulation.timeline.arrival_s[0][ONSET:, first, :, 0]
    assert (arrival.argmax(axis=1) == 3).all()


def test_hot_experts_wander_and_bring_sizes_that_vary():
    simulation = job(layout=Layout(dp=8), ep=4, iterations=60)
    load = simulation.timeline.load
    assert load.reshape(60, 2, 4).mean(axis=2) == pytest.approx(1.0)
    hottest = load[:, :4].argmax(axis=1)
    assert len(set(hottest.tolist())) == 4
    counts = set()
    for event in simulation.events():
        if isinstance(event, CallBatch):
            is_tokens = event.codes("op") == 6
            counts |= set(event.integers("count")[is_tokens].tolist())
    assert len(counts) > 100


def test_a_slow_rank_is_slow_beside_hot_experts_too():
    slow = SlowCompute(ranks=(5,), factor=2.0, from_step=ONSET)
    simulation = job(slow, ep=4)
    times = simulation.iteration_times_s
    assert times[ONSET:].mean() > 1.3 * times[:ONSET].mean()
    (found,) = simulation.truth.findings
    assert found.culprits == (5,)


def test_random_pauses_make_the_job_slow_and_nobody_slower_than_others():
    simulation = job(RandomPauses(probability=0.2, extra_s=0.05, from_step=ONSET), iterations=80)
    times = simulation.iteration_times_s
    assert times[ONSET:].mean() > 1.3 * times[:ONSET].mean()
    (found,) = simulation.truth.findings
    assert (found.kind, found.cause, found.culprits) == ("slow", None, ())


def test_a_hot_gpu_and_a_dead_one_say_so_where_somebody_reads_them():
    slow = SlowCompute(ranks=(2,), factor=1.5, from_step=60)
    readings = [
        gpu
        for event in job(slow, iterations=160, has_vitals=True).events()
        if isinstance(event, HostVitals)
        for gpu in event.gpus
    ]
    assert {gpu.ranks for gpu in readings if gpu.throttle_reasons} == {(2,)}
    assert any(gpu.ranks == (2,) and not gpu.throttle_reasons for gpu in readings)
    dead = job(DeadDevice(rank=6, step=ONSET, kind="dp"), has_vitals=True)
    readings = [gpu for event in dead.events() if isinstance(event, HostVitals) for gpu in event.gpus]
    assert {gpu.ranks for gpu in readings if gpu.xid} == {(6,)}
