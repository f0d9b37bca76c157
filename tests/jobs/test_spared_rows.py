"""Agents above their budget leave rows of small calls out: nothing false follows, and what is true is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from collector.calls import representative_rank
from pacehound.model.events import Changepoint, Finding, Incident, IterationSample, Markers, Progress
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import ExitRank, SlowCompute, SlowLink, StopRank
from simulator.job import JobSpec, simulate
from streams.pipeline import Pipeline
from tests.fakes.agents_over_budget import AgentsOverBudget
from tests.fakes.examples import steps, tries

SETTINGS = Settings.load({}, ["hang.suspect_after_s=3"])
SMALL = {"layout": Layout(tp=4, dp=2, pp=1), "tp_bytes": 4_096, "dp_bytes": 65_536, "ranks_per_host": 4}


@pytest.fixture(autouse=True)
def _few_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated seconds are short of calls."""
    monkeypatch.setattr(representative_rank, "MIN_SAVED_ROWS", 1)


def now_and_then(seed: int) -> Callable[[str, int], bool]:
    """Each host backs off by itself, in stretches of some seconds."""

    def is_over_budget(host: str, time_ns: int) -> bool:
        return random.Random(f"{seed} {host} {time_ns // 3_000_000_000}").random() < 0.5

    return is_over_budget


def always(host: str, time_ns: int) -> bool:
    return True


def events_of(*faults: object, iterations: int, **extra: object) -> list[Event]:
    spec = JobSpec(iterations=iterations, faults=faults, **{**SMALL, **extra})  # type: ignore[arg-type]
    return list(simulate(spec).events())


def sent_over_budget(events: list[Event], is_over_budget: Callable[[str, int], bool]) -> list[Event]:
    agents = AgentsOverBudget(events, is_over_budget)
    arrived = list(agents.send(events))
    assert agents.sent_rows < 0.8 * agents.all_rows
    return arrived


def run(events: list[Event]) -> tuple[Pipeline, list[Event]]:
    pipeline = Pipeline(SETTINGS)
    return pipeline, [out for event in events for out in pipeline.on_event(event)]


def said(events: list[Event]) -> list[tuple[object, ...]]:
    last: dict[str, Finding] = {}
    for event in events:
        if isinstance(event, Incident):
            last.update((finding.id, finding) for finding in event.findings)
    return sorted((f.kind, f.verdict, f.cause, f.culprits, f.links) for f in last.values())


@pytest.mark.parametrize("seed", tries(1))
def test_a_clean_job_has_no_finding_and_no_call_counts_as_missing(seed: int) -> None:
    events = events_of(iterations=steps(150, 300), seed=seed, jitter=0.03, spike_probability=0.0005, spike_s=0.05)
    pipeline, out = run(sent_over_budget(events, now_and_then(seed)))
    assert [e for e in out if isinstance(e, (Finding, Incident, Changepoint))] == []
    assert pipeline.all_counts() == {}


@pytest.mark.parametrize(
    ("culprit", "is_over_budget"), [(0, always), (6, now_and_then(7))], ids=["always", "now and then"]
)
def test_a_slow_rank_is_named(culprit: int, is_over_budget: Callable[[str, int], bool]) -> None:
    slow = SlowCompute(ranks=(culprit,), factor=1.5, from_step=steps(60, 100))
    events = events_of(slow, iterations=steps(90, 150), seed=culprit)
    assert said(run(sent_over_budget(events, is_over_budget))[1]) == [("slow", "culprit", "S1", (culprit,), ())]


@pytest.mark.parametrize(
    ("from_step", "to_step"),
    [(0, 1_000), *(pytest.param(*steps, marks=pytest.mark.prove) for steps in ((0, 450), (450, 1_000)))],
    ids=["always", "before", "since"],
)
def test_a_rank_that_is_late_for_every_small_call_by_less_than_is_averaged_is_named(
    from_step: int, to_step: int
) -> None:
    """By 0.24 and 0.48 ms for half of its calls each; its host spares rows always, before that, or since then."""
    events = events_of(SlowCompute(ranks=(3,), factor=1.12, from_step=450), iterations=900)
    ends_ns = [event.time_ns for event in events if isinstance(event, Markers)]
    first_ns, last_ns = ends_ns[0], ends_ns[-1]

    def is_over_budget(host: str, time_ns: int) -> bool:
        return from_step <= 900 * (time_ns - first_ns) / (last_ns - first_ns) < to_step

    agents = AgentsOverBudget(events, is_over_budget)
    (finding,) = said(run(list(agents.send(events)))[1])
    assert agents.sent_rows < agents.all_rows
    assert (finding[0], finding[3]) == ("slow", (3,))


AT_STEP, WITH_A_HANG = steps(50, 100), steps(80, 150)
HANGS_AND_EXITS = pytest.mark.parametrize(
    "fault",
    [
        StopRank(rank=3, step=AT_STEP, resume_after_s=8),
        ExitRank(rank=6, step=AT_STEP, signal=9),
        SlowLink(link=(0, 4), bandwidth_factor=0.0, from_step=AT_STEP),
    ],
    ids=["stopped", "killed", "dead link"],
)


@HANGS_AND_EXITS
def test_hangs_and_exits_are_told_as_if_every_row_had_come(fault: object) -> None:
    events = events_of(fault, iterations=WITH_A_HANG)
    expected = said(run(events)[1])
    assert expected
    for is_over_budget in (always, now_and_then(3)):
        assert said(run(sent_over_budget(events, is_over_budget))[1]) == expected


@pytest.mark.prove
def test_iterations_are_found_by_their_calls_where_no_optimizer_is_seen() -> None:
    events = [
        replace(event, marks_iterations=False) if isinstance(event, Progress) else event
        for event in events_of(iterations=600)
        if not isinstance(event, Markers)
    ]
    sent = events, sent_over_budget(events, now_and_then(1))
    whole, spared = ([e for e in run(arrived)[1] if isinstance(e, IterationSample)] for arrived in sent)
    assert len(whole) > 100
    assert [sample.step for sample in spared] == [sample.step for sample in whole]
    assert sum(s.step_time_s for s in spared) == pytest.approx(sum(s.step_time_s for s in whole), rel=1e-4)
