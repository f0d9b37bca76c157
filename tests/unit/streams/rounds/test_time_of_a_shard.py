"""Heartbeats of all hosts, told at once, say what each of them would, told to each communicator one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pacehound.errors import RejectedMessage
from pacehound.model.events import NEVER, OPTIMIZER_STEP, Markers, Progress, RankProgress, Tick, Topology
from pacehound.model.flushes import COLUMNS, CallPart, Flush, Heartbeat
from pacehound.model.routing import Event
from pacehound.settings import Settings
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.shard import Shard
from streams.snapshots.schema import state_codec
from tests.fakes.examples import examples

S = 1_000_000_000
SAME: dict[str, Any] = {"job": "j", "attempt": 0}
HOSTS = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}
MEMBERS = {"world": (0, 1, 2, 3, 4, 5), "left": (0, 2, 4), "right": (1, 3), "own": (4, 5)}
CODEC = state_codec(Settings())


def ranks_of(host: str, communicator: str) -> tuple[int, ...]:
    return tuple(rank for rank in HOSTS[host] if rank in MEMBERS[communicator])


def communicators_of(host: str) -> tuple[str, ...]:
    return tuple(name for name in MEMBERS if ranks_of(host, name))


def flush(host: str, **said: Any) -> Flush:
    return Flush(**SAME, host=host, shard=0, **said)


def joins(host: str) -> Flush:
    return flush(
        host,
        topologies=tuple(
            Topology(
                **SAME, time_ns=1, host=host, communicator=name, name=name, is_world=name == "world",
                members=MEMBERS[name], host_ranks=ranks_of(host, name), world_size=6,
            )
            for name in communicators_of(host)
        ),
    )  # fmt: skip


def promises(
    host: str, time_ns: int, among: Iterable[str] = MEMBERS, *, n_calls: int = 0, closed: bool = False
) -> Flush:
    def progress(name: str) -> Progress:
        seq = n_calls - 1 if n_calls else NEVER
        ranks = tuple(RankProgress(rank=rank, last_launched=seq, last_completed=seq) for rank in ranks_of(host, name))
        return Progress(**SAME, host=host, communicator=name, time_ns=time_ns, ranks=ranks, closed=closed)

    return flush(host, promises=tuple(progress(name) for name in communicators_of(host) if name in among))


def beats(host: str, time_ns: int, among: Iterable[str] = MEMBERS) -> Flush:
    names = tuple(name for name in communicators_of(host) if name in among)
    return flush(host, heartbeat=Heartbeat(time_ns=time_ns, communicators=names, quiet_ns=S, is_of_processes=True))


def calls(host: str, name: str, seq: int, time_ns: int) -> Flush:
    ranks = ranks_of(host, name)
    values = {"rank": ranks, "seq": seq, "op": 1, "launch_ns": time_ns, "start_ns": time_ns, "end_ns": time_ns + 5}
    columns = {key: np.resize(np.array(value, COLUMNS[key]), len(ranks)) for key, value in values.items()}
    part = CallPart(communicator=name, source="c10d", ordinal=seq, sees=7, n_rows=len(ranks))
    return flush(host, parts=(part,), columns=columns)


def marks(host: str, step: int, time_ns: int) -> Flush:
    n = len(HOSTS[host])
    same = {"ranks": HOSTS[host], "names": (OPTIMIZER_STEP,) * n, "steps": (step,) * n, "times_ns": (time_ns,) * n}
    return flush(host, markers=(Markers(**SAME, host=host, communicator="world", **same),))


TURNS = [*["all"] * 4, "most", "promise", "end", "calls", "calls", "tick", "mark", "again"]


@st.composite
def said(draw: st.DrawFn) -> list[Event | None]:
    """Events; `None`: the state is written down and read again."""
    names, some = list(HOSTS), st.sampled_from(list(HOSTS))
    events: list[Event | None] = [*map(joins, draw(st.sampled_from([names, names, names[:2]])))]
    events += [promises(one, S) for one in names]
    now_ns, seq = S, 0
    open_of = {host: list(communicators_of(host)) for host in names}
    for what in draw(st.lists(st.sampled_from(TURNS), min_size=4, max_size=24)):
        now_ns += draw(st.sampled_from([0, 1, 1, 2, 2, 3, 9])) * S
        late_ns = st.sampled_from([now_ns, now_ns - S, now_ns - 2 * S])
        match what:
            case "all" | "most":
                order = draw(st.permutations(names))[: 2 if what == "most" else 3]
                events += [beats(host, draw(late_ns), open_of[host]) for host in order]
            case "promise":
                host = draw(some)
                events.append(promises(host, draw(late_ns), open_of[host], n_calls=seq))
            case "end":
                host, ended = draw(some), draw(st.sampled_from(list(MEMBERS)))
                events.append(promises(host, draw(late_ns), [ended], n_calls=seq, closed=True))
                open_of[host] = [name for name in open_of[host] if name != ended]
            case "calls":
                name = draw(st.sampled_from(list(MEMBERS)))
                told = [calls(host, name, seq, now_ns) for host in names if name in communicators_of(host)]
                events += told[: draw(st.integers(1, len(told)))]
                seq += 1
            case "mark":
                events += [marks(host, len(events), now_ns) for host in names]
            case "tick":
                time_ns = now_ns + draw(st.sampled_from([1, 5, 8, 20])) * S
                events.append(Tick(**SAME, time_ns=time_ns, stream="shard:j/0/0"))
            case "again":
                events.append(draw(st.sampled_from([None, *map(joins, names)])))
    return events


def told_of(events: list[Event | None], *, one_by_one: bool = False) -> tuple[list[str], bytes]:
    """What a shard says and of whom it waits, and its state in the end; heard one by one nothing is remembered."""
    shard, told = Shard(Settings()), []
    for event in events:
        if event is None:
            shard = CODEC.decode(CODEC.encode(shard))
            continue
        if one_by_one:
            shard._open = None
        try:
            results = [*map(repr, shard.on_event(event))]
        except RejectedMessage as error:
            results = [repr(error)]
        told.append(f"{results} {shard.open_stream()}")
    return told, CODEC.encode(shard)


@examples(300)
@given(said())
def test_whatever_hosts_say_it_is_as_if_each_heartbeat_was_heard_by_itself(events: list[Event | None]) -> None:
    told, state = told_of(events)
    with patch.object(CommunicatorOperator, "on_time", lambda *_: None):
        each, state_of_each = told_of(events, one_by_one=True)
    assert told == each
    assert state == state_of_each


def test_of_quiet_communicators_no_heartbeat_is_heard_by_itself() -> None:
    rounds = [beats(host, time_s * S) for time_s in range(2, 20) for host in HOSTS]
    heard: list[str] = []
    by_itself = CommunicatorOperator.on_heartbeats

    def noted(operator: CommunicatorOperator, told: Any) -> Any:
        heard.append(operator.communicator)
        return by_itself(operator, told)

    with patch.object(CommunicatorOperator, "on_heartbeats", noted):
        told_of([*map(joins, HOSTS), *(promises(one, S) for one in HOSTS), *rounds])
    n_rounds = heard.count("world")
    assert n_rounds >= 17, "it has iterations to look for"
    assert max(heard.count(name) for name in MEMBERS if name != "world") <= 3


def test_hosts_that_close_their_communicators_in_two_messages_hold_nobody_back_with_the_second() -> None:
    shard = Shard(Settings())
    for host in HOSTS:
        shard.on_event(joins(host))
        shard.on_event(promises(host, S))
    for host in HOSTS:
        shard.on_event(promises(host, 2 * S, ["world"], closed=True))
    for host in HOSTS:
        shard.on_event(promises(host, 2 * S, ["left", "right", "own"], closed=True))
    assert shard.is_closed
    assert shard.open_stream() is None
