"""What must hold of every job: simulated times follow from durations the way a schedule's do."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operations.job import OpFaults, OpJob
from simulator.operations.trace import generate
from streams.whatif import longest, optypes
from streams.whatif.analysis import analyse, build
from streams.whatif.durations import launch_delays
from streams.whatif.metrics import recorded_step_times_s, slowest_workers
from streams.whatif.reader import table_of
from tests.fakes import whatif_in_numpy
from tests.fakes.examples import examples

SLACK = 1e-9


@st.composite
def jobs(draw):
    schedule, n_chunks = draw(st.sampled_from([("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)]))
    n_stages = draw(st.integers(1 if n_chunks == 1 else 2, 4))
    groups = draw(st.integers(1, 3))
    slow = draw(st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), st.floats(1.0, 3.0), max_size=2))
    return OpJob(
        n_dp=draw(st.integers(1, 3)),
        n_stages=n_stages,
        n_chunks=n_chunks,
        n_micro_batches=groups * n_stages if n_chunks > 1 else groups,
        n_steps=draw(st.integers(1, 3)),
        schedule=schedule,
        jitter=draw(st.sampled_from([0.0, 0.05, 0.5])),
        overlaps_grads=draw(st.booleans()),
        records_no_ops=draw(st.booleans()) and n_chunks > 1,
        faults=OpFaults(slow_workers=slow),
        seed=draw(st.integers(0, 5)),
    )


def job_of(spec):
    spec = replace(
        spec,
        faults=replace(
            spec.faults,
            slow_workers={
                (dp % spec.n_dp, stage % spec.n_stages): factor
                for (dp, stage), factor in spec.faults.slow_workers.items()
            },
        ),
    )
    table, truth = generate(spec)
    return build(table_of(table, "generated"), Path("generated")), truth


@contextmanager
def without_c():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("together", "alone", "timeline"):
            patch.setattr(longest, name, getattr(whatif_in_numpy, name))
        yield


many = examples(8, deep=1_250)


@many
@given(jobs())
def test_the_simulated_original_is_within_1_percent_of_the_generated_one(spec):
    built, truth = job_of(spec)
    original = built.job.keeping(np.ones(len(built.job.ops), dtype=bool))
    assert recorded_step_times_s(built.trace) == pytest.approx(truth.step_s, rel=1e-9)
    assert original.end_s == pytest.approx(truth.step_s, rel=0.01)


@many
@given(jobs())
def test_no_worker_is_through_before_its_own_computes_are(spec):
    """The simulated step is never shorter than the critical path: here its simplest part, one worker's stream."""
    built, _ = job_of(spec)
    job = built.job
    ends_s = job.keeping(np.ones(len(job.ops), dtype=bool)).end_s
    for stage in range(job.ops.n_stages):
        own_s = job.own_s[(job.ops.stage == stage) & (job.ops.optype <= 1)].sum(axis=0)
        assert (ends_s >= own_s.max(axis=1) - SLACK).all()


@many
@given(jobs(), st.data())
def test_making_an_operation_faster_never_makes_a_step_longer(spec, data):
    built, _ = job_of(spec)
    job = built.job
    op = data.draw(st.integers(0, len(job.ops) - 1))
    faster_s = job.own_s.copy()
    faster_s[op] *= data.draw(st.floats(0, 1))
    assert (job.with_durations(faster_s).end_s <= job.with_durations(job.own_s).end_s + SLACK).all()


@many
@given(jobs())
def test_launches_with_their_delays_give_the_recorded_times_again(spec):
    """Dependencies, transfers and delays together are the trace, operation by operation."""
    built, _ = job_of(spec)
    job, trace = built.job, built.trace
    everywhere = np.ones((len(job.ops), job.n_dp), dtype=bool)
    starts_s, ends_s = job.timeline(job.own_s, launch_delays(trace, built.model), everywhere)
    assert np.allclose(starts_s, trace.starts_s, atol=1e-9)
    assert np.allclose(ends_s, trace.ends_s, atol=1e-9)


@many
@given(jobs())
def test_step_ends_are_those_of_the_timeline(spec):
    job = job_of(spec)[0].job
    _, ends_s = job.timeline(job.own_s)
    simulated = job.keeping(np.ones(len(job.ops), dtype=bool))
    assert np.allclose(simulated.end_s, ends_s.max(axis=(0, 2)), atol=1e-12)


