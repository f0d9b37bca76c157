"""What is kept of iterations of which not all ranks end a step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pacehound.model.events import IterationSample
from streams.rounds.clocks import ClockOffsets
from streams.rounds.round_columns import RoundColumns
from streams.slow.attribution.records import IterationRecord
from streams.slow.measured_iterations import MeasuredIterations
from streams.watching.moment import Iteration
from tests.fakes.hand_made_rounds import BASE_NS, MS, rounds

TRAINERS, GENERATOR = (0, 1), 2
WORLD = (*TRAINERS, GENERATOR)


def ended(step: int, at_ms: float) -> IterationSample:
    at_ns = BASE_NS + round(at_ms * MS)
    return IterationSample(
        job="j", attempt=0, time_ns=at_ns, communicator="w", step=step, step_time_s=0.05, ranks=TRAINERS,
        ends_ns=(at_ns, at_ns), boundary="optimizer_step",
    )  # fmt: skip


def records_of(spans: list[list[tuple[float, float]]], *ends_ms: float) -> list[IterationRecord]:
    """Of iterations that end then, in which samples go from rank 2 to the others, which train between 0 and 1."""
    trained = [[(end - 4, end - 2), (end - 6, end - 2)] for end in ends_ms]
    blocks = [rounds("world", WORLD, spans), rounds("dp", TRAINERS, trained)]
    measured, columns = MeasuredIterations(), RoundColumns.of(blocks)
    samples = [ended(step, end) for step, end in enumerate((0.0, *ends_ms))]
    return [
        measured.record_of(Iteration(before, sample, columns, samples), ClockOffsets())
        for before, sample in pairwise(samples)
    ]


def test_who_ends_no_steps_is_measured_until_the_call_is_over_that_it_is_in() -> None:
    """Rank 2 is asked from 2 to 3, generates until 40, and waits in the next call, which the others enter at 52."""
    (first, second) = records_of([[(2, 3), (2, 3), (1, 3)], [(52, 53), (52, 53), (40, 53)]], 50.0, 100.0)
    assert first.ranks.tolist() == second.ranks.tolist() == list(WORLD)
    own_ms = np.array([first.own_ns, second.own_ns]) / MS
    # From 0 to 53 without its two calls, and from there to the end of the second one, for it is in none then.
    assert own_ms[:, 2].tolist() == [53 - 2 - 13, 100 - 53]
    assert own_ms[:, 0].tolist() == [50 - 1 - 2, 50 - 1 - 2]
    assert sum(first.charges.ranks.values()) + sum(first.charges.transfers.values()) == 50 * MS


def test_a_job_of_which_all_ranks_end_steps_has_no_others() -> None:
    spans = [[(5.0, 6.0), (5.0, 6.0)]]
    columns = RoundColumns.of([rounds("dp", TRAINERS, spans)])
    measured = MeasuredIterations()
    before, sample = ended(0, 0.0), ended(1, 50.0)
    record = measured.record_of(Iteration(before, sample, columns, (before, sample)), ClockOffsets())
    assert record.ranks.tolist() == measured.marked.tolist() == list(TRAINERS)
