"""Steps that are long by fits: of one rank they name it, of all ranks alike nobody, and a name outlasts its end."""

from __future__ import annotations

import random

import pytest

from pacehound.model.events import Finding
from simulator.faults import Spike
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import tries
from tests.fakes.spiked_job import RANKS, findings_of

ITERATIONS = 420


def said_of(spikes: list[Spike], iterations: int = ITERATIONS, seed: int = 3, restarts: int = 0) -> list[Finding]:
    """What is said of a job whose level never moves, by pipelines that go on from a snapshot of the one before."""
    said = findings_of(spikes, iterations, seed, restarts)
    return [finding for finding in said if finding.kind != "blind"]


def paused(seed: int, share: float, ranks: tuple[int, ...], until: int = ITERATIONS) -> list[Spike]:
    """Pauses of a fifth of a second now and then, of these ranks alike."""
    drawn = random.Random(seed)
    return [
        Spike(ranks=(rank,), step=step, extra_s=0.2)
        for step in range(100, until)
        for rank in ranks
        if drawn.random() < share
    ]


@pytest.mark.parametrize("seed", tries(2, deep=20))
def test_a_rank_that_pauses_again_and_again_is_named_and_what_it_costs_grows_with_it(seed: int) -> None:
    said = said_of(paused(seed, 0.2, (2,)))
    last = said[-1]
    assert {finding.culprits for finding in said} <= {(), (2,)}  # of five it may be chance
    assert (last.id, last.kind, last.culprits, last.cause) == (said[0].id, "intermittent", (2,), "S1")
    assert [finding.version for finding in said] == list(range(len(said)))
    assert any("own time grew" in words for words in words_of(last))


@pytest.mark.parametrize("seed", tries(4, deep=60))
def test_pauses_of_all_ranks_alike_name_nobody(seed: int) -> None:
    said = said_of(paused(seed, 0.04, tuple(range(RANKS))))
    assert said
    assert not any(finding.culprits for finding in said)


def test_what_is_followed_goes_on_from_snapshots() -> None:
    spikes = paused(1, 0.15, (1,), until=300)
    assert said_of(spikes, restarts=9) == said_of(spikes) != []


def test_who_was_named_stays_named_when_it_is_over() -> None:
    said = said_of(paused(1, 0.15, (1,), until=200), iterations=700)
    assert said[-1].relief is not None
    assert (said[-1].culprits, said[-1].verdict) == ((1,), "culprit")
    assert said[-1].version == len(said) - 1


def by_fits(seed: int, rank: int) -> list[Spike]:
    """Late by 20 ms in each step since the 100th, and by 120 more in about each third."""
    drawn = random.Random(seed)
    return [Spike(ranks=(rank,), step=step, extra_s=0.02 + 0.12 * (drawn.random() < 0.35)) for step in range(100, 250)]


@pytest.mark.parametrize("seed", tries(3, deep=40))
def test_a_rank_that_is_late_in_each_step_and_very_late_by_fits_is_named(seed: int) -> None:
    """Less than half of the mean in most of them: those in which most of the time is lost tell."""
    last = said_of(by_fits(seed, rank=2), iterations=250)[-1]
    assert (last.kind, last.verdict, last.cause, last.culprits) == ("slow", "culprit", "S1", (2,))


@pytest.mark.parametrize("mean_s", [0.02, 0.08])
@pytest.mark.parametrize("seed", tries(3, deep=60))
def test_ranks_that_become_late_by_fits_all_alike_name_nobody(mean_s: float, seed: int) -> None:
    drawn = random.Random(seed)
    spikes = [
        Spike(ranks=(rank,), step=step, extra_s=mean_s + drawn.expovariate(1 / mean_s))
        for step in range(100, 250)
        for rank in range(RANKS)
    ]
    said = said_of(spikes, iterations=250)
    assert any(finding.kind == "slow" for finding in said)
    assert not any(finding.culprits for finding in said)
