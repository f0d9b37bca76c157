"""A rank that stops the job seldom, or in a rhythm: it is named, and what the script does in a rhythm is not."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pacehound.model.events import Finding
from simulator.faults import Spike
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import tries
from tests.fakes.spiked_job import RANKS, findings_of

ONSET, FIRST = 300, 0


def said_of(spikes: Sequence[Spike], iterations: int, seed: int = 3, restarts: int = 0) -> list[Finding]:
    """What is said of a job whose level does not move."""
    said = findings_of(spikes, iterations, seed, restarts)
    return [finding for finding in said if finding.kind != "blind"]


def pauses(
    rank: int, every: int, extra_s: float = 0.3, since: int = ONSET, until: int = 1_200, late: int = 0, seed: int = 0
) -> list[Spike]:
    """Of one rank, in whole steps, or up to some steps late as what goes by a clock is."""
    drawn = random.Random(seed)
    steps = range(since, until, every)
    return [Spike(ranks=(rank,), step=step + drawn.randint(0, late), extra_s=extra_s) for step in steps]


def named(said: Sequence[Finding]) -> set[tuple[str, tuple[int, ...]]]:
    """What kind of finding has which names."""
    return {(finding.kind, finding.culprits) for finding in said}


@pytest.mark.parametrize("every", [6, 10, 40])
def test_a_rank_that_begins_to_pause_in_a_rhythm_is_named(every: int) -> None:
    said = said_of(pauses(2, every), 1_200)
    assert named(said) == {("intermittent", (2,))}
    first = said[0]
    assert first.onset is not None
    assert first.detected is not None
    assert (first.onset.step, first.cause) == (ONSET, "S1")
    assert (first.detected.step or 0) <= ONSET + 8 * every  # fewer may be chance
    assert any(f"every {every} steps" in words for words in words_of(first))


@pytest.mark.parametrize("seed", tries(2, deep=20))
def test_a_rank_that_pauses_seldom_is_named(seed: int) -> None:
    """Once in ninety steps, by a clock: never five within the window in which bursts are counted."""
    spikes = pauses(1, 90, extra_s=1.0, until=1_100, late=9, seed=seed)
    assert named(said_of(spikes, 1_100, seed)) == {("intermittent", (1,))}


@pytest.mark.parametrize("seed", tries(2, deep=20))
def test_its_pauses_are_told_from_the_jitter_of_all_ranks(seed: int) -> None:
    """Short ones of everybody are told first, and nobody is named for those."""
    drawn = random.Random(seed)
    jitter = [
        Spike(ranks=(rank,), step=step, extra_s=drawn.uniform(0.03, 0.09))
        for step in range(100, 1_500)
        for rank in range(RANKS)
        if drawn.random() < 0.012
    ]
    said = said_of([*jitter, *pauses(1, 70, extra_s=0.8, until=1_490, late=3, seed=seed)], 1_500, seed)
    assert {finding.culprits for finding in said} <= {(), (1,)}
    assert (said[0].culprits, said[-1].culprits) == ((), (1,))
    assert len({finding.id for finding in said}) == 1
    assert [finding.version for finding in said] == list(range(len(said)))


def test_all_ranks_of_a_host_that_pauses_are_named_together() -> None:
    """One of four hosts, after as many pauses as it takes for one of four ranks."""
    theirs = tuple(range(RANKS, 2 * RANKS))
    spikes = [Spike(ranks=theirs, step=spike.step, extra_s=0.4) for spike in pauses(1, 90, until=1_000, late=9)]
    said = [finding for finding in findings_of(spikes, 960, 3, n_hosts=4) if finding.culprits]
    assert named(said) == {("intermittent", theirs)}


def test_it_is_over_when_they_come_no_more() -> None:
    last = said_of(pauses(1, 40, until=800), 1_200)[-1]
    assert last.relief is not None
    assert (last.version, last.relief.step, last.culprits) == (1, 780, (1,))


def test_what_is_followed_goes_on_from_snapshots() -> None:
    spikes = pauses(2, 40, until=700)
    assert said_of(spikes, 1_000, restarts=9) == said_of(spikes, 1_000) != []


@pytest.mark.parametrize("every", [2, 3])
def test_so_many_that_the_level_moves_are_still_of_whom_they_were(every: int) -> None:
    said = said_of(pauses(1, every, extra_s=0.15, until=700), 700)
    assert named(said) == {("intermittent", (1,)), ("slow", (1,))}
    assert not any(finding.relief for finding in said)


@pytest.mark.parametrize("rank", [FIRST, 3])
def test_what_a_rank_does_in_whole_steps_from_the_beginning_on_is_meant(rank: int) -> None:
    spikes = pauses(rank, 40, since=40)
    assert said_of([*spikes, Spike(ranks=(rank,), step=777, extra_s=0.2)], 1_200) == []


@pytest.mark.parametrize("late", [0, 2])
def test_what_the_first_rank_begins_to_do_in_a_rhythm_is_meant(late: int) -> None:
    assert said_of(pauses(FIRST, 80, until=1_100, late=late), 1_100) == []


def test_an_evaluation_of_which_a_rank_has_the_longest_part_is_meant() -> None:
    spikes = [
        Spike(ranks=(rank,), step=step, extra_s=1.0 if rank == 2 and step > 600 else 0.5)
        for step in range(80, 1_200, 80)
        for rank in range(RANKS)
    ]
    assert said_of(spikes, 1_200) == []


@pytest.mark.parametrize("seed", tries(3, deep=60))
def test_seldom_pauses_of_all_ranks_alike_name_nobody(seed: int) -> None:
    drawn = random.Random(seed)
    spikes = [
        Spike(ranks=(rank,), step=step, extra_s=min(0.05 * drawn.paretovariate(1.2), 8.0))
        for step in range(100, 1_500)
        for rank in range(RANKS)
        if drawn.random() < 0.003
    ]
    assert not any(finding.culprits for finding in said_of(spikes, 1_500, seed))
