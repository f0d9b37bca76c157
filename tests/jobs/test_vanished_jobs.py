"""Jobs whose machines vanish are given up after an hour of ticks, with a reason, and nothing of them stays."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pacehound.model.events import Finding, HostSample, Incident, Tick, Topology
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from streams.job.operator import JobOperator
from streams.pipeline import Pipeline
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.giving_up import GIVEN_UP
from streams.rounds.stage_one import StageOne
from streams.rounds.thresholds import GIVEN_UP_AFTER_NS
from tests.fakes.evidence_words import words_of

SETTINGS = Settings.load({}, ["stream.tick_s=10"])
"""An hour has fewer steps then."""
S = 1_000_000_000
HOUR_S = GIVEN_UP_AFTER_NS // S


def begun(name: str = "vanished", iterations: int = 20, of: int = 40) -> list[Event]:
    """What is heard of a job before its machines vanish."""
    spec = JobSpec(job=name, layout=Layout(tp=2, dp=2), iterations=of, ranks_per_host=2)
    events = list(simulate(spec).events())
    return events[: len(events) * iterations // of]


def last_ns(events: list[Event]) -> int:
    return max(event.time_ns for event in events if isinstance(event, HostSample))


def ticked(pipeline: Pipeline, from_ns: int, seconds: int, every_s: int = 50) -> Iterator[Event]:
    """Every stream that is open is ticked, as `Silence` does it: here more seldom than once a second."""
    for second in range(0, seconds, every_s):
        now_ns = from_ns + second * S
        for name, opened in pipeline.streams().items():
            yield from pipeline.on_event(Tick(job=opened.job, attempt=opened.attempt, time_ns=now_ns, stream=name))


def feed(pipeline: Pipeline, events: list[Event]) -> list[Event]:
    return [result for event in events for result in pipeline.on_event(event)]


def test_a_job_that_nobody_tells_of_is_closed_after_an_hour_with_the_reason() -> None:
    pipeline, events = Pipeline(SETTINGS), begun()
    feed(pipeline, events)
    out = list(ticked(pipeline, last_ns(events) + 6 * S, HOUR_S - 60))
    (opened, *_) = [event for event in out if isinstance(event, Incident)]
    assert opened.findings[0].kind == "blind"
    assert not any(event.state == "closed" for event in out if isinstance(event, Incident))
    assert pipeline.streams()
    out = list(ticked(pipeline, last_ns(events) + (HOUR_S - 54) * S, 200))
    closed = [event for event in out if isinstance(event, Incident) and event.state == "closed"]
    assert {incident.id for incident in closed} >= {opened.id}
    assert {incident.closed_why for incident in closed} == {GIVEN_UP}
    assert not any(
        "is heard again" in sentence for event in out if isinstance(event, Finding) for sentence in words_of(event)
    )
    assert pipeline.streams() == {}
    assert feed(pipeline, begun()[-30:]) == []


def test_after_an_outage_of_ours_nobody_is_given_up_at_once() -> None:
    """Hours behind the last word comes the first tick: what was away was we."""
    pipeline, events = Pipeline(SETTINGS), begun()
    feed(pipeline, events)
    list(ticked(pipeline, last_ns(events) + 2 * HOUR_S * S, 600))
    assert pipeline.streams()
    again = [replace(e, time_ns=last_ns(events) + 3 * HOUR_S * S) for e in events if isinstance(e, HostSample)][-2:]
    feed(pipeline, list(again))
    list(ticked(pipeline, last_ns(events) + 4 * HOUR_S * S, 600))
    assert pipeline.streams()


def test_one_host_that_has_gone_is_given_up_and_the_job_goes_on() -> None:
    pipeline = Pipeline(SETTINGS)
    events = begun(iterations=40, of=400)
    gone = {event.host for event in events if isinstance(event, Topology)}.difference({"host0"})
    feed(pipeline, events)
    out: list[Event] = []
    for second in range(6, HOUR_S + 120, 40):
        now_ns = last_ns(events) + second * S
        for event in [e for e in events if isinstance(e, HostSample) and e.host == "host0"][-1:]:
            out += pipeline.on_event(replace(event, time_ns=now_ns))
        for name, opened in pipeline.streams().items():
            if not name.startswith("host:") or set(opened.hosts) & gone:
                out += pipeline.on_event(Tick(job=opened.job, attempt=0, time_ns=now_ns, stream=name))
    said = [sentence for event in out if isinstance(event, Finding) for sentence in words_of(event)]
    assert any(f"is given up: {GIVEN_UP}" in sentence for sentence in said)
    assert list(pipeline.streams()) == ["host:vanished/host0"]


@pytest.mark.parametrize("topic", ["calls", "hosts"])
def test_stage_one_asks_for_no_ticks_any_more(topic: str) -> None:
    """On Kafka a key is closed then, and of closed keys the last thousand are kept."""
    events = begun()
    world = next(event.communicator for event in events if isinstance(event, Topology) and event.is_world)
    of_world = [event for event in events if getattr(event, "communicator", "") == world]
    of_host = [event for event in events if isinstance(event, HostSample) and event.host == "host0"]
    stage, stream = StageOne(SETTINGS), world if topic == "calls" else "host:vanished/host0"
    for event in of_world if topic == "calls" else of_host:
        stage.on_event(event)
    assert stage.open_stream() is not None
    for second in range(6, 10 + HOUR_S):
        stage.on_event(Tick(job="vanished", attempt=0, time_ns=last_ns(events) + second * S, stream=stream))
    assert stage.is_closed
    assert stage.open_stream() is None


def operators() -> Counter[str]:
    gc.collect()
    kinds = (CommunicatorOperator, JobOperator, StageOne)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


def test_of_jobs_that_have_vanished_nothing_stays() -> None:
    pipeline, before = Pipeline(SETTINGS), operators()
    for number in range(3):
        events = begun(f"job-{number}", iterations=8, of=20)
        feed(pipeline, events)
    assert operators() != before
    list(ticked(pipeline, last_ns(events) + 6 * S, HOUR_S + 120, every_s=50))
    assert operators() == before


def test_a_job_that_ended_on_its_hosts_before_it_joined_a_group_is_forgotten_after_an_hour() -> None:
    """Not at once: another host of the job may yet begin."""
    pipeline, processes = Pipeline(SETTINGS), begun()
    sample = next(event for event in processes if isinstance(event, HostSample) and event.processes)
    feed(pipeline, [sample, replace(sample, time_ns=sample.time_ns + S, closed=True, closed_why="job ended")])
    assert list(pipeline.streams()) == ["host:vanished/host0"]
    list(ticked(pipeline, sample.time_ns + 6 * S, HOUR_S + 200))
    assert pipeline.streams() == {}


def test_a_host_that_joined_no_group_and_vanished_does_not_hold_up_its_job() -> None:
    """All streams of a job are put into one order: nothing is said while one of them is waited for."""
    pipeline, events = Pipeline(SETTINGS), begun(iterations=40)
    sample = next(event for event in events if isinstance(event, HostSample) and event.processes)
    feed(pipeline, [replace(sample, host="never-joined"), *events])
    assert "host:vanished/never-joined" in pipeline.streams()
    list(ticked(pipeline, last_ns(events) + 6 * S, HOUR_S + 200))
    assert pipeline.streams() == {}


def test_of_a_job_of_which_nothing_was_of_use_nothing_stays() -> None:
    pipeline, events = Pipeline(SETTINGS), begun()
    sample = next(event for event in events if isinstance(event, HostSample))
    feed(pipeline, [replace(sample, processes=())])
    assert pipeline._jobs == {}
