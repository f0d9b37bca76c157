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
from pacehound.model.events import Incident, IterationSample, Tick, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.pair_rounds import PairRounds
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
from streams.rounds.stage_one import StageOne, StageTwoInput
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


def flushes_said() -> list[Flush]:
    return [event for event in said_at_once() if isinstance(event, Flush)]


def concluded(events: Iterable[Event]) -> list[Event]:
    pipeline = Pipeline(SETTINGS)
    out = [one for event in events for one in pipeline.on_event(event)]
    assert not {name for name in pipeline.all_counts() if name not in ("dropped_calls", "repeated_host_events")}
    return out


def verdicts(events: Iterable[Event]) -> list[Event]:
    """What a user hears."""
    return [event for event in events if isinstance(event, (Incident, IterationSample))]


def test_both_say_the_same_rows() -> None:
    flushes = flushes_said()
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


def as_message(event: Event, results: Sequence[StageTwoInput]) -> bytes:
    """All that follows from an event as one message."""
    return codec.encode(Conclusions(job=event.job, attempt=event.attempt, said=tuple(results)))  # type: ignore[arg-type]


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
            (read,) = codec.decode(as_message(event, results))
            assert isinstance(read, Conclusions)
            assert codec.encode(read) == as_message(event, results)
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


def test_a_shard_goes_on_from_its_snapshot_and_says_the_same_at_each_flush() -> None:
    flushes, states = flushes_said(), state_codec(SETTINGS)
    whole, again = Shard(SETTINGS), Shard(SETTINGS)
    n_rounds = 0
    for flush in flushes:
        wanted, found = whole.on_event(flush), again.on_event(flush)
        # What it says is numbered: who goes on must say it behind the same word, in the same bytes.
        assert as_message(flush, found) == as_message(flush, wanted)
        n_rounds += sum(isinstance(one, (Rounds, PairRounds)) for one in found)
        read = states.decode(states.encode(again))
        assert isinstance(read, Shard)
        again = read
    assert n_rounds > 0


def test_what_follows_from_promises_is_told_once_a_tick_and_of_all_hosts() -> None:
    shard, tick_ns = Shard(SETTINGS), round(SETTINGS.stream.tick_s * 1e9)
    told: dict[int, int] = {}
    closing_ns = max(promise.time_ns for flush in flushes_said() for promise in flush.promises)
    for flush in flushes_said():
        marks = [one for one in shard.on_event(flush) if isinstance(one, Watermark)]
        of_calls = [one for one in marks if not one.stream.startswith(HOST_STREAM)]
        if of_calls and of_calls[0].time_ns < closing_ns:
            tick = of_calls[0].time_ns // tick_ns
            told[tick] = told.get(tick, 0) + 1
            assert len({one.stream for one in of_calls}) == len(of_calls)
    assert told.pop(min(told)) <= 2, "hosts announce themselves one after the other"
    assert set(told.values()) == {1}
    assert len(told) > 10


def test_of_two_hosts_one_that_is_refused_in_part_holds_the_other_back_no_longer_than_itself() -> None:
    flushes = flushes_said()
    refused_host = flushes[-1].host
    shard, odd_one_out = Shard(SETTINGS), flushes[0].topologies[0].communicator + "?"

    def told(flush: Flush) -> Sequence[object]:
        if flush.host != refused_host or not flush.promises:
            return shard.on_event(flush)
        nobody = replace(flush.promises[0], communicator=odd_one_out)
        with pytest.raises(PartlyRefused) as raised:
            shard.on_event(replace(flush, promises=(*flush.promises, nobody)))
        return raised.value.results

    alone = Shard(SETTINGS)
    for flush in flushes:
        wanted = [one for one in alone.on_event(flush) if isinstance(one, Watermark)]
        assert [one for one in told(flush) if isinstance(one, Watermark)] == wanted


def test_a_tick_of_a_shard_lets_all_its_communicators_go_on_without_a_silent_host() -> None:
    flushes = flushes_said()
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
