"""Hosts of a large job that say all they have to say to one shard: what others join is relayed there and passed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count, cycle, islice

import pytest

from bench.rig import flushes
from bench.rig.flushes import together
from collector.agent.going_on import GoingOn
from pacehound.errors import PartlyRefused
from pacehound.model import codec, shards
from pacehound.model.events import Finding, Incident, IterationSample, Progress, Tick, Topology
from pacehound.model.flushes import Flush
from pacehound.model.relayed import Relayed
from pacehound.model.routing import HOST_STREAM, Event, route
from pacehound.model.shards import HOME_KEY
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import Fault, SlowCompute, StuckRanks
from simulator.job import JobSpec, simulate
from simulator.source import DEVICE_TIMES
from simulator.suites.random_jobs import RandomJob, random_job
from streams.job.stage_two import StageTwo
from streams.pipeline import Pipeline
from streams.rounds.home import Home
from streams.rounds.shard import Shard
from tests.fakes.both_stages import BothStages

SETTINGS = Settings.load({}, ["hang.suspect_after_s=3"])


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of 64 ranks is a large job."""
    monkeypatch.setattr(shards, "RANKS_PER_SHARD", 16)


def job(*faults: Fault, iterations: int = 60, ranks_per_host: int = 8, **spec: object) -> list[Event]:
    """What hosts of a job of 64 ranks say, each thing by itself."""
    whole = JobSpec(
        layout=Layout(tp=4, dp=8, pp=2),
        iterations=iterations,
        faults=faults,
        ranks_per_host=ranks_per_host,
        **{"source": DEVICE_TIMES, **spec},
    )
    return list(simulate(whole).events())


def read(event: Event) -> Event:
    """As it comes out of its bytes."""
    (found,) = codec.decode(codec.encode(event))
    return found


def at_home(events: Iterable[Event], *, again: bool = False) -> BothStages:
    worker = BothStages(SETTINGS, again)
    for event in together(events):
        worker.hear(read(event))
    return worker


def verdicts(events: Iterable[Event]) -> list[Event]:
    """What a user hears."""
    return [event for event in events if isinstance(event, (Incident, Finding, IterationSample))]


def apart(events: Iterable[Event]) -> list[Event]:
    pipeline = Pipeline(SETTINGS)
    return [one for event in events for one in pipeline.on_event(event)]


SLOW, STUCK = SlowCompute(ranks=(37,), factor=1.6, from_step=25), StuckRanks(ranks=(37,), step=30)


@pytest.mark.parametrize("ranks_per_host", [4, 8, 16])
@pytest.mark.parametrize("fault", [SLOW, STUCK])
def test_a_job_that_is_relayed_has_the_verdicts_that_it_has_otherwise(fault: Fault, ranks_per_host: int) -> None:
    events = job(fault, ranks_per_host=ranks_per_host)
    worker = at_home(events)
    assert verdicts(worker.said) == verdicts(apart(events))
    assert any(isinstance(event, Incident) for event in worker.said)
    assert len(worker.of(Home)) == 4, "as many as there are shards"
    assert all(stage.is_closed for stage in worker.keys.values() if not isinstance(stage, StageTwo))


class SaysAll(GoingOn):
    """An agent of before."""

    def parted(
        self, promised: Iterable[Progress], places: Mapping[str, shards.Place]
    ) -> tuple[list[Progress], list[Progress]]:
        return list(promised), []


