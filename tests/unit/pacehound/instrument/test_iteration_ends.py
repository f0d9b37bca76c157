"""Which optimizer's steps end iterations: one step of each iteration does, in all kinds of loops, and numbers go on."""

from __future__ import annotations

from typing import Any

import pytest

from pacehound.instrument.iteration_ends import PATIENT_STEPS, IterationEnds


class Parameter:
    pass


class Optimizer:
    def __init__(self, *groups: list[Parameter]) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": group} for group in groups or ([Parameter()],)]


def numbers(ends: IterationEnds, *optimizers: Optimizer, iterations: int) -> list[int | None]:
    return [ends.number(optimizer) for _ in range(iterations) for optimizer in optimizers]


def test_every_step_of_the_only_optimizer_ends_an_iteration() -> None:
    assert numbers(IterationEnds(), Optimizer(), iterations=4) == [0, 1, 2, 3]


@pytest.mark.parametrize("others", [1, 5, 2_000])
def test_of_several_optimizers_that_each_make_a_step_the_first_one_s_count(others: int) -> None:
    """A generator and its critic; or one for each parameter, stepped in the backward pass."""
    found = numbers(IterationEnds(), Optimizer(), *(Optimizer() for _ in range(others)), iterations=20)
    assert [one for one in found if one is not None] == list(range(20))
    assert found[0] == 0


@pytest.mark.parametrize("is_critic_first", [True, False])
def test_a_critic_that_makes_five_steps_to_one_does_not_change_who_counts(is_critic_first: bool) -> None:
    critic, generator = Optimizer(), Optimizer()
    order = [*[critic] * 5, generator] if is_critic_first else [generator, *[critic] * 5]
    found = numbers(IterationEnds(), *order, iterations=50)
    assert [one for one in found if one is not None] == list(range(250 if is_critic_first else 50))


def test_groups_that_one_optimizer_steps_one_after_the_other_end_one_iteration() -> None:
    """As DeepSpeed's ZeRO does: 1 and 2 put each group in the place of all, 3 all but one sub-group aside."""
    ends, optimizer, groups = IterationEnds(), Optimizer(), [[Parameter()] for _ in range(100)]
    found = []
    for _ in range(6):
        for at, group in enumerate(groups):
            optimizer.param_groups = [{"params": group}] if at % 2 else [{"params": []}, {"params": group}]
            found.append(ends.number(optimizer))
    assert [one for one in found if one is not None] == list(range(6))


def test_a_second_loop_goes_on_with_the_numbers_of_the_first() -> None:
    ends = IterationEnds()
    for loop in range(5):
        assert numbers(ends, Optimizer(), iterations=3) == [3 * loop, 3 * loop + 1, 3 * loop + 2]


def test_an_optimizer_that_is_kept_and_makes_no_more_steps_is_not_waited_for() -> None:
    ends, kept, second = IterationEnds(), Optimizer(), Optimizer()
    numbers(ends, kept, iterations=10)
    found = numbers(ends, second, iterations=PATIENT_STEPS + 3)
    assert found == [None] * PATIENT_STEPS + [10 + PATIENT_STEPS, 11 + PATIENT_STEPS, 12 + PATIENT_STEPS]
    assert ends.leads(second)
    assert not ends.leads(kept)


def test_ranks_that_keep_the_first_optimizer_and_ranks_that_do_not_number_iterations_alike() -> None:
    keeps, lets_go = IterationEnds(), IterationEnds()
    first, pair = Optimizer(), (Optimizer(), Optimizer())
    assert numbers(keeps, first, iterations=7) == numbers(lets_go, Optimizer(), iterations=7)
    both = zip(numbers(keeps, *pair, iterations=40), numbers(lets_go, *pair, iterations=40), strict=True)
    assert [one for one in both if None not in one] == [(number, number) for number in range(7 + PATIENT_STEPS, 47)]


def test_a_loop_whose_first_parameters_are_exchanged_goes_on_after_a_while() -> None:
    ends, optimizer = IterationEnds(), Optimizer()
    numbers(ends, optimizer, iterations=5)
    optimizer.param_groups = Optimizer().param_groups
    assert numbers(ends, optimizer, iterations=PATIENT_STEPS + 1)[-1] == 5 + PATIENT_STEPS


def test_an_optimizer_without_parameters_counts_as_any_other() -> None:
    assert numbers(IterationEnds(), Optimizer([]), iterations=2) == [0, 1]
