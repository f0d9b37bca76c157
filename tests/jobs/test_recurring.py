"""Iterations from the calls of one rank: every layout of the simulator, and what real clocks and losses do."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import OP_CODE
from pacehound.model.events import IterationSample
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO, COUNTS_ONLY, DEVICE_TIMES, FLIGHT_RECORDER, LAUNCH_ONLY
from streams.pipeline import Pipeline
from streams.rounds.recurring import MAX_WAITING, RecurringIterations
from tests.fakes.events import without_steps
from tests.fakes.examples import examples
from tests.fakes.hand_made_rounds import rounds_at

MS = 10**6
END = 2**62


def samples_of(simulation, monkeypatch):
    """Iterations, and the follower of the calls at the end."""
    monkeypatch.setattr("streams.job.iterations.UNMARKED_PATIENCE_NS", 0)
    pipeline, samples, recurring = Pipeline(Settings()), [], None
    for event in without_steps(simulation.events()):
        samples += [out for out in pipeline.on_event(event) if isinstance(out, IterationSample)]
        attempts = (attempt for job in pipeline._jobs.values() for attempt in job.attempts.values())
        recurring = next((attempt._iterations._recurring for attempt in attempts), recurring)
    return samples, recurring


SOURCES = (C10D_GLOO, DEVICE_TIMES, LAUNCH_ONLY)
LAYOUTS = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (4, 1, 2), (1, 2, 2), (2, 2, 2), (1, 1, 4), (1, 4, 1)]


JOBS = [
    *((layout, (4, 1)[number % 2], False) for number, layout in enumerate(LAYOUTS)),
    *(pytest.param(layout, n, True, marks=pytest.mark.prove) for layout in LAYOUTS for n in (1, 4)),
]
"""Every layout, with one micro-batch or four and seen by one source, in turns; both, by all sources, are a proof."""


@pytest.mark.parametrize(("layout", "micro_batches", "all_sources"), JOBS)
def test_every_layout_gives_its_iterations_from_the_calls_alone(layout, micro_batches, all_sources, monkeypatch):
    """The period is that of rank 0's calls on all its communicators; none of them alone has it."""
    tp, dp, pp = layout
    job = simulate(
        JobSpec(
            layout=Layout(tp=tp, dp=dp, pp=pp),
            micro_batches=micro_batches,
            is_sharded=(tp + pp) % 2 == 1,
            iterations=170,
            optimizer_s=0.02,
            ranks_per_host=4,
            clock_offsets_ms=(0, 50),
            seed=sum(layout),
        )
    )
    for source in SOURCES if all_sources else SOURCES[sum(layout) % 3 :][:1]:
        simulation = job.seen_by(source)
        samples, recurring = samples_of(simulation, monkeypatch)
        assert recurring.period == len(simulation.timeline.programs[0].slots), source.name
        assert recurring.locks == 1, source.name
        ours = [sample.step_time_s for sample in samples][-101:-1]
        theirs = simulation.iteration_times_s[-101:-1]
        assert len(ours) == 100, source.name
        assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.001), source.name


@pytest.mark.parametrize("source", [FLIGHT_RECORDER, COUNTS_ONLY], ids=lambda source: source.name)
def test_sources_without_rows_give_no_iterations(source, monkeypatch):
    samples, recurring = samples_of(simulate(JobSpec(iterations=60, source=source)), monkeypatch)
    assert (samples, recurring.period, recurring.state) == ([], None, "learning")


def test_lost_rows_do_not_lengthen_iterations(monkeypatch):
    simulation = simulate(JobSpec(iterations=200, dropped_fraction=0.01, seed=3))
    samples, recurring = samples_of(simulation, monkeypatch)
    assert recurring.period == len(simulation.timeline.programs[0].slots)
    ours = np.array([sample.step_time_s for sample in samples])
    assert np.mean(ours[-101:-1]) == pytest.approx(np.mean(simulation.iteration_times_s[-101:-1]), rel=0.002)


def rounds(communicator, ranks, seq, launch_ns, op="all_reduce", size_bytes=1024, duration_ns=MS):
    launch = np.repeat(np.asarray(launch_ns, np.int64)[:, None], len(ranks), axis=1)
    return rounds_at(communicator, ranks, launch, launch + duration_ns, seq=seq, op=op, size_bytes=size_bytes)


STEP_NS = 100 * MS


