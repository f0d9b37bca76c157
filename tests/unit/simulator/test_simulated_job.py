"""The truth of a simulated job: dependencies carry delay to victims, and the culprit alone does not wait."""

import numpy as np
import pytest

from pacehound.model.codec import encode
from pacehound.model.topology import Layout
from simulator.faults import EveryNth, ExitRank, Pause, SlowCompute, SlowLink, Spike, StopRank
from simulator.job import JobSpec, simulate
from simulator.program import build, stage_order
from simulator.source import DEVICE_TIMES, LAUNCH_ONLY

SMALL = Layout(tp=2, dp=2, pp=2)


def waiting_s(simulation, step):
    """Per rank, the time spent in tensor and data parallel calls of one step before its last peer arrived."""
    timeline, layout = simulation.timeline, simulation.spec.layout
    waited = np.zeros(layout.world_size).reshape(layout.pp, layout.dp, layout.tp)
    for stage, program in enumerate(timeline.programs):
        for index, slot in enumerate(program.slots):
            if slot.kind in ("tp", "dp"):
                arrival = timeline.arrival_s[stage][step, index]
                waited[stage] += arrival.max(axis=1 if slot.kind == "tp" else 0, keepdims=True) - arrival
    return waited.ravel()


def test_the_same_spec_gives_the_same_events():
    spec = JobSpec(iterations=10, dropped_fraction=0.1, seed=7)
    # Compared as bytes: the unknown rates of a row are NaN, which equals nothing.
    first, second = ([encode(event) for event in simulate(spec).events()] for _ in range(2))
    assert len(first) > 30
    assert first == second


def test_another_seed_gives_other_times_and_the_same_amount_of_work():
    one, other = (simulate(JobSpec(iterations=5, seed=seed)) for seed in (0, 1))
    assert not np.array_equal(one.iteration_times_s, other.iteration_times_s)
    assert one.iteration_times_s.mean() == pytest.approx(other.iteration_times_s.mean(), rel=0.02)


@pytest.mark.parametrize("layout", [Layout(), Layout(dp=4), Layout(tp=4), Layout(pp=4), Layout(tp=2, dp=3, pp=4)])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_any_layout_runs_to_its_end(layout, is_sharded):
    simulation = simulate(JobSpec(layout=layout, iterations=4, is_sharded=is_sharded))
    assert simulation.iteration_times_s.shape == (4,)
    assert simulation.truth.findings == ()
    assert simulation.truth.is_clean
    for arrival, end in zip(simulation.timeline.arrival_s, simulation.timeline.end_s, strict=True):
        assert (end > arrival).all()


def test_no_collective_ends_before_its_last_rank_arrives():
    timeline = simulate(JobSpec(iterations=5, spike_probability=0.1, spike_s=0.05)).timeline
    for stage, program in enumerate(timeline.programs):
        for index, slot in enumerate(program.slots):
            if slot.kind in ("tp", "dp"):
                axis = 2 if slot.kind == "tp" else 1
                arrival, end = timeline.arrival_s[stage][:, index], timeline.end_s[stage][:, index]
                assert (end > arrival.max(axis=axis, keepdims=True)).all()


def test_a_receive_ends_when_its_send_does_and_after_both_were_ready():
    timeline = simulate(JobSpec(layout=SMALL, iterations=3)).timeline
    sends = [i for i, s in enumerate(timeline.programs[0].slots) if s.op == "send"]
    receives = [i for i, s in enumerate(timeline.programs[1].slots) if s.op == "recv"]
    assert len(sends) == len(receives) == 8
    assert np.array_equal(timeline.end_s[0][:, sends], timeline.end_s[1][:, receives])
    ready = np.maximum(timeline.arrival_s[0][:, sends], timeline.arrival_s[1][:, receives])
    assert (timeline.end_s[0][:, sends] > ready).all()


def test_1f1b_keeps_at_most_the_warm_up_in_flight():
    for stage in range(4):
        in_flight = highest = 0
        order = stage_order(stage, 4, 8)
        for phase, _ in order:
            in_flight += 1 if phase == "forward" else -1
            highest = max(highest, in_flight)
        assert (highest, in_flight, len(order)) == (4 - stage, 0, 16)


def test_the_order_of_steps_respects_every_send():
    _, steps = build(Layout(tp=2, pp=4), JobSpec().work)
    seen = set()
    for step in steps:
        if step.peer_slot >= 0:
            assert (step.peer, step.peer_slot) in seen
        seen.add((step.stage, step.index))


def test_a_slow_rank_makes_every_iteration_slow_and_is_the_one_that_never_waits():
    fault = SlowCompute(ranks=(2,), factor=1.5, from_step=20, to_step=40)
    simulation = simulate(JobSpec(layout=SMALL, iterations=60, faults=(fault,)))
    times = simulation.iteration_times_s
    (found,) = simulation.truth.findings
    assert (found.kind, found.cause, found.culprits, found.pages) == ("slow", "S1", (2,), True)
    assert found.victims == (0, 1, 3, 4, 5, 6, 7)
    assert (found.onset.step, found.relief.step) == (20, 40)
    assert found.magnitude == pytest.approx(times[20:40].mean() / np.r_[times[:20], times[40:]].mean() - 1)
    assert found.magnitude > 0.10
    assert found.excess_s == pytest.approx((times[20:40] - np.r_[times[:20], times[40:]].mean()).sum())
    waited = waiting_s(simulation, 30)
    assert waited[2] < 0.1 * np.delete(waited, 2)[:3].max()
    assert waited[3] > 10 * waiting_s(simulation, 10)[3]


