"""A shard hears for the processes of its hosts, as long as their heartbeats speak for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pacehound.errors import PartlyRefused
from pacehound.model.events import Progress, RankProgress, Tick, Topology, Watermark
from pacehound.model.flushes import Flush, Heartbeat
from pacehound.model.relayed import HostBeat, Relayed
from pacehound.model.routing import host_stream
from pacehound.settings import Settings
from streams.rounds.shard import Shard
from streams.snapshots.schema import state_codec

S = 1_000_000_000
WORLD = "c"
SAME: dict[str, Any] = {"job": "j", "attempt": 0}
LATENESS_S = round(Settings().stream.lateness_s)


def flush(host: str, **said: Any) -> Flush:
    return Flush(**SAME, host=host, shard=0, **said)


def joined(host: str, rank: int) -> Flush:
    topology = Topology(
        **SAME, time_ns=1, host=host, communicator=WORLD, name="world", is_world=True, members=(0, 1),
        host_ranks=(rank,), world_size=2,
    )  # fmt: skip
    return flush(host, topologies=(topology,))


def promised(host: str, rank: int, time_s: int, *, closed: bool = False) -> Flush:
    ranks = (RankProgress(rank=rank, last_launched=-1, last_completed=-1),)
    same = {**SAME, "host": host, "communicator": WORLD}
    return flush(host, promises=(Progress(**same, time_ns=time_s * S, ranks=ranks, closed=closed),))


def beat(host: str, time_s: int, *, is_of_processes: bool = True) -> Flush:
    said = Heartbeat(
        time_ns=time_s * S, communicators=(WORLD,), quiet_ns=LATENESS_S * S, is_of_processes=is_of_processes
    )
    return flush(host, heartbeat=said)


def tick(time_s: int) -> Tick:
    return Tick(**SAME, time_ns=time_s * S, stream="shard:j/0/0")


@pytest.fixture
def shard() -> Shard:
    shard = Shard(Settings())
    for rank, host in enumerate(("a", "b")):
        shard.on_event(joined(host, rank))
    for rank, host in enumerate(("a", "b")):
        shard.on_event(promised(host, rank, 1))
    return shard


def of_hosts(results: list[Any]) -> list[tuple[str, int]]:
    streams = {host_stream("j", host): host for host in "ab"}
    marks = [one for one in results if isinstance(one, Watermark)]
    return [(streams[one.stream], one.time_ns // S) for one in marks if one.stream in streams]


def ticks(results: list[Any]) -> list[str]:
    return [one.stream for one in results if isinstance(one, Tick)]


def test_a_heartbeat_lets_the_time_of_its_host_go_on_where_it_speaks_for_its_processes(shard: Shard) -> None:
    assert of_hosts(shard.on_event(beat("a", 10))) == []
    assert of_hosts(shard.on_event(beat("b", 11, is_of_processes=False))) == [("a", 10)]


def test_when_hearts_beat_no_more_the_processes_are_silent(shard: Shard) -> None:
    for host in ("a", "b"):
        shard.on_event(beat(host, 10))
    shard.on_event(beat("b", 20))
    codec = state_codec(Settings())
    shard = codec.decode(codec.encode(shard))
    assert ticks(shard.on_event(tick(10 + 2 * LATENESS_S))) == []
    assert ticks(shard.on_event(tick(11 + 2 * LATENESS_S))) == [host_stream("j", "a")]
    opened = shard.open_stream()
    assert opened is not None
    assert opened.quiet_s == LATENESS_S


def test_a_heart_of_which_nobody_knows_is_missed_by_nobody(shard: Shard) -> None:
    with pytest.raises(PartlyRefused, match="'z', which has not announced"):
        shard.on_event(beat("z", 10))
    shard.on_event(flush("y", heartbeat=Heartbeat(time_ns=10 * S, communicators=(), is_of_processes=True)))
    assert ticks(shard.on_event(tick(60))) == []


def speaking(host: str, rank: int, time_s: int) -> Flush:
    """Promises that speak of the host's processes."""
    said = Heartbeat(time_ns=time_s * S, communicators=(), is_of_processes=True)
    return replace(promised(host, rank, time_s), heartbeat=said)


def test_promises_let_the_time_of_their_host_go_on_where_they_speak_for_its_processes(shard: Shard) -> None:
    assert of_hosts(shard.on_event(speaking("a", 0, 10))) == []
    assert of_hosts(shard.on_event(speaking("b", 1, 11))) == [("a", 10), ("b", 11)]


def test_when_nothing_is_promised_any_more_the_processes_are_silent(shard: Shard) -> None:
    for rank, host in enumerate(("a", "b")):
        shard.on_event(speaking(host, rank, 10))
    shard.on_event(speaking("b", 1, 20))
    opened = shard.open_stream()
    assert opened is not None
    assert opened.quiet_s == 0
    assert ticks(shard.on_event(tick(10 + LATENESS_S))) == []
    assert ticks(shard.on_event(tick(11 + LATENESS_S))) == [host_stream("j", "a")]
    shard.on_event(speaking("a", 0, 21))
    assert ticks(shard.on_event(tick(24))) == [], "it is back"


def test_a_host_whose_samples_follow_each_other_again_is_left_to_them(shard: Shard) -> None:
    for host in ("a", "b"):
        shard.on_event(beat(host, 10))
    shard.on_event(promised("a", 0, 12))
    shard.on_event(promised("b", 1, 12, closed=True))
    assert ticks(shard.on_event(tick(60))) == []


def test_what_homes_relay_of_hearts_that_beat_is_as_good_as_promises_and_a_stranger_takes_no_others_with_it(
    shard: Shard,
) -> None:
    beats = [HostBeat(host=host, beat=Heartbeat(time_ns=9 * S, communicators=(WORLD,))) for host in ("a", "z", "b")]
    with pytest.raises(PartlyRefused, match="heartbeat of host 'z'") as refused:
        shard.hear(Relayed(**SAME, shard=0, beats=tuple(beats)))
    assert list(refused.value.by_host) == ["z"]
    assert [one.time_ns for one in refused.value.results if isinstance(one, Watermark)] == [9 * S]
