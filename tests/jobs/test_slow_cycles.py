"""Jobs whose steps have a rhythm: every eighth generates samples, or averages parameters."""

from __future__ import annotations

import random

import pytest

from pacehound.model.events import Finding
from simulator.faults import Spike
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import tries
from tests.fakes.spiked_job import RANKS, findings_of

PERIOD, ITERATIONS, ONSET, RELIEF = 8, 1_000, 400, 720


def said_of(spikes: list[Spike], seed: int = 3, restarts: int = 0) -> list[Finding]:
    """What is said of slow steps, by pipelines of which each goes on from a snapshot of the one before."""
    said = findings_of(spikes, ITERATIONS, seed, restarts)
    return [finding for finding in said if finding.kind in ("slow", "intermittent") and finding.culprits]


def generation(seed: int, extra_s: dict[int, float], since: int, until: int = ITERATIONS) -> list[Spike]:
    """Of all ranks, of random length; some take longer for it from a step to another."""
    drawn = random.Random(seed)
    return [
        Spike(
            ranks=(rank,),
            step=step,
            extra_s=drawn.uniform(0.4, 0.7) + (extra_s.get(rank, 0.0) if since <= step < until else 0.0),
        )
        for step in range(0, ITERATIONS, PERIOD)
        for rank in range(RANKS)
    ]


@pytest.mark.parametrize("seed", tries(2, deep=20))
def test_a_rank_that_becomes_slow_in_the_long_steps_is_named_until_it_is_as_fast_as_before(seed: int) -> None:
    who = seed % RANKS
    said = said_of(generation(seed, {who: 0.8}, ONSET, RELIEF), seed)
    assert {(finding.kind, finding.cause, finding.culprits) for finding in said} == {("slow", "S1", (who,))}
    assert len({finding.id for finding in said}) == 1
    assert [finding.version for finding in said] == list(range(len(said)))
    onset, relief = said[-1].onset, said[-1].relief
    assert onset is not None
    assert relief is not None
    assert abs((onset.step or 0) - ONSET) <= 2 * PERIOD
    assert abs((relief.step or 0) - RELIEF) <= 2 * PERIOD
    assert (said[-1].detected.step or 0) <= ONSET + 12 * PERIOD
    assert any(words.startswith(f"every {PERIOD} steps take") for words in words_of(said[0]))


@pytest.mark.parametrize("period", [10, 40])
def test_it_is_named_once_however_few_of_the_steps_are_long(period: int) -> None:
    """One in forty is 8 % of the time, and more than that of it when a rank takes longer."""
    drawn, begins = random.Random(1), 30 * period
    spikes = [
        Spike(ranks=(rank,), step=step, extra_s=drawn.uniform(0.1, 0.3) + (0.8 if rank == 1 and step > begins else 0.0))
        for step in range(period - 1, 50 * period, period)
        for rank in range(RANKS)
    ]
    said = [finding for finding in findings_of(spikes, 50 * period, 3) if finding.culprits]
    assert {(finding.kind, finding.culprits) for finding in said} == {("slow", (1,))}


def test_what_is_followed_goes_on_from_snapshots() -> None:
    spikes = generation(1, {1: 0.8}, ONSET, RELIEF)
    assert said_of(spikes, restarts=9) == said_of(spikes) != []


@pytest.mark.parametrize("seed", tries(2, deep=20))
def test_what_takes_longer_for_all_ranks_is_nobodys(seed: int) -> None:
    assert said_of(generation(seed, dict.fromkeys(range(RANKS), 0.5), ONSET), seed) == []


def test_it_goes_on_when_single_steps_become_slow_as_well() -> None:
    """Of all ranks, for a while."""
    everybody = [Spike(ranks=(rank,), step=step, extra_s=0.03) for step in range(520, 600) for rank in range(RANKS)]
    said = said_of([*generation(1, {1: 0.8}, ONSET), *everybody])
    assert {(finding.kind, finding.culprits) for finding in said} == {("slow", (1,))}
    assert len({finding.id for finding in said}) == 1
    assert said[-1].relief is None


@pytest.mark.parametrize("rank", [0, 3])
def test_what_one_rank_does_for_all_in_a_rhythm_may_become_longer(rank: int) -> None:
    """A checkpoint grows: no rank is slow for that."""
    grows = [
        Spike(ranks=(rank,), step=step, extra_s=0.3 if step < ONSET else 0.9) for step in range(0, ITERATIONS, PERIOD)
    ]
    assert said_of(grows) == []