def test_a_slow_link_slows_the_transfers_of_the_groups_that_use_it_alone():
    fault = SlowLink(link=(2, 3), bandwidth_factor=0.05, from_step=10)
    simulation = simulate(JobSpec(layout=SMALL, iterations=20, faults=(fault,)))
    (found,) = simulation.truth.findings
    assert (found.kind, found.cause, found.culprits, found.links) == ("slow", "S2", (), ((2, 3),))
    timeline = simulation.timeline
    index = [i for i, s in enumerate(timeline.programs[0].slots) if s.kind == "tp"]
    end = timeline.end_s[0][:, index].max(axis=3)
    transfer = end - timeline.arrival_s[0][:, index].max(axis=3)
    grew = transfer[10:].mean(axis=(0, 1)) / transfer[:10].mean(axis=(0, 1))
    assert grew[1] > 10  # ranks 2 and 3
    assert grew[0] == pytest.approx(1.0, abs=0.05)  # ranks 0 and 1


@pytest.mark.parametrize("fault", [StopRank(rank=3, step=5), ExitRank(rank=3, step=5, signal=9)])
def test_after_a_rank_is_gone_nobody_finishes_the_iteration(fault):
    simulation = simulate(JobSpec(layout=SMALL, iterations=20, faults=(fault,)))
    assert len(simulation.iteration_times_s) == 5
    assert simulation.observed.was_killed
    (found,) = simulation.truth.findings
    assert (found.culprits, found.relief, found.magnitude) == ((3,), None, None)
    assert (found.kind, found.cause) == (("hang", "H1") if isinstance(fault, StopRank) else ("exit", None))
    assert found.onset.step == 5


def test_a_stopped_rank_that_resumes_costs_the_job_that_long():
    fault = StopRank(rank=3, step=5, resume_after_s=4.0)
    simulation = simulate(JobSpec(layout=SMALL, iterations=20, faults=(fault,)))
    (found,) = simulation.truth.findings
    assert len(simulation.iteration_times_s) == 20
    assert simulation.iteration_times_s[5] > 4.0
    assert found.excess_s == pytest.approx(4.0, abs=0.2)
    assert (found.relief.time_ns - found.onset.time_ns) / 1e9 == pytest.approx(4.0)


def test_a_dead_link_lets_everybody_in_and_nobody_out():
    fault = SlowLink(link=(0, 1), bandwidth_factor=0.0, from_step=5)
    simulation = simulate(JobSpec(layout=SMALL, iterations=20, faults=(fault,)))
    (found,) = simulation.truth.findings
    assert (found.kind, found.cause, found.culprits, found.links) == ("hang", "H3", (), ((0, 1),))
    first_tp = next(i for i, s in enumerate(simulation.timeline.programs[0].slots) if s.kind == "tp")
    assert np.isfinite(simulation.timeline.arrival_s[0][-1, first_tp, 0]).all()
    assert np.isinf(simulation.timeline.end_s[0][-1, first_tp, 0]).all()


def test_pauses_and_what_recurs_wake_nobody():
    faults = (
        Pause(kind="checkpoint", every_steps=10, duration_s=1.0),
        EveryNth(every_steps=7, extra_s=0.2),
        Spike(ranks=(1,), step=3, extra_s=0.5),
    )
    simulation = simulate(JobSpec(iterations=40, faults=faults))
    assert simulation.truth.is_clean
    assert [f.kind for f in simulation.truth.findings] == ["intermittent", "planned"]
    planned = simulation.truth.findings[1]
    assert planned.onset.step == 10
    assert simulation.iteration_times_s[[10, 30]].min() > 1.0
    assert simulation.iteration_times_s[3] > simulation.iteration_times_s[4] + 0.4


def test_a_host_that_runs_ahead_launches_early_but_never_further_than_it_may():
    for source in (DEVICE_TIMES, LAUNCH_ONLY):
        simulation = simulate(JobSpec(layout=SMALL, iterations=5, source=source))
        for launch, start, end in zip(
            simulation.observed.launch_s, simulation.timeline.arrival_s, simulation.timeline.end_s, strict=True
        ):
            k = source.run_ahead_calls
            assert (launch <= start).all()
            assert (np.diff(launch, axis=1) >= 0).all()
            assert np.median(start - launch) > 0.005
            assert (launch[:, k:] >= end[:, :-k]).all()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: JobSpec(iterations=0), "iterations=0"),
        (lambda: JobSpec(dropped_fraction=1.0), "dropped_fraction is 1.0"),
        (lambda: JobSpec(start_unix_ns=5), "not a whole second"),
        (lambda: JobSpec(faults=(SlowCompute(ranks=(8,), factor=2, from_step=1),)), "outside the world of 8"),
        (lambda: JobSpec(faults=(StopRank(rank=0, step=100),)), "step 100; the job has steps 0..99"),
        (lambda: JobSpec(faults=(StopRank(rank=0, step=1), ExitRank(rank=1, step=2, signal=9))), "ends once"),
        (lambda: JobSpec(faults=(SlowLink(link=(0, 7), bandwidth_factor=0.5, from_step=1),)), "no communicator"),
        (lambda: SlowCompute(ranks=(0,), factor=1.0, from_step=1), "more than 1"),
        (lambda: SlowLink(link=(0, 1), bandwidth_factor=1.0, from_step=1), r"in \[0, 1\)"),
        (lambda: SlowLink(link=(0, 1), bandwidth_factor=0.0, from_step=1, to_step=2), "is down"),
        (lambda: ExitRank(rank=0, step=1), "exactly one"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()
