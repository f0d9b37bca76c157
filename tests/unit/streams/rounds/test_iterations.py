"""Iterations from optimizer steps: who is waited for, and who is not."""

from __future__ import annotations

from pacehound.model.events import OPTIMIZER_STEP, Markers
from streams.rounds.iterations import IterationTracker
from streams.rounds.thresholds import STEPS_WITHOUT

S = 1_000_000_000
LATENESS_NS = 5 * S
MEMBERS = (0, 1, 2, 3)


def step_of(step: int, *ranks: int, time_ns: int | None = None) -> Markers:
    """These ranks end a step, at a tenth of a second each if nothing else is said."""
    at = step * S // 10 if time_ns is None else time_ns
    return Markers(
        job="j",
        attempt=0,
        host="h",
        communicator="c",
        ranks=ranks,
        names=(OPTIMIZER_STEP,) * len(ranks),
        steps=(step,) * len(ranks),
        times_ns=(at,) * len(ranks),
    )


class Followed:
    """A job of four ranks whose promises say each step all that has been."""

    def __init__(self) -> None:
        self.tracker = IterationTracker("j", 0, "c", MEMBERS, LATENESS_NS)
        self.told: list[tuple[int, tuple[int, ...]]] = []

    def steps(self, first: int, last: int, *ranks: int, until_ns: int = 0, gone: frozenset[int] = frozenset()) -> None:
        for step in range(first, last + 1):
            self.tracker.add(step_of(step, *ranks))
            samples = self.tracker.close(max(step * S // 10, until_ns), gone)
            self.told += [(sample.step, sample.ranks) for sample in samples]


def test_a_rank_that_never_ends_a_step_is_not_waited_for() -> None:
    """It coordinates, evaluates or generates, and is of the world all the same."""
    job = Followed()
    job.steps(1, 49, 1, 2, 3)
    assert job.told == []  # it may be late, for the time that hosts may be
    job.steps(50, 60, 1, 2, 3)
    assert job.told == [(step, (1, 2, 3)) for step in range(1, 61)]
    assert job.tracker.told_end_ns(S) is None


def test_who_is_in_its_first_step_while_the_others_wait_for_it_is_waited_for() -> None:
    job = Followed()
    job.steps(1, STEPS_WITHOUT, 1, 2, 3)
    assert job.tracker.close(1_000 * S) == []


def test_who_begins_to_train_later_is_waited_for_from_then_on() -> None:
    job = Followed()
    job.steps(1, 60, 1, 2, 3)
    job.steps(61, 70, 1, 2, 3)
    job.tracker.add(step_of(70, 0))  # told of already: not told again
    assert job.tracker.close(7 * S) == []
    job.steps(71, 72, 1, 2, 3)
    assert job.told[-1][0] == 70
    job.tracker.add(step_of(71, 0))
    (sample,) = job.tracker.close(8 * S)
    assert (sample.step, sample.ranks) == (71, MEMBERS)


def test_who_counts_steps_of_its_own_is_not_waited_for() -> None:
    """It averages weights now and then, with an optimizer that the others do not step."""
    job = Followed()
    job.steps(1, 60, 1, 2, 3)
    for own_step, step in ((1, 61), (2, 71)):
        job.tracker.add(step_of(own_step, 0, time_ns=step * S // 10))
        job.steps(step, step + 9, 1, 2, 3)
    assert job.told == [(step, (1, 2, 3)) for step in range(1, 81)]


def test_a_lost_marker_of_one_rank_is_not_waited_for_beside_a_rank_that_is_gone() -> None:
    job = Followed()
    job.steps(1, 3, *MEMBERS)
    gone = frozenset({0})
    job.steps(4, 4, 1, 2, gone=gone)  # the marker of rank 3 is lost
    job.steps(5, 5, 1, 2, 3, until_ns=60 * S, gone=gone)
    assert job.told[-2:] == [(4, (1, 2)), (5, (1, 2, 3))]
