"""What is kept of who is in which communicator: a shard to which homes relay is told of theirs when it begins anew."""

from __future__ import annotations

from pacehound.bus import Message
from pacehound.model.events import Topology
from pacehound.model.flushes import Flush
from pacehound.model.shards import place_of
from pacehound.settings import Settings
from streams.kafka.topologies import Announcement, KnownTopologies, name_of
from streams.rounds.home import Home
from streams.rounds.relay import Relayed

WORLD = 4_096
MEMBERS = {
    "world": tuple(range(WORLD)),
    **{f"dp{first}": tuple(range(first, WORLD, 40)) for first in (0, 8, 24, 32)},
    "tp": tuple(range(8, 16)),
}


def announced(host: str, rank: int) -> Flush:
    """All communicators of one rank of a host, to its home."""
    mine = [name for name, members in MEMBERS.items() if rank in members]
    (place,) = {place_of(name, MEMBERS[name], rank, WORLD) for name in mine}
    said = tuple(
        Topology(
            job="j", attempt=0, time_ns=1, host=host, communicator=name, name=name, is_world=name == "world",
            members=MEMBERS[name], host_ranks=(rank,), world_size=WORLD,
        )
        for name in mine
    )  # fmt: skip
    return Flush(job="j", attempt=0, host=host, shard=place.shard, is_home=True, topologies=said)


def test_it_is_told_what_homes_have_relayed_to_it_and_nothing_else() -> None:
    relayed: dict[str, list[Topology]] = {}
    records = []
    for offset, rank in enumerate((8, 64, 80, 24, 72)):
        flush = announced(f"h{rank}", rank)
        for one in Home(Settings()).on_event(flush):
            if isinstance(one, Relayed):
                relayed.setdefault(one.key, []).extend(one.topologies)
        name = name_of(flush)
        assert name is not None
        kept = Announcement.in_event(flush, name, flush.key, offset)
        at = {"topic": "topology", "partition": 0, "offset": offset}
        records.append(Message(key=name, value=kept.value, headers=kept.headers, **at))
    known = KnownTopologies.read(records)
    assert len(relayed) > 1
    assert {key: known.relayed_to(key) for key in relayed} == relayed
    assert "tp" not in {one.communicator for said in relayed.values() for one in said}
