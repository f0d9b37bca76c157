"""A host that could take part in a job again wakes nobody: whoever was told of the loss is told of nothing more."""

from __future__ import annotations

from dataclasses import replace

from pacehound.model.events import Incident
from pacehound.model.evidence.leaving import Joined, Left
from tests.fakes.events import START_NS, finding, incident
from tests.unit.alerts.test_alert_worker import FakeSink, World

MINUTE_NS = 60_000_000_000


def loss(**changes: object) -> Incident:
    left = finding(kind="exit", cause=None, magnitude=None, evidence=(Left(rank=2, pid=7, signal=9),))
    return incident(**({"findings": (left,)} | changes))


def with_joined(one: Incident) -> Incident:
    joined = Joined(back=("h2",), n_ranks=1, n_now=3, n_before=4, at_ns=START_NS + 5 * MINUTE_NS)
    findings = (one.findings[0].next_version(joined),)
    return replace(one, version=one.version + 1, time_ns=joined.at_ns, findings=findings)


def test_it_is_no_news_of_an_incident_that_is_open() -> None:
    world = World(FakeSink(), FakeSink("pagerduty", groups=True, acknowledges=True))
    world.take(loss())
    told = [list(sink.told) for sink in world.sinks]
    assert all(told)
    assert world.take(with_joined(loss())) == []
    assert world.wait(3_600.0) == []
    assert [sink.told for sink in world.sinks] == told


def test_it_opens_nothing_again_of_one_that_is_over() -> None:
    world = World(FakeSink(), FakeSink("pagerduty", groups=True, acknowledges=True))
    world.take(loss())
    over = loss(version=1, state="closed", closed_ns=START_NS + MINUTE_NS)
    world.take(over)
    world.wait(3_600.0)
    told = [list(sink.told) for sink in world.sinks]
    world.take(with_joined(over))
    world.wait(3_600.0)
    assert [sink.told for sink in world.sinks] == told
    world.restart()
    world.take(replace(with_joined(over), version=3))
    world.wait(3_600.0)
    assert [sink.told for sink in world.sinks] == told
