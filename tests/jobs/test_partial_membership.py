"""Communicators whose members no host knows alone: put together, and nothing concluded where that cannot be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.calls import FIRST_PLACE, CallBatch
from pacehound.model.codec import encode
from pacehound.model.events import UNKNOWN_MEMBER, HostSample, Incident, Progress, Tick, Topology, Watermark
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import ExitRank, SlowCompute, StopRank
from simulator.job import simulate
from simulator.source import LAUNCH_ONLY
from simulator.spec import JobSpec
from streams.pipeline import Pipeline
from streams.rounds.merge import CLOSED_NS
from streams.rounds.stage_one import StageOne
from tests.fakes.places import by_places

SETTINGS = Settings.load({}, ["hang.suspect_after_s=3"])
LATENESS_NS = round(SETTINGS.stream.lateness_s * 1e9)
TWO_HOSTS = JobSpec(iterations=150, layout=Layout(tp=2, dp=2, pp=2), ranks_per_host=4)
FAULTS = {
    "slow": SlowCompute(ranks=(5,), factor=1.5, from_step=60, to_step=120),
    "stopped": StopRank(rank=3, step=60, resume_after_s=8),
    "killed": ExitRank(rank=6, step=60, signal=9),
}


def incidents(events: Iterable[Event]) -> list[bytes]:
    pipeline = Pipeline(SETTINGS)
    return [encode(out) for event in events for out in pipeline.on_event(event) if isinstance(out, Incident)]


@cache
def known(fault: str) -> tuple[Event, ...]:
    """The job as hosts tell it that know all members."""
    return tuple(simulate(replace(TWO_HOSTS, faults=(FAULTS[fault],))).events())


@cache
def said_of_known(fault: str) -> tuple[bytes, ...]:
    """What every other telling of that job must lead to."""
    said = tuple(incidents(known(fault)))
    assert said
    return said


@cache
def healthy() -> tuple[Event, ...]:
    """A healthy job of two hosts that know their own ranks alone."""
    return tuple(by_places(simulate(replace(TWO_HOSTS, iterations=30)).events()))


def late(events: Iterable[Event], host: str, by: int) -> list[Event]:
    """Each communicator's word of one host comes so many messages late; its own order is kept."""
    streams: dict[str, list[Event]] = {}
    for event in events:
        streams.setdefault(route(event)[1], []).append(event)
    merged = []
    for stream in streams.values():
        is_late = [not isinstance(event, HostSample) and getattr(event, "host", "") == host for event in stream]
        at = sorted(range(len(stream)), key=lambda i: (i + by * is_late[i], i))
        merged.append([stream[i] for i in at])
    # In turns, as partitions are read.
    return [stream[at] for at in range(max(map(len, merged))) for stream in merged if at < len(stream)]


@pytest.mark.parametrize("fault", FAULTS)
def test_incidents_are_those_of_hosts_that_know_all_members(fault: str) -> None:
    partial = list(by_places(known(fault)))
    assert any(isinstance(event, Topology) and event.is_partial for event in partial)
    assert any(isinstance(e, CallBatch) and (e.integers("peer") <= FIRST_PLACE).any() for e in partial)
    assert tuple(incidents(partial)) == said_of_known(fault)


def test_a_host_that_comes_late_changes_nothing_that_is_said() -> None:
    assert tuple(incidents(late(by_places(known("slow")), "node-1", 40))) == said_of_known("slow")


def test_launches_alone_are_enough_to_put_the_members_together() -> None:
    spec = replace(TWO_HOSTS, faults=(FAULTS["slow"],), source=LAUNCH_ONLY)
    events = list(simulate(spec).events())
    assert incidents(by_places(events)) == incidents(events) != []


class PartialMembers:
    """One communicator of ranks 0 and 4 on two hosts, in stage one."""

    def __init__(self) -> None:
        events = healthy()
        count = Counter(e.communicator for e in events if isinstance(e, CallBatch) and e.ordinal < 1 << 20)
        partial = {e.communicator: e for e in events if isinstance(e, Topology) and e.is_partial}
        self.key = max(sorted(partial), key=lambda name: count[name])
        self.events = [e for e in events if getattr(e, "communicator", "") == self.key]
        self.hosts = sorted({e.host for e in self.events if isinstance(e, Topology)})
        self.stage = StageOne(SETTINGS)

    def of(self, host: str) -> list[Event]:
        return [event for event in self.events if getattr(event, "host", "") == host]

    def tick(self, time_ns: int) -> list[object]:
        first = self.events[0]
        return list(self.stage.on_event(Tick(job=first.job, attempt=0, time_ns=time_ns, stream=self.key)))


