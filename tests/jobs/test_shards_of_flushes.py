"""Hosts that say all at once are heard as those are that say it communicator by communicator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from bench.rig.flushes import together
from pacehound.errors import PartlyRefused
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import Incident, IterationSample, Tick
from pacehound.model.flushes import Flush
from pacehound.model.rounds import Rounds
from pacehound.model.routing import HOST_STREAM, Event, route
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import JobSpec, simulate
from simulator.source import DEVICE_TIMES
from streams.job.stage_two import StageTwo
from streams.pipeline import Pipeline
from streams.rounds.shard import Shard
from streams.rounds.stage_one import StageOne
from streams.snapshots.schema import state_codec

SETTINGS = Settings.load({}, ["hang.suspect_after_s=3"])


@cache
def said_apart() -> tuple[Event, ...]:
    """A job of two hosts and pairs, in which a rank becomes slow."""
    slow = SlowCompute(ranks=(5,), factor=1.5, from_step=60)
    layout = Layout(tp=2, dp=2, pp=2)
    spec = JobSpec(layout=layout, iterations=100, faults=(slow,), ranks_per_host=4, source=DEVICE_TIMES)
    return tuple(simulate(spec).events())


@cache
def said_at_once() -> tuple[Event, ...]:
    """The same; every message as it comes out of its bytes."""
    return tuple(read for event in together(said_apart()) for read in codec.decode(codec.encode(event)))


def concluded(events: Iterable[Event]) -> list[Event]:
    pipeline = Pipeline(SETTINGS)
    out = [one for event in events for one in pipeline.on_event(event)]
    assert not {name for name in pipeline.all_counts() if name not in ("dropped_calls", "repeated_host_events")}
    return out


def verdicts(events: Iterable[Event]) -> list[Event]:
    """What a user hears."""
    return [event for event in events if isinstance(event, (Incident, IterationSample))]


def test_both_say_the_same_rows() -> None:
    flushes = [event for event in said_at_once() if isinstance(event, Flush)]
    batches = {
        one.communicator + str(one.ordinal) + one.host: one for one in said_apart() if isinstance(one, CallBatch)
    }
    found = [one for flush in flushes for one in flush.events() if isinstance(one, CallBatch)]
    assert len(found) == len(batches)
    for batch in found:
        wanted = batches[batch.communicator + str(batch.ordinal) + batch.host]
        assert str(batch.rows.to_pydict()) == str(wanted.rows.to_pydict())
        assert (batch.sees, batch.dropped, batch.source) == (wanted.sees, wanted.dropped, wanted.source)


def test_a_job_that_is_said_at_once_has_the_verdicts_that_it_has_apart() -> None:
    apart, at_once = concluded(said_apart()), concluded(said_at_once())
    assert verdicts(at_once) == verdicts(apart)
    assert any(isinstance(event, Incident) for event in at_once)


def test_hosts_of_one_job_may_each_do_it_in_their_own_way() -> None:
    hosts = sorted({event.host for event in said_apart() if isinstance(event, CallBatch)})
    mixed: list[Event] = [
        one
        for event in said_at_once()
        for one in (event.events() if isinstance(event, Flush) and event.host != hosts[0] else (event,))
    ]
    assert verdicts(concluded(mixed)) == verdicts(concluded(said_apart()))


def test_a_part_that_cannot_be_true_takes_no_other_with_it() -> None:
    first, *rest = said_at_once()
    assert isinstance(first, Flush)
    assert len(first.topologies) > 2
    other = replace(first.topologies[0], members=(0, 7), host_ranks=(0,))
    lying = replace(first, topologies=(*first.topologies, other))
    pipeline = Pipeline(SETTINGS)
    with pytest.raises(PartlyRefused, match="1 parts of a flush are refused") as raised:
        pipeline.on_event(lying)
    heard = [one for event in rest for one in pipeline.on_event(event)]
    assert verdicts([*raised.value.results, *heard]) == verdicts(concluded(said_at_once()))  # type: ignore[list-item]


def of_stages(events: Sequence[Event], *, by_shard: bool) -> tuple[list[Event], dict[str, StageOne | Shard]]:
    """What stage two says of what stage one says, each on its keys, as on Kafka."""
    stages: dict[str, StageOne | Shard] = {}
    two = StageTwo(said_apart()[0].job, SETTINGS)
    out: list[Event] = []
    for event in events:
        _, key = route(event)
        new = Shard(SETTINGS) if by_shard and not key.startswith(HOST_STREAM) else StageOne(SETTINGS)
        results = stages.setdefault(key, new).on_event(event)
        if isinstance(event, Flush) and results:
            whole = Conclusions(job=event.job, attempt=event.attempt, said=tuple(results))  # type: ignore[arg-type]
            (read,) = codec.decode(codec.encode(whole))
            assert isinstance(read, Conclusions)
            assert codec.encode(read) == codec.encode(whole)
            out += two.on_event(read)
        else:
            out += [said for result in results for said in two.on_event(result)]
    return out, stages


def test_a_shard_concludes_what_its_communicators_do_and_is_closed_with_them() -> None:
    apart, _ = of_stages(said_apart(), by_shard=False)
    at_once, stages = of_stages(said_at_once(), by_shard=True)
    assert verdicts(at_once) == verdicts(apart)
    (shard,) = (stage for stage in stages.values() if isinstance(stage, Shard))
    assert shard.is_closed
    assert shard.on_event(next(event for event in said_at_once() if isinstance(event, Flush))) == []


def test_a_shard_goes_on_from_its_snapshot() -> None:
    flushes = [event for event in said_at_once() if isinstance(event, Flush)]
    states, half = state_codec(SETTINGS), len(flushes) // 2
    whole, begun = Shard(SETTINGS), Shard(SETTINGS)
    wanted = [result for flush in flushes for result in whole.on_event(flush)]
    found = [result for flush in flushes[:half] for result in begun.on_event(flush)]
    again = states.decode(states.encode(begun))
    assert isinstance(again, Shard)
    found += [result for flush in flushes[half:] for result in again.on_event(flush)]
    assert [codec.encode(one) for one in found] == [codec.encode(one) for one in wanted]
    assert any(isinstance(one, Rounds) for one in found)


def test_a_tick_of_a_shard_lets_all_its_communicators_go_on_without_a_silent_host() -> None:
    flushes = [event for event in said_at_once() if isinstance(event, Flush)]
    shard, silent = Shard(SETTINGS), flushes[-1].host
    for flush in flushes[: len(flushes) // 2]:
        shard.on_event(flush)
    opened = shard.open_stream()
    assert opened is not None
    assert opened.is_complete
    assert silent in opened.hosts
    last_ns = max(flush.time_ns for flush in flushes[: len(flushes) // 2])
    for flush in flushes[len(flushes) // 2 :]:
        if flush.host != silent and flush.promises and flush.promises[0].time_ns < last_ns + 6 * 10**9:
            shard.on_event(flush)
    tick = Tick(job=opened.job, attempt=0, time_ns=last_ns + 8 * 10**9, stream=flushes[0].key)
    assert {type(one).__name__ for one in shard.on_event(tick)} >= {"Watermark"}