@many
@given(jobs(), st.integers(0, 2**32 - 1))
def test_any_choice_of_stragglers_ends_when_the_timeline_of_its_durations_does(spec, seed):
    """The contracted graph with its slots against the plain one, in which every operation has its own times."""
    job = job_of(spec)[0].job
    rng = np.random.default_rng(seed)
    is_ideal = rng.random((len(job.ops), job.n_dp)) < rng.choice([0.1, 0.5, 0.9])
    own_s = np.where(is_ideal[:, None, :], job.ideal_s[:, None, None], job.own_s)
    _, ends_s = job.timeline(own_s)
    simulated = job.with_ideal(is_ideal)
    assert np.allclose(simulated.end_s, ends_s.max(axis=(0, 2)), atol=1e-12)
    optimizers_s = ends_s[job.ops.optype == optypes.OPTIMIZER]
    assert np.allclose(simulated.optimizer_end_s, optimizers_s.max(axis=(0, 2)), atol=1e-12)


@many
@given(jobs(), st.data())
def test_a_dp_rank_alone_is_the_job_with_all_others_ideal(spec, data):
    job = job_of(spec)[0].job
    is_kept = job.ops.stage == data.draw(st.integers(0, job.ops.n_stages - 1))
    alone = job.keeping_each_dp_rank(is_kept)
    for dp in range(job.n_dp):
        is_ideal = np.ones((len(job.ops), job.n_dp), dtype=bool)
        is_ideal[is_kept, dp] = False
        assert np.allclose(alone.end_s[:, dp], job.with_ideal(is_ideal).end_s, atol=1e-12)


@many
@given(jobs(), st.sampled_from([np.float32, np.float64]), st.integers(0, 2**32 - 1))
def test_c_and_numpy_give_the_same_bits(spec, kind, seed):
    job = job_of(spec)[0].job
    job = replace(job, own_s=job.own_s.astype(kind))
    rng = np.random.default_rng(seed)
    is_ideal = rng.random((len(job.ops), job.n_dp)) < rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    delays_s = rng.random(job.own_s.shape)

    def ends():
        kept, some = job.keeping(~is_ideal[:, 0]), job.with_ideal(is_ideal)
        alone = job.keeping_each_dp_rank(is_ideal[:, 0])
        found = [array.tobytes() for one in (kept, some, alone) for array in (one.end_s, one.optimizer_end_s)]
        return [*found, *(one.tobytes() for one in job.timeline(job.own_s, delays_s.astype(kind), is_ideal))]

    in_c = ends()
    with without_c():
        assert ends() == in_c


def test_lanes_do_not_depend_on_how_they_are_worked_on_together():
    """In C they are worked on in blocks of 256."""
    table, _ = generate(OpJob(n_dp=3, n_steps=200, jitter=0.3))
    job = build(table_of(table, "t"), Path("t")).job
    together, alone = (job.keeping(np.ones(len(job.ops), bool)), job.keeping_each_dp_rank(np.ones(len(job.ops), bool)))
    with without_c():
        assert job.keeping(np.ones(len(job.ops), bool)).end_s.tolist() == together.end_s.tolist()
        assert job.keeping_each_dp_rank(np.ones(len(job.ops), bool)).end_s.tolist() == alone.end_s.tolist()


def test_a_job_without_variation_has_no_stragglers():
    table, _ = generate(OpJob(jitter=0.0, gap_s=0.0))
    found = analyse(build(table_of(table, "t"), Path("t")))
    assert found.slowdown == pytest.approx(1.0, abs=1e-3)
    assert found.patterns == ()


def test_an_ideal_job_is_not_slowed_by_which_steps_were_sampled():
    table, _ = generate(OpJob(n_steps=4, jitter=0.1))
    found = analyse(build(table_of(table, "t"), Path("t")))
    assert np.ptp(found.ideal_s) == 0


def test_the_slowest_are_three_percent_rounded_up_and_of_equals_the_lowest_rank():
    ranks = np.arange(40).reshape(10, 4)[:, ::-1]  # (n_dp, n_stages), the last stage has the lowest rank
    cells = np.ones((4, 10))
    assert np.argwhere(slowest_workers(cells, ranks)).tolist() == [[2, 0], [3, 0]]
    cells[1, 7] = 1.5
    assert np.argwhere(slowest_workers(cells, ranks)).tolist() == [[1, 7], [3, 0]]


def test_launch_delays_are_told_apart_by_who_has_them():
    """A DP rank that waits for its data: its first operations make recorded steps longer than simulated ones."""
    table, truth = generate(OpJob(n_dp=3, faults=OpFaults(late_data_s={1: 0.4})))
    found = analyse(build(table_of(table, "late"), Path("late")))
    assert found.slowdown < 1.02
    assert found.launch_slowdown == pytest.approx(truth.step_s.mean() / truth.healthy_step_s.mean(), rel=0.01)
    assert not found.is_trusted
    for blame, guilty in (
        (found.launch_by_dp_rank, "1"),
        (found.launch_by_stage, "0"),
        (found.launch_by_optype, "first-op"),
    ):
        by_name = dict(zip(blame.names, blame.slowdown, strict=True))
        assert by_name.pop(guilty) == pytest.approx(found.launch_slowdown, rel=0.01)
        assert max(by_name.values()) < 1.01
