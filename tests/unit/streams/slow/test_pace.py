"""When a slowdown is over: not before the job is as fast as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pacehound.model.events import Finding, IterationSample
from pacehound.settings import HangSettings
from streams.hang.hang_watch import HangWatch
from streams.rounds.round_columns import RoundColumns
from streams.slow.slow_rounds import SlowRounds
from streams.slow.slow_watch import SlowWatch
from streams.slow.thresholds import STRETCH, STRETCHES
from streams.watching.moment import Iteration, Moment
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import tries

ONSET, RELIEF, STEPS = 1_000, 2_500, 3_000
STEP_NS, STOPPED_NS, PERIOD_NS = 5_200_000, 10_000_000, 30_000_000


def pulsed(seed: int, step_ns: int = STEP_NS) -> Iterator[IterationSample]:
    """A rank that is stopped for 10 ms of every 30, from one step to another, while its steps take 5.2 ms."""
    noise, now_ns = random.Random(seed), 0
    for step in range(STEPS):
        left_ns, began_ns = int(step_ns * noise.lognormvariate(0.0, 0.05)), now_ns
        while left_ns > 0:
            into_ns = now_ns % PERIOD_NS
            if ONSET <= step < RELIEF and into_ns < STOPPED_NS:
                now_ns += STOPPED_NS - into_ns
                continue
            runs_ns = min(left_ns, PERIOD_NS - into_ns)
            now_ns, left_ns = now_ns + runs_ns, left_ns - runs_ns
        took_s = (now_ns - began_ns) / 1e9
        yield IterationSample(
            job="j", attempt=0, time_ns=now_ns, communicator="w", step=step, step_time_s=took_s,
            ranks=(0, 1), ends_ns=(now_ns, now_ns), boundary="optimizer_step",
        )  # fmt: skip


def all_said(samples: Iterator[IterationSample], kind: str = "slow") -> tuple[list[Finding], float]:
    """Every version of what is said of slow iterations, and what the last slow stretch has cost in seconds."""
    watch = SlowWatch("j", 0, 0.1, SlowRounds("j", 0), HangWatch("j", 0, HangSettings()))
    said: list[Finding] = []
    previous = next(samples)
    for sample in samples:
        told = watch.on_iteration(
            Iteration(previous, sample, RoundColumns.of([])), Moment(now_ns=sample.time_ns, step=sample.step)
        )
        said += [one for one in told if isinstance(one, Finding) and one.kind == kind]
        previous = sample
    return said, watch.excess_s(said[-1], 0)


@pytest.mark.parametrize("seed", tries(1, deep=3))
def test_a_slowness_whose_level_comes_back_goes_on_while_the_pace_does_not(seed: int) -> None:
    """Its level hardly moves, for most iterations run between two stops."""
    said, excess_s = all_said(pulsed(seed))
    assert len({finding.id for finding in said}) == 1
    assert [finding.relief for finding in said[:-1]] == [None] * (len(said) - 1)
    relief = said[-1].relief
    assert relief is not None
    assert abs((relief.step or 0) - RELIEF) <= STRETCH * STRETCHES
    assert any("single iterations are slow" in sentence for finding in said for sentence in words_of(finding))
    first = said[0].onset
    assert first is not None
    assert excess_s >= 0.8 * (RELIEF - (first.step or 0)) * STEP_NS / 1e9 * 0.5  # 15 ms for every 10 of its own


def test_slow_steps_that_become_the_rule_are_not_over_and_no_plan_before_the_pace_is_back() -> None:
    """Every ninth of short steps takes 10 ms longer: the level never moves, and they seem to recur."""
    said, _ = all_said(pulsed(0, 2_300_000), "intermittent")
    assert len({finding.id for finding in said}) == 1
    *others, last = said
    assert [finding.relief for finding in others] == [None] * len(others)
    assert any("have become the rule" in words for words in words_of(last))
    assert last.relief is not None
    assert abs((last.relief.step or 0) - RELIEF) <= STRETCH * STRETCHES
