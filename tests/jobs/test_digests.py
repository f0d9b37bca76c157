"""Agents that tell of iterations instead of calls: what is true is found all the same, and nothing else."""

from __future__ import annotations

import random

import pytest

from bench.rig.digesting_agents import DigestingAgents
from bench.rig.vitals import with_vitals
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.conclusions import Conclusions
from pacehound.model.digests import is_of_digests
from pacehound.model.events import Changepoint, Finding, HostVitals, Incident, Markers, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from simulator.faults import ExitRank, SlowCompute, SlowLink, StopRank
from simulator.job import JobSpec, simulate
from simulator.suites.root_cause_jobs import case_of
from streams.job.stage_two import StageTwo
from streams.pipeline import Pipeline
from streams.scoring.verdicts import outcome_of
from streams.scoring.whole_job import findings_of_job
from streams.snapshots.schema import state_codec
from tests.fakes.examples import steps, tries
from tests.fakes.made_pairs import pairs_of
from tests.jobs.test_spared_rows import HANGS_AND_EXITS, SETTINGS, WITH_A_HANG, run, said

LAYOUT = {"layout": Layout(tp=2, dp=2, pp=2), "ranks_per_host": 4}


def events_of(*faults: object, iterations: int, **extra: object) -> list[Event]:
    spec = JobSpec(iterations=iterations, faults=faults, **{**LAYOUT, **extra})  # type: ignore[arg-type]
    return list(simulate(spec).events())


def digested(events: list[Event], at_most: float = 0.5) -> tuple[Pipeline, list[Event]]:
    agents = DigestingAgents(events)
    pipeline, out = run(list(agents.send(events)))
    assert agents.sent_rows < at_most * agents.all_rows
    return pipeline, out


@pytest.mark.parametrize("seed", tries(1))
def test_a_clean_job_has_no_finding_and_nothing_counts_as_missing(seed: int) -> None:
    events = events_of(iterations=steps(150, 300), seed=seed, jitter=0.03, spike_probability=0.0005, spike_s=0.05)
    pipeline, out = digested(events)
    assert [one for one in out if isinstance(one, (Finding, Incident, Changepoint))] == []
    assert pipeline.all_counts() == {}
    joined = [one for one in out if isinstance(one, Rounds) and is_of_digests(one.source)]
    assert {len(one.ranks) for one in joined if one.is_pair} == {2}
    per_rank = max(event.steps[-1] for event in events if isinstance(event, Markers)) - 2
    worlds = [one for one in joined if len(one.ranks) == 2 and not one.is_pair]
    assert worlds
    assert all((one.end_ns > 0).all() for one in joined)
    assert sum(len(one) for one in worlds) % per_rank == 0


@pytest.mark.parametrize("culprit", (5, 0)[: len(tries(1))])
def test_a_slow_rank_is_named(culprit: int) -> None:
    slow = SlowCompute(ranks=(culprit,), factor=1.5, from_step=steps(60, 100))
    events = events_of(slow, iterations=steps(90, 150), seed=culprit)
    assert said(digested(events)[1]) == [("slow", "culprit", "S1", (culprit,), ())]


def test_it_is_the_same_whether_hosts_say_beside_iterations_what_hardware_is_like_or_by_itself() -> None:
    slow = SlowCompute(ranks=(5,), factor=1.5, from_step=steps(60, 100))
    events = events_of(slow, iterations=steps(90, 150))
    sent = list(DigestingAgents(list(with_vitals(events))).send(list(with_vitals(events))))
    beside = [
        Flush(job=one.job, attempt=one.attempt, host=one.host, shard=0, vitals=(one,))
        if isinstance(one, HostVitals)
        else one
        for one in sent
    ]
    assert any(isinstance(one, HostVitals) for one in sent)
    assert [codec.encode(one) for one in run(beside)[1]] == [codec.encode(one) for one in run(sent)[1]]


def test_a_rank_that_is_slow_from_the_first_step_is_named() -> None:
    events = events_of(SlowCompute(ranks=(3,), factor=1.5, from_step=0), iterations=steps(60, 100))
    assert [finding[3] for finding in said(digested(events)[1])] == [(3,)]


@HANGS_AND_EXITS
def test_hangs_and_exits_are_told_as_if_every_call_had_come(fault: object) -> None:
    events = events_of(fault, iterations=WITH_A_HANG)
    expected = said(run(events)[1])
    assert expected
    assert said(digested(events)[1]) == expected


@pytest.mark.parametrize("seed", [24, 32], ids=["dead link", "gone host"])
def test_hangs_in_the_first_seconds_are_judged_by_what_hosts_said_at_the_same_time(seed: int) -> None:
    """Where they spoke of their ranks seconds apart, eight innocent ones were named."""
    case = case_of("c10d hooks, gloo", seed)
    events = list(simulate(case.spec).events())
    found = findings_of_job(DigestingAgents(events).send(events), SETTINGS)
    assert outcome_of(found, case.truth) == "named"