def test_what_waits_comes_out_when_the_last_place_is_taken() -> None:
    world = PartialMembers()
    first, second = world.hosts
    for event in world.of(first):
        assert world.stage.on_event(event) == []
    stream = world.stage.open_stream()
    assert stream is not None
    assert not stream.is_complete
    topology, *rest = world.of(second)
    told = world.stage.on_event(topology)
    announced = [event for event in told if isinstance(event, Topology)]
    assert len(announced) == 2
    assert not any(event.is_partial for event in announced)
    out = [one for event in rest for one in world.stage.on_event(event)]
    rounds = [one for one in [*told, *out] if isinstance(one, (Rounds, PairRounds))]
    assert sum(len(one) for one in rounds) > 0
    calls = sum(len(event) for event in world.events if isinstance(event, CallBatch))
    assert sum(int((one.arrival_ns > 0).sum()) for one in rounds) == calls
    assert world.stage.is_closed


def test_a_host_that_never_speaks_holds_nobody_up_and_its_silence_is_told() -> None:
    world = PartialMembers()
    first = world.hosts[0]
    for event in world.of(first):
        world.stage.on_event(event)
    created_ns = world.events[0].time_ns  # type: ignore[union-attr]
    assert world.tick(created_ns + LATENESS_NS - 1) == []
    told = world.tick(created_ns + LATENESS_NS)
    calls = sum(len(event) for event in world.of(first) if isinstance(event, CallBatch))
    (lost,) = [event for event in told if isinstance(event, Progress)]
    assert (lost.ranks, lost.dropped_total) == ((), calls)
    (watermark,) = [event for event in told if isinstance(event, Watermark)]
    assert watermark.time_ns == CLOSED_NS  # its only host has closed it
    assert world.stage.is_closed
    assert world.stage.communicator is not None
    assert world.stage.communicator.all_counts() == {"unplaced_calls": calls}


def test_what_waits_is_bounded_and_what_is_dropped_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.rounds.partial_membership.MAX_WAITING_CALLS", 40)
    world = PartialMembers()
    first, second = world.hosts
    for event in world.of(first):
        world.stage.on_event(event)
    assert world.stage.communicator is not None
    dropped = world.stage.communicator.all_counts()["unplaced_calls"]
    out = [one for event in world.of(second) for one in world.stage.on_event(event)]
    told = [one for one in out if isinstance(one, Progress) and one.host == first]
    calls = sum(len(event) for event in world.of(first) if isinstance(event, CallBatch))
    assert calls - 40 <= told[-1].dropped_total <= dropped <= calls


def test_a_restarted_operator_goes_on_in_the_middle_of_waiting() -> None:
    events = list(by_places(known("killed")))
    pipeline = Pipeline(SETTINGS)
    out: list[bytes] = []
    for number, event in enumerate(late(events, "node-1", 40)):
        if number % 53 == 0:
            pipeline = Pipeline.restore(pipeline.snapshot(), SETTINGS)
        out += [encode(one) for one in pipeline.on_event(event) if isinstance(one, Incident)]
    assert tuple(out) == said_of_known("killed")


def test_places_that_cannot_be_are_refused_and_change_nothing() -> None:
    world = PartialMembers()
    first, second = world.hosts
    (one, *_), (other, *_) = world.of(first), world.of(second)
    assert isinstance(one, Topology)
    assert isinstance(other, Topology)
    world.stage.on_event(one)
    (rank,) = [r for r in one.members if r != UNKNOWN_MEMBER][:1]
    with pytest.raises(InvalidEvent, match="it was announced with"):
        world.stage.on_event(replace(other, members=(*other.members, UNKNOWN_MEMBER)))
    taken = tuple(r if r != UNKNOWN_MEMBER else UNKNOWN_MEMBER for r in reversed(other.members))
    with pytest.raises(InvalidEvent, match=f"rank {other.host_ranks[0]} has place"):
        world.stage.on_event(replace(other, members=taken))
    batch = next(event for event in world.of(first) if isinstance(event, CallBatch))
    with pytest.raises(InvalidEvent, match="has not announced"):
        world.stage.on_event(replace(batch, host="elsewhere"))
    assert rank in one.host_ranks
    assert len(world.stage.on_event(other)) == 2
    repeated = world.stage.on_event(one)  # sent twice, as everything may be
    assert repeated == []
