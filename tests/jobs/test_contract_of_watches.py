"""What every watch of a job must keep to; a new one is in the list of `streams/job/watches.py` and so in here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import streams.job.operator
from pacehound.model.events import Finding, Instant, IterationSample
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import Fault, SlowCompute, StopRank
from simulator.job import JobSpec, simulate
from streams.job.watches import Watches
from streams.pipeline import Pipeline
from streams.snapshots.schema import state_codec
from streams.watching.moment import Iteration, Moment
from streams.watching.watch import Watch

SETTINGS = Settings.load({}, ["hang.suspect_after_s=3"])
NUMBER_OF = {type(watch).__name__: number for number, watch in enumerate(Watches("j", 0, SETTINGS))}
SLOW = SlowCompute(ranks=(5,), factor=1.5, from_step=60, to_step=110)
STOPPED = StopRank(rank=3, step=40)
N_ITERATIONS = 150
BASELINE_IS_FULL = 1_200
"""The longest baseline holds the last 300 iterations and every eighth of the 800 before them."""
Told = tuple[int, str, tuple[Any, ...]]
"""The number of a watch, what it was asked, and with what."""


class _Listening:
    """Passes everything on to a watch and notes it."""

    def __init__(self, number: int, watch: Watch, told: list[Told]) -> None:
        self._number, self._watch, self._told = number, watch, told

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._watch, name)

        def passed_on(*arguments: Any) -> Any:
            self._told.append((self._number, name, tuple(map(_as_it_is, arguments))))
            return method(*arguments)

        return passed_on


def _as_it_is(argument: object) -> object:
    """A moment looks at what goes on changing."""
    if not isinstance(argument, Moment):
        return argument
    iterations = argument.last_iterations()
    return replace(
        argument,
        communicators=dict(argument.communicators),
        host_of=dict(argument.host_of),
        ranks_of=dict(argument.ranks_of),
        last_iterations=lambda: iterations,
    )


@cache
def told(fault: Fault | None) -> list[Told]:
    """All that the watches of a job of eight ranks are told and asked, in order."""
    heard: list[Told] = []

    class Overheard(Watches):
        def __iter__(self) -> Iterator[Any]:
            return (_Listening(number, watch, heard) for number, watch in enumerate(super().__iter__()))

    job = simulate(
        JobSpec(iterations=150, layout=Layout(tp=2, dp=2, pp=2), ranks_per_host=4, faults=(fault,) if fault else ())
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams.job.operator, "Watches", Overheard)
        pipeline = Pipeline(SETTINGS)
        for event in job.events():
            pipeline.on_event(event)
    assert heard
    return heard


def asked(watches: Watches, questions: list[Told]) -> list[tuple[int, object]]:
    """What the watches say, with their numbers."""
    everybody = list(watches)
    said = []
    for number, name, arguments in questions:
        answer = getattr(everybody[number], name)(*arguments)
        said += [(number, one) for one in answer] if isinstance(answer, list) else []
    return said


@cache
def said_without_a_break(fault: Fault) -> list[tuple[int, object]]:
    """What watches say that nobody restarts."""
    return asked(Watches("simulated", 0, SETTINGS), told(fault))


def again(watches: Watches) -> Watches:
    """The watches after a restart."""
    codec = state_codec(SETTINGS)
    restored: Watches = codec.decode(codec.encode(watches))
    return restored


@cache
def said_of_a_job_that_is_well() -> list[tuple[int, object]]:
    return asked(Watches("simulated", 0, SETTINGS), told(None))


@pytest.mark.parametrize("name", NUMBER_OF)
def test_a_watch_says_nothing_of_a_job_that_is_well(name: str) -> None:
    assert [one for number, one in said_of_a_job_that_is_well() if number == NUMBER_OF[name]] == []


@pytest.mark.parametrize("fault", [SLOW, STOPPED], ids=["slow", "stopped"])
@pytest.mark.parametrize("share", [0.1, 0.6, *(pytest.param(share, marks=pytest.mark.prove) for share in (0.45, 0.9))])
def test_watches_that_begin_again_from_a_snapshot_say_the_same(fault: Fault, share: float) -> None:
    questions, whole = told(fault), said_without_a_break(fault)
    assert any(isinstance(one, Finding) for _, one in whole)
    cut = _end_of_a_step(questions, share)
    before = Watches("simulated", 0, SETTINGS)
    assert asked(before, questions[:cut]) + asked(again(before), questions[cut:]) == whole


def _end_of_a_step(questions: list[Told], share: float) -> int:
    """Snapshots are taken between two steps of time: after the tick of the last watch."""
    last = len(NUMBER_OF) - 1
    ends = [place + 1 for place, (number, name, _) in enumerate(questions) if (number, name) == (last, "on_tick")]
    return ends[int(share * len(ends))]


@cache
def states_of_a_long_job() -> list[list[int]]:
    """Bytes of the state of each watch, after more and more iterations of a quiet job."""
    codec, questions = state_codec(SETTINGS), told(None)
    watches, sizes = Watches("simulated", 0, SETTINGS), []
    for number in range(11):
        asked(watches, [question for question in questions if question[1] != "on_end"])
        if number * N_ITERATIONS >= BASELINE_IS_FULL:
            sizes.append([len(codec.encode(watch)) for watch in watches])
    return sizes


@pytest.mark.parametrize("name", NUMBER_OF)
def test_the_state_of_a_watch_does_not_grow_with_the_job(name: str) -> None:
    sizes = [one[NUMBER_OF[name]] for one in states_of_a_long_job()]
    assert len(sizes) > 1
    assert sizes[-1] <= 1.02 * sizes[0]


@cache
def halfway() -> bytes:
    """The watches in the middle of a quiet job."""
    watches, questions = Watches("simulated", 0, SETTINGS), told(None)
    asked(watches, questions[: _end_of_a_step(questions, 0.5)])
    return state_codec(SETTINGS).encode(watches)


@pytest.mark.parametrize("name", NUMBER_OF)
@pytest.mark.parametrize("step_time_s", [math.nan, math.inf, -math.inf, -1.0])
def test_a_number_that_cannot_be_is_no_finding(name: str, step_time_s: float) -> None:
    watches: Watches = state_codec(SETTINGS).decode(halfway())
    questions = told(None)
    watch = list(watches)[NUMBER_OF[name]]
    iteration, moment = next(arguments for _, question, arguments in reversed(questions) if question == "on_iteration")
    for _ in range(20):
        bad = replace(iteration, sample=_with_time(iteration, step_time_s))
        assert watch.on_iteration(bad, moment) == []
    assert all(math.isfinite(cost_s) for cost_s in watch.ongoing(moment.now_ns).values())


def _with_time(iteration: Iteration, step_time_s: float) -> IterationSample:
    sample = replace(iteration.sample)
    object.__setattr__(sample, "step_time_s", step_time_s)
    return sample


@pytest.mark.parametrize("name", NUMBER_OF)
def test_a_watch_that_knows_nothing_can_be_asked_everything(name: str) -> None:
    """A process group may be made and the job end before anything else is heard."""
    watch = list(Watches("j", 0, SETTINGS))[NUMBER_OF[name]]
    moment = Moment(now_ns=5)
    said = [*watch.on_tick(moment), *watch.on_new_iterations(Instant(step=None, time_ns=5)), *watch.on_end(moment)]
    assert said == []
    assert (watch.ongoing(5), watch.unseen()) == ({}, ())