@pytest.mark.parametrize("fault", [SLOW, STUCK])
def test_hosts_whose_agents_promise_all_in_full_may_be_among_the_others(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents are brought up to date one by one, behind the workers."""
    events = job(fault)
    expected = verdicts(at_home(events).said)
    versions = cycle([SaysAll, GoingOn])
    monkeypatch.setattr(flushes, "GoingOn", lambda: next(versions)())
    worker = at_home(events)
    n_promises = Counter(
        promise.host for event in together(events) if isinstance(event, Flush) for promise in event.promises
    )
    assert verdicts(worker.said) == expected
    assert max(n_promises.values()) > min(n_promises.values()), "some say all"


def test_a_home_joins_what_is_all_at_home_and_passes_the_rest_on_once_for_all_its_hosts() -> None:
    events = job(iterations=40)
    worker = at_home(events)
    members = {event.communicator: event.members for event in events if isinstance(event, Topology)}
    others = {one for relayed in worker.passed for one in relayed.communicators}
    assert others == {one for one, ranks in members.items() if not shards.has_one_home(ranks, 64)}
    assert set(members) - others, "some are joined at home"
    (world,) = {event.communicator for event in events if isinstance(event, Topology) and event.is_world}
    n_hosts = [sum(promise.communicator == world for promise in one.promises) for one in worker.passed]
    assert set(filter(None, n_hosts[len(n_hosts) // 2 :])) == {2}, "of both hosts that a home has here"
    assert len(n_hosts) > 40


@pytest.mark.parametrize("fault", [SLOW, STUCK])
def test_homes_and_who_hears_them_go_on_from_their_snapshots_and_say_the_same_bytes(fault: Fault) -> None:
    events = job(fault, iterations=40)
    assert at_home(events, again=True).bodies == at_home(events).bodies


def until_silent(host: str, after_s: int) -> tuple[list[Event], list[Event], int]:
    """What hosts say of a job until one falls silent, what the others say then, and when that was."""
    events = list(together(job(iterations=80)))
    start_ns = min(event.time_ns for event in events if isinstance(event, Flush))
    fell_ns = start_ns + after_s * 10**9
    before = [event for event in events if event.time_ns <= fell_ns]
    others = [event for event in events if event.time_ns > fell_ns and getattr(event, "host", "") != host]
    return before, [event for event in others if event.time_ns < fell_ns + 5 * 10**9], fell_ns


def test_of_a_host_that_falls_silent_its_home_tells_all_that_join_its_calls_and_the_others_go_on() -> None:
    before, others, fell_ns = until_silent("host3", after_s=4)
    worker = BothStages(SETTINGS)
    for event in (*before, *others):
        worker.hear(read(event))
    opened = {key: stream for key, home in worker.of(Home).items() if (stream := home.open_stream()) is not None}
    (silent,) = (key for key, stream in opened.items() if "host3" in stream.hosts)
    streams = [stage.open_stream() for key, stage in worker.of(Shard).items()]
    assert not any(stream.hosts for stream in streams if stream is not None), "nobody is asked for ticks but homes"
    assert 0 < worker.until_ns() <= fell_ns
    worker.hear(Tick(job="simulated", attempt=0, time_ns=fell_ns + 6 * 10**9, stream=silent))
    told = next(relayed for relayed in worker.passed if relayed.tick_ns)
    assert told.silent == opened[silent].hosts
    assert worker.until_ns() > fell_ns + 2 * 10**9


def test_a_home_ticks_no_more_of_a_host_that_was_given_up_and_takes_it_in_when_it_speaks_again() -> None:
    before, others, fell_ns = until_silent("host3", after_s=4)
    home = Home(SETTINGS)
    for event in before:
        if route(event)[1] == HOME_KEY + "simulated/0/3":
            home.on_event(read(event))
    hosts = home.open_stream().hosts  # type: ignore[union-attr]
    told_at = []
    for second in range(3_700):
        tick = Tick(job="simulated", attempt=0, time_ns=fell_ns + (6 + second) * 10**9, stream=HOME_KEY)
        if any(isinstance(one, Relayed) and one.tick_ns for one in home.on_event(tick)):
            told_at.append(second)
    assert told_at == list(range(3_601)), "for an hour, and with the tick with which it is given up"
    assert home.open_stream() is None
    assert home.is_closed
    speaks = next(event for event in others if isinstance(event, Flush) and event.host in hosts and event.promises)
    home.on_event(read(speaks))
    assert home.open_stream().hosts == (speaks.host,)  # type: ignore[union-attr]


def test_members_whom_nobody_announces_are_waited_for_longer_and_time_goes_on_without_them_then() -> None:
    events = [event for event in together(job(iterations=40)) if getattr(event, "host", "") != "host5"]
    worker = BothStages(SETTINGS)
    for event in events:
        worker.hear(read(event))
    assert not any(isinstance(event, IterationSample) for event in worker.said)
    open_streams = {
        key: stream for key, stage in worker.of(Shard).items() if (stream := stage.open_stream()) is not None
    }
    assert any(not stream.is_complete and stream.quiet_s >= 60 for stream in open_streams.values())
    last_ns = max(event.time_ns for event in events)
    for key in open_streams:
        worker.hear(Tick(job="simulated", attempt=0, time_ns=last_ns + 70 * 10**9, stream=key))
    assert not any(stage.open_stream() for stage in worker.of(Shard).values()), "all that were heard of have ended"


def test_what_one_host_cannot_have_said_takes_nothing_of_the_others_with_it() -> None:
    events, liar = list(together(job(iterations=30))), "host2"
    honest, worker, n_lies = BothStages(SETTINGS), BothStages(SETTINGS), 0
    for event in events:
        honest.hear(read(event))
        if isinstance(event, Flush) and event.host == liar and event.parts:
            event = replace(event, columns={**event.columns, "rank": event.columns["rank"] + 40})
            n_lies += len(event)
        worker.hear(read(event))
    assert not honest.refused
    assert all("are no members of communicator" in reason for reason in worker.refused)
    assert any("of what was relayed" in reason for reason in worker.refused)
    assert n_lies
    assert worker.n_calls == honest.n_calls - n_lies


def test_what_cannot_be_is_refused_with_the_words_in_which_it_was_said_though_it_is_heard_with_those_of_others() -> (
    None
):
    home, lies, refused = Home(SETTINGS), list[Flush](), list[PartlyRefused]()
    for event in together(job(iterations=30)):
        if route(event)[1] != HOME_KEY + "simulated/0/1":
            continue
        if isinstance(event, Flush) and event.host == "host1" and event.parts and len(lies) < 3:
            event = replace(event, columns={**event.columns, "rank": event.columns["rank"] + 40})
            lies.append(event)
        try:
            home.on_event(event)
        except PartlyRefused as error:
            refused.append(error)
    earlier = [one for error in refused for one in error.earlier]
    assert not any(error.is_of_event for error in refused)
    assert {codec.encode(lie) for lie in lies} <= {codec.encode(said) for said, _ in earlier}
    assert {said.host for said, _ in earlier} == {"host1"}
    assert all("are no members of communicator" in str(why) for _, why in earlier)


def said_of(job: RandomJob, *, has_homes: bool) -> tuple[list[tuple[object, ...]], list[float]]:
    """Who is named in a job whose hosts have homes, or not, and when; ticks stand where a silent host speaks otherwise.

    How much of its own time a rank took is found to differ by a hundredth at times, with the order of the messages.
    """
    stages, spoke_ns, ticked_ns = BothStages(SETTINGS), dict[str, int](), -1
    for event in together(simulate(job.spec).events(), has_homes=has_homes):
        if not isinstance(event, Tick) or event.stream.startswith(HOST_STREAM):
            if host := getattr(event, "host", ""):
                spoke_ns[host] = max(event.time_ns, spoke_ns.get(host, 0))
            stages.hear(event)
        elif event.time_ns > ticked_ns:
            ticked_ns = event.time_ns
            silent = {host for host, time_ns in spoke_ns.items() if time_ns < ticked_ns - 3 * 10**9}
            for key in [key for key in stages.keys if shards.is_of_shard(key)]:
                stream = stages.keys[key].open_stream()  # type: ignore[union-attr]
                if stream is not None and silent & set(stream.hosts):
                    stages.hear(replace(event, stream=key))
    assert any(key.startswith(HOME_KEY) for key in stages.keys) == has_homes
    names = ("kind", "verdict", "cause", "culprits", "candidates", "victims", "links", "onset", "relief")
    found = [one for one in stages.said if isinstance(one, Finding)]
    said = [
        *(tuple(getattr(one, name) for name in names) for one in found),
        *((one.id, one.version, one.state) for one in stages.said if isinstance(one, Incident)),
        *((one.step, one.step_time_s) for one in stages.said if isinstance(one, IterationSample)),
    ]
    return said, [one.detected.time_ns / 1e9 for one in found if one.detected is not None]


@pytest.mark.parametrize("n_jobs", [3, pytest.param(100, marks=[pytest.mark.prove, pytest.mark.timeout(1_200)])])
@pytest.mark.parametrize("kinds", [(), ("gone host", "silent agent")], ids=["any", "silent"])
def test_jobs_in_which_everything_is_drawn_have_the_same_verdicts(
    kinds: tuple[str, ...], n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RANKS_PER_SHARD", 4)
    monkeypatch.setattr(shards, "NEIGHBOURS", 2)
    large = (job for seed in count(1_799_700_000) if (job := random_job(seed, kinds)).spec.layout.world_size > 4)
    jobs = list(islice(large, n_jobs))
    for job in jobs:
        said, when_s = said_of(job, has_homes=True)
        apart, apart_s = said_of(job, has_homes=False)
        assert said == apart, job
        # When a rank has moved last is known to a word of its host.
        assert when_s == pytest.approx(apart_s, abs=1.0), job
    assert any(said_of(job, has_homes=True)[0] for job in jobs[:3])
