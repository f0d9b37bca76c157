"""What is known of a job's pace where nothing marks its iterations, and where it ends early."""

from __future__ import annotations

import pickle
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.events import Finding, Incident, Instant, IterationSample
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from streams.job.iterations import JobIterations
from streams.job.thresholds import PACE_ITERATIONS, RECURRED_OFTEN
from streams.pipeline import Pipeline
from streams.rounds.round_columns import RoundColumns
from streams.rounds.round_table import RoundTable
from tests.fakes.events import SECOND_NS, START_NS, topology
from tests.fakes.evidence_words import words_of
from tests.fakes.hand_made_rounds import rounds_at

STEP_S = 0.05


def recurring(number: int) -> IterationSample:
    now_ns = START_NS + number * int(STEP_S * SECOND_NS)
    return IterationSample(
        job="j", attempt=0, time_ns=now_ns, communicator="w", step=number, ranks=(0, 1), ends_ns=(now_ns, now_ns),
        step_time_s=STEP_S, boundary="period",
    )  # fmt: skip


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(0, 2 * PACE_ITERATIONS), st.booleans())
def test_the_pace_is_the_median_of_the_last_iterations(drawn: list[int], n_more: int, is_taken_over: bool) -> None:
    times_s = [0.01 * (drawn[at % len(drawn)] + at % 7) for at in range(len(drawn) + n_more)]
    iterations = JobIterations()
    iterations.on_world(topology())
    iterations.add(recurring(0), was_hung=False)
    for number, step_time_s in enumerate(times_s, 1):
        iterations.add(replace(recurring(number), step_time_s=step_time_s), was_hung=False)
    if is_taken_over:
        iterations = pickle.loads(pickle.dumps(iterations))
    assert iterations.step_time_s == statistics.median(times_s[-PACE_ITERATIONS:])
    iterations.are_marked()
    iterations.on_world(topology())
    iterations._recurring_locks = -1
    assert iterations.replaces(recurring(len(times_s) + 1)) is not None, "what was followed was something else"
    assert iterations.step_time_s == 0.0


def unmarked(n: int) -> JobIterations:
    """A job with `n` recurring periods that do not count yet, for they have not held for long enough."""
    iterations = JobIterations()
    iterations.on_world(topology())
    iterations.replaces(recurring(0))
    iterations._recurring_since_ns = START_NS
    assert not any(iterations.counts(recurring(number)) for number in range(n))
    return iterations


def test_what_recurs_often_enough_gives_the_pace_before_it_counts_as_iterations() -> None:
    assert (unmarked(RECURRED_OFTEN - 1).recurring_s, unmarked(RECURRED_OFTEN).recurring_s) == (0.0, STEP_S)
    iterations = unmarked(RECURRED_OFTEN)
    iterations.are_marked()
    assert iterations.recurring_s == 0.0


def test_that_no_iteration_is_marked_is_said_with_what_it_costs() -> None:
    (young,) = unmarked(3).unseen()
    assert "no optimizer step has been seen" in young
    assert young.endswith("a hang is told after four times as long as otherwise")
    (known,) = unmarked(RECURRED_OFTEN).unseen()
    assert "four times" not in known
    iterations = unmarked(3)
    iterations.are_marked()
    assert iterations.unseen() == ()


@pytest.mark.parametrize(("n_steps", "is_told"), [(30, True), (60, False)])
def test_a_job_that_was_too_short_to_judge_says_so_and_makes_no_incident(n_steps: int, is_told: bool) -> None:
    pipeline = Pipeline(Settings())
    said = [out for event in simulate(JobSpec(iterations=n_steps)).events() for out in pipeline.on_event(event)]
    told = [f for f in said if isinstance(f, Finding) and f.kind == "blind"]
    assert [words_of(f)[0].startswith("a slowdown could not be found") for f in told] == [True] * is_told
    assert not any(isinstance(one, Incident) for one in said)


def test_a_job_without_iterations_says_so_at_its_end() -> None:
    (told,) = unmarked(3).not_judged("j", 0, Instant(step=None, time_ns=START_NS))
    assert "no optimizer step was seen" in words_of(told)[0]
    assert not told.pages


@pytest.mark.parametrize("is_one_late", [False, True])
def test_the_rounds_of_an_iteration_are_the_same_in_whatever_steps_of_time_they_came(*, is_one_late: bool) -> None:
    rng = np.random.default_rng(5)
    iterations = JobIterations()
    begins_ns = [START_NS + (1 + 3 * number) * SECOND_NS for number in range(4)]
    samples = [replace(recurring(number), time_ns=ns, ends_ns=(ns, ns)) for number, ns in enumerate(begins_ns)]
    blocks: list[Rounds] = []
    measured = 0
    for second in range(10):
        since_ns = START_NS + second * SECOND_NS
        start_ns = since_ns + np.sort(rng.integers(1, SECOND_NS // 2, (6, 2)), axis=0)
        fresh = [rounds_at(f"c{at % 2}", (at, at + 1), start_ns + at, start_ns + at + 7) for at in range(3)]
        if is_one_late and second:  # it ended before the iteration began, and is forgotten by itself
            fresh.insert(1, rounds_at("late", (0, 1), start_ns[:1] - 9 * SECOND_NS, start_ns[:1] - 8 * SECOND_NS))
        blocks += fresh
        iterations.on_rounds(RoundTable(fresh), since_ns + SECOND_NS)
        for sample in [one for one in samples if one.time_ns == since_ns + SECOND_NS]:
            iteration = iterations.add(sample, was_hung=False)
            if iteration is not None:
                measured += 1
                expected = RoundColumns.of(blocks).after(min(iteration.previous.ends_ns))
                assert set(iteration.rounds.keys) == set(expected.keys)
                assert sorted(iteration.rounds.end_ns.tolist()) == sorted(expected.end_ns.tolist())
        iterations.forget_rounds()
    assert measured == 3


@pytest.mark.parametrize("ends_last", [(0, 1), (0, 1, 2)], ids=["a pair has ended it", "one of the other pair, too"])
def test_who_never_ends_the_last_iteration_is_in_it_still_and_so_are_those_who_share_a_communicator(
    ends_last: tuple[int, ...],
) -> None:
    """Two pairs gather once in each iteration; the second pair fails in the third one."""
    iterations = JobIterations()
    iterations.on_world(topology(members=(0, 1, 2, 3), host_ranks=(0, 1, 2, 3), world_size=4))
    for number in range(3):
        begun_ns = START_NS + number * SECOND_NS
        for name, pair in (("first", (0, 1)), ("second", (2, 3))):
            at_ns = np.full((1, 2), begun_ns + SECOND_NS // 2)
            sizes = 32 if number == 2 and name == "second" else 8
            block = rounds_at(name, pair, at_ns, at_ns + 7, seq=[number], size_bytes=sizes)
            iterations.on_rounds(RoundTable([block]), begun_ns + SECOND_NS)
        ranks = ends_last if number == 2 else (0, 1, 2, 3)
        ends_ns = (begun_ns + SECOND_NS,) * len(ranks)
        sample = replace(recurring(number), time_ns=ends_ns[0], ranks=ranks, ends_ns=ends_ns)
        iterations.add(replace(sample, boundary="optimizer_step"), was_hung=False)
        iterations.forget_rounds()
    iterations = pickle.loads(pickle.dumps(iterations))
    last = iterations.last()
    assert last is not None
    assert last.expected_call("second", 2) == ("all_reduce", 8)
    assert last.expected_call("second", 3) is None, "it would be one of an iteration after it"
    assert last.expected_call("first", 3) == ("all_reduce", 8)