def iteration(number, begin_ns=None, tp=8, length_ns=STEP_NS):
    """Eight equal calls on one communicator, then one on the world, 80 ms into the iteration."""
    begin_ns = number * STEP_NS + STEP_NS if begin_ns is None else begin_ns
    inner = rounds("tp", (0, 1), tp * number + np.arange(tp), begin_ns + np.arange(tp) * length_ns // 10)
    return [inner, rounds("world", (0, 1, 2, 3), [number], [begin_ns + 8 * length_ns // 10])]


def followed(blocks, until=lambda block: END):
    recurring = RecurringIterations("j", 0, 0)
    samples = []
    for block in blocks:
        samples += recurring.add(block, until(block))
    return recurring, samples


def test_an_iteration_ends_with_the_call_of_the_most_ranks():
    recurring, samples = followed(iteration(number) for number in range(60))
    assert (recurring.period, recurring.state) == (9, "periodic")
    assert {sample.communicator for sample in samples} == {"world"}
    assert {sample.ranks for sample in samples} == {(0, 1, 2, 3)}
    assert {sample.step_time_s for sample in samples[1:]} == {0.1}
    assert samples[0].step_time_s == 0.0
    assert [sample.step for sample in samples] == list(range(len(samples)))


def test_calls_wait_for_those_that_were_launched_before_them():
    """A call that takes 70 ms becomes known after three that were launched behind it."""
    recurring = RecurringIterations("j", 0, 0)
    samples, known = [], []
    for number in range(100):
        begin_ns = (number + 1) * STEP_NS
        slow = rounds("dp", (0, 2), [number], [begin_ns], op="all_gather", duration_ns=70 * MS)
        fast = rounds("tp", (0, 1), 3 * number + np.arange(3), begin_ns + np.array([10, 30, 50]) * MS)
        known += [(begin_ns + 45 * MS, rounds("tp", (0, 1), fast.seq[:2], fast.arrival_ns[:2, 0]))]
        known += [(begin_ns + 75 * MS, slow)]
        known += [(begin_ns + 75 * MS, rounds("tp", (0, 1), fast.seq[2:], fast.arrival_ns[2:, 0]))]
    for until_ns, block in known:
        samples += recurring.add([block], until_ns)
    samples += recurring.add([], END)
    assert recurring.period == 4
    assert {round(sample.step_time_s, 9) for sample in samples[1:]} == {0.1}
    assert len(samples) > 75


def test_whole_iterations_that_were_lost_are_counted():
    blocks = [iteration(number) for number in range(100) if number not in (60, 61, 75)]
    _, samples = followed(blocks)
    assert {round(sample.step_time_s, 9) for sample in samples[1:]} == {0.1}
    assert np.diff([sample.step for sample in samples]).tolist().count(3) == 1
    assert np.diff([sample.step for sample in samples]).tolist().count(2) == 1


def test_lost_calls_do_not_lengthen_the_iteration():
    blocks = []
    for number in range(120):
        inner, world = iteration(number)
        if number in (50, 70):
            keep = np.arange(8) != 5
            inner = rounds("tp", (0, 1), inner.seq[keep], inner.arrival_ns[keep, 0])
        blocks.append([inner] if number == 90 else [inner, world])
    recurring, samples = followed(blocks)
    assert recurring.period == 9
    assert {round(sample.step_time_s, 9) for sample in samples[1:]} == {0.1}
    assert samples[-1].step - samples[0].step == (samples[-1].time_ns - samples[0].time_ns) // STEP_NS


def test_rows_that_the_representative_rank_lost_are_made_up_for_by_the_others():
    blocks = []
    for number in range(80):
        inner, world = iteration(number)
        if number % 7 == 0:
            world.arrival_ns[:, 0] = world.start_ns[:, 0] = world.end_ns[:, 0] = 0
        if number in (50, 60):  # the others were far ahead: it seems to have come before the other calls
            world.arrival_ns[:, 0], world.arrival_ns[:, 1:] = 0, inner.arrival_ns[-2, 0] + 1
        blocks.append([inner, world])
    recurring, samples = followed(blocks)
    assert (recurring.period, recurring.locks) == (9, 1)
    assert {round(sample.step_time_s, 9) for sample in samples[1:]} == {0.1}
    assert {sample.ranks for sample in samples} == {(0, 1, 2, 3), (1, 2, 3)}


def test_a_clock_that_steps_backwards_gives_one_iteration_without_a_time():
    blocks = [iteration(n, begin_ns=(n + 100 - 90 * (n >= 60)) * STEP_NS) for n in range(120)]
    recurring, samples = followed(blocks, until=lambda block: block[1].time_ns)
    times = [round(sample.step_time_s, 9) for sample in samples[1:]]
    assert set(times) <= {0.0, 0.1}
    assert 1 <= times.count(0.0) <= 3
    assert recurring.period == 9


def test_a_change_of_parallelism_begins_anew():
    blocks = [iteration(number) for number in range(60)]
    for number in range(60, 300):
        begin_ns = (number + 1) * STEP_NS
        blocks.append(
            [
                rounds("tp2", (0, 1, 2, 3), 4 * number + np.arange(4), begin_ns + np.arange(4) * MS),
                rounds("world", (0, 1, 2, 3), [number], [begin_ns + 50 * MS]),
            ]
        )
    recurring, samples = followed(blocks)
    assert (recurring.period, recurring.locks) == (5, 2)
    assert [sample.step_time_s for sample in samples].count(0.0) == 2  # nothing is measured across the change
    assert {round(sample.step_time_s, 9) for sample in samples} == {0.0, 0.1}


def test_operations_of_a_pair_do_not_matter_for_they_depend_on_who_reported_last():
    rng = np.random.default_rng(4)
    blocks = []
    for number in range(80):
        pair = rounds("pp", (0, 4), [number], [(number + 1) * STEP_NS], op=("send", "recv")[rng.integers(2)])
        blocks.append([replace(pair, is_pair=True), rounds("world", (0, 4), [number], [(number + 1) * STEP_NS + MS])])
    recurring, samples = followed(blocks)
    assert recurring.period == 2
    assert len(samples) > 40


def test_what_never_repeats_is_bounded_and_says_so():
    rng = np.random.default_rng(5)
    recurring = RecurringIterations("j", 0, 0)
    for number in range(40):
        op = ("all_reduce", "all_gather", "broadcast", "reduce_scatter")
        n = 5_000
        block = rounds("world", (0, 1), number * n + np.arange(n), number * n * MS + np.arange(n) * MS + MS)
        block.op[:] = [OP_CODE[name] for name in rng.choice(op, n)]
        assert recurring.add([block], END) == []
    assert (recurring.period, recurring.state) == (None, "no period")
    assert len(pickle.dumps(recurring)) < 512 * 1024


def test_a_call_that_hangs_does_not_hold_the_others_back_without_end():
    recurring, _ = followed(iteration(number) for number in range(60))
    hung = rounds("dp", (0, 2), [0], [STEP_NS], duration_ns=10**13)
    recurring.add([hung], STEP_NS)
    samples = recurring.add([b for n in range(60, 90) for b in iteration(n)], 91 * STEP_NS + 61 * 10**9)
    assert len(samples) >= 28
    many = rounds("tp", (0, 1), 1000 + np.arange(2 * MAX_WAITING), 10**14 + np.arange(2 * MAX_WAITING))
    recurring.add([many], 0)
    assert len(recurring._waiting) == MAX_WAITING


@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=30)), max_size=12
    ),
    st.integers(-(2**61), 2**61),
)
def test_any_times_are_survived(blocks, until_ns):
    """Zero, negative, far apart, backwards: no exception, no iteration of negative length."""
    recurring = RecurringIterations("j", 0, 0)
    for number, (communicator, launches) in enumerate(blocks):
        block = rounds(str(communicator), (0, 1), number * 100 + np.arange(len(launches)), launches)
        for sample in recurring.add([block], until_ns):
            assert sample.step_time_s >= 0.0
    for sample in recurring.add([], END):
        assert sample.step_time_s >= 0.0


@given(st.lists(st.integers(-(2**40), 2**40), min_size=80, max_size=120))
@examples(30)
def test_any_ends_of_recurring_calls_are_survived(ends):
    recurring = RecurringIterations("j", 0, 0)
    for number, end_ns in enumerate(ends):
        block = rounds("world", (0, 1), [number], [number * STEP_NS + 1])
        block.end_ns[:] = end_ns
        block.arrival_ns[:, 1] = end_ns
        for sample in recurring.add([block], END):
            assert sample.step_time_s >= 0.0
            assert sample.ranks