LONG = {"forward_s": 1.5, "optimizer_s": 0.6}
"""Iterations of several seconds: between their ends hosts say no more than the time."""


@pytest.mark.parametrize(
    "fault",
    [
        StopRank(rank=3, step=14),
        ExitRank(rank=6, step=14, signal=9),
        SlowLink(link=(0, 4), bandwidth_factor=0.0, from_step=14),
    ],
    ids=["stopped", "killed", "dead link"],
)
def test_heartbeats_within_long_iterations_hide_no_hang_and_no_exit(fault: object) -> None:
    events = events_of(fault, iterations=18, **LONG)
    agents = DigestingAgents(events)
    arrived = list(agents.send(events))
    beats = [one for one in arrived if isinstance(one, Flush)]
    assert len(beats) > 100
    assert said(run(arrived)[1]) == said(run(events)[1]) != []


def test_a_worker_that_takes_over_in_mid_job_says_the_same() -> None:
    events = events_of(SlowCompute(ranks=(5,), factor=1.5, from_step=steps(60, 100)), iterations=steps(90, 140))
    arrived = list(DigestingAgents(events).send(events))
    whole, moved = Pipeline(SETTINGS), Pipeline(SETTINGS)
    expected, found = [], []
    for number, event in enumerate(arrived):
        expected += whole.on_event(event)
        found += moved.on_event(event)
        if number % (len(arrived) // 9) == 0:
            moved = Pipeline.restore(moved.snapshot(), SETTINGS)
    assert list(map(codec.encode, found)) == list(map(codec.encode, expected))
    assert [finding[3] for finding in said(found)] == [(5,)]


def test_digests_that_are_lost_are_counted_and_hold_nothing_up() -> None:
    iterations = steps(90, 150)
    events = events_of(SlowCompute(ranks=(5,), factor=1.5, from_step=steps(60, 100)), iterations=iterations)
    draw = random.Random(3)
    pipeline, out, lost = Pipeline(SETTINGS), [], 0
    for event in DigestingAgents(events).send(events):
        if isinstance(event, CallBatch) and is_of_digests(event.source) and draw.random() < 0.03:
            lost += len(event)
        else:
            out += pipeline.on_event(event)
    joined = [one for one in out if isinstance(one, Rounds) and is_of_digests(one.source)]
    missing = sum(int((one.end_ns == 0).sum()) for one in joined)
    assert 0 < missing <= lost
    assert [finding[:4] for finding in said(out)] == [("slow", "culprit", "S1", (5,))]
    assert max(int(one.seq[-1]) for one in joined) == iterations - 1


def of_stage_two(events: list[Event], *, as_tables: bool, is_moved: bool = False) -> list[bytes]:
    """What stage two says of a job whose pairs' digests it hears of pair by pair, or all that are said at once."""
    pipeline, two = Pipeline(SETTINGS), StageTwo(events[0].job, SETTINGS)
    said: list[bytes] = []
    for number, event in enumerate(events):
        results = [
            one
            for result in pipeline._stage_one(event)
            for one in (result.by_pair() if isinstance(result, PairRounds) else (result,))
        ]
        pairs = [one for one in results if isinstance(one, Rounds) and one.is_pair and one.is_digest]
        told: list[Event | PairRounds] = list(results)
        if as_tables and pairs:
            told = [pairs_of(pairs), *(one for one in results if not any(one is pair for pair in pairs))]
        for one in told:
            if isinstance(one, (Rounds, PairRounds, Watermark)):
                whole = Conclusions(job=one.job, attempt=one.attempt, said=(one,))
                (one,) = codec.decode(codec.encode(whole))
            said += map(codec.encode, two.on_event(one))
        if is_moved and number % (len(events) // 9) == 0:
            two = state_codec(SETTINGS).decode(state_codec(SETTINGS).encode(two))
    return said


@pytest.mark.parametrize(
    ("fault", "is_moved"),
    [
        (SlowCompute(ranks=(5,), factor=1.5, from_step=60), True),
        (SlowLink(link=(0, 4), bandwidth_factor=0.01, from_step=60), False),
        (StopRank(rank=3, step=70), False),
    ],
    ids=["slow rank", "slow link", "hang"],
)
def test_digests_of_pairs_in_tables_tell_all_that_they_tell_pair_by_pair(fault: object, is_moved: bool) -> None:
    """Every event, to the byte, also from snapshots."""
    events = events_of(fault, iterations=90)
    arrived = list(DigestingAgents(events).send(events))
    expected = of_stage_two(arrived, as_tables=False)
    assert any(isinstance(one, Finding) for message in expected for one in codec.decode(message))
    assert of_stage_two(arrived, as_tables=True, is_moved=is_moved) == expected
