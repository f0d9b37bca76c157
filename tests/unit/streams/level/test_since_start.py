"""A run that is slower than the runs of its job before it, from its first step on: only they can tell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pacehound.model.events import EarlierRun, HostSample, Instant, IterationSample
from streams.level.since_start import SinceStart
from streams.rounds.round_columns import RoundColumns
from streams.watching.moment import Iteration, Moment
from streams.watching.watch import Watch
from tests.fakes.evidence_words import words_of

SHAPE = {"world_size": 4, "ranks_of": {"a": (0, 1), "b": (2, 3)}}


def run(number, step_time_s, *, world_size=4, hosts=2):
    return EarlierRun(
        name=f"attempt {number}",
        last_step=5000,
        changes=(),
        step_time_s=step_time_s,
        world_size=world_size,
        hosts=hosts,
    )


USUAL = (run(3, 0.101), run(2, 0.1), run(1, 0.099))


class SlowNow(Watch):
    """Iterations have become slower within the run."""

    def ongoing(self, now_ns):
        return {"told": 1.0}


def said(times_s, runs=USUAL, by_iterations=None, is_later_launch=False):
    watch = SinceStart("j", 4, 0.1, [by_iterations or Watch()])
    host = HostSample(job="j", attempt=4, time_ns=0, host="a", processes=(), is_later_launch=is_later_launch)
    watch.hear(host, None)
    watch.on_history(runs)
    found, now_s = [], 0.0
    samples = []
    for step, step_time_s in enumerate([0.0, *times_s]):
        now_s += step_time_s
        samples.append(
            IterationSample(
                job="j",
                attempt=4,
                time_ns=round(now_s * 1e9),
                communicator="world",
                step=step,
                ranks=(0,),
                ends_ns=(round(now_s * 1e9),),
                step_time_s=step_time_s,
                boundary="optimizer_step",
            )
        )
    for previous, sample in pairwise(samples):
        moment = Moment(now_ns=sample.time_ns, step=sample.step, **SHAPE)
        found += watch.on_iteration(Iteration(previous, sample, RoundColumns.of([])), moment)
    return watch, found


def paced(pace_s, n=300, seed=0):
    return pace_s * np.random.default_rng(seed).lognormal(0, 0.03, n)


def test_it_is_slower_than_its_last_attempts_since_the_start():
    watch, (found,) = said(paced(0.118))
    assert (found.kind, found.verdict, found.onset) == ("slow", "unknown", Instant(step=0, time_ns=0))
    assert found.magnitude == pytest.approx(0.18, abs=0.02)
    assert words_of(found)[0].startswith(f"{found.magnitude:.0%} slower than its last 3 attempts")
    assert "attempt 3: 101 ms" in words_of(found)[0]
    assert found.pages
    assert watch.ongoing(0)[found.id] == pytest.approx(0.018 * 300, rel=0.15)


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ((), "nothing is known"),
        (USUAL[:1], "one run alone"),
        (tuple(run(n, 0.1, world_size=8) for n in (1, 2, 3)), "other sizes"),
        (tuple(run(n, 0.1, hosts=1) for n in (1, 2, 3)), "other hosts"),
        (tuple(run(n, 0.0) for n in (1, 2, 3)), "runs of a few steps"),
        ((run(3, 0.112), *USUAL[1:]), "one of them was as slow"),
        ((run(3, 0.1), run(2, 0.106), run(1, 0.094)), "they differ as much among themselves"),
    ],
)
def test_without_runs_that_tell_nothing_is_said(runs, why):
    assert said(paced(0.118), runs)[1] == [], why


def test_what_a_command_starts_after_other_ranks_of_its_own_is_compared_with_nothing():
    """A script that trains one fold, phase or model after the other."""
    assert said(paced(0.118), is_later_launch=True)[1] == []


def test_a_slow_warm_up_is_no_slow_run():
    assert said([1.0] * 20 + list(paced(0.1)))[1] == []


def test_a_run_that_becomes_slow_later_is_not_slow_since_the_start():
    assert said([*paced(0.1, 200), *paced(0.14, 400)])[1] == []
    assert said(paced(0.118), by_iterations=SlowNow())[1] == []


def test_it_is_over_when_the_run_is_as_fast_as_the_earlier_ones():
    watch, (first, over) = said([*paced(0.13, 320), *paced(0.1, 300)])
    assert over.id == first.id
    assert 320 < over.relief.step <= 520
    assert watch.ongoing(0) == {}
