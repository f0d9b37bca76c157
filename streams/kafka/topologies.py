"""Who is in a communicator, kept on the compacted topic `topology` for as long as the communicator is open.

Hosts say it once, in `calls`, which forgets after hours. A worker that has lost the state of a job which is older than
that (a schema of states that it cannot read, a topic that was made anew) would set all that the job says aside: nobody
had announced it. So whoever takes topologies in writes them down here, those of a message as one record, with its
offset, and takes them away when the communicator, or its shard, has closed. A state that is begun anew hears first what
stood before its first message; what stands behind it comes in the log. So what follows depends on the log alone here,
too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from pacehound.bus import Message
from pacehound.errors import RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Topology
from pacehound.model.flushes import Flush
from pacehound.model.identity import event_id
from pacehound.model.routing import Event
from pacehound.model.shards import HOME_KEY, relayed_key
from pacehound.settings import Settings
from streams.rounds.relay import is_passed_on, joined_by
from streams.rounds.stage_one import StageOne

logger = logging.getLogger("pacehound.streams")


def name_of(event: Topology | Flush) -> str | None:
    """The name of what an event announces, the same where the same is said again; `None`: it announces nothing."""
    if isinstance(event, Topology):
        return event.identity()
    if not event.topologies:
        return None
    return event_id("topologies", event.job, *[one.identity() for one in event.topologies])


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a message has said of who is in which communicators, as it is kept: one record.

    Attributes
    ----------
    name
        Of the record (`name_of`).
    job
        Whose communicators they are.
    key, offset
        Where it stood in `calls`.
    value
        The event, without what else it says.

    """

    name: str
    job: str
    key: str
    offset: int
    value: bytes

    @classmethod
    def in_event(cls, event: Topology | Flush, name: str, key: str, offset: int) -> Announcement:
        """That of an event which has this name, and stood there."""
        kept: Event = event
        if isinstance(event, Flush):
            kept = replace(event, vitals=(), parts=(), columns={}, markers=(), promises=(), heartbeat=None)
        return cls(name, event.job, key, offset, codec.encode(kept))

    @classmethod
    def in_record(cls, record: Message) -> Announcement | None:
        """As it was kept; `None`: it has no place in `calls`."""
        said = dict(record.headers)
        # Before a message was one record, one of a communicator's own key named the communicator alone.
        key = said.get("key", said.get("communicator", b"")).decode(errors="replace")
        if not key or not {"job", "at"} <= said.keys() or not said["at"].isdigit():
            return None
        return cls(record.key, said["job"].decode(errors="replace"), key, int(said["at"]), record.value)

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Whose it is, and where it stood: others need not be decoded."""
        return ("job", self.job.encode()), ("key", self.key.encode()), ("at", b"%d" % self.offset)

    def topologies(self) -> tuple[Topology, ...]:
        """What it says; nothing where it cannot be read."""
        try:
            (event,) = codec.decode(self.value)
        except (RejectedMessage, ValueError) as error:
            logger.warning("a record of topology cannot be read: %s", error)
            return ()
        if isinstance(event, Flush):
            return event.topologies
        return (event,) if isinstance(event, Topology) else ()


@dataclass(slots=True)
class KnownTopologies:
    """The records of the topic, from which states that are begun anew are told.

    Examples
    --------
    >>> known = KnownTopologies()
    >>> known.of_key("c")
    []

    """

    _records: dict[str, Announcement] = field(default_factory=dict)

    @classmethod
    def read(cls, messages: Iterable[Message]) -> KnownTopologies:
        """From the topic, in its order. What has no place in `calls` is of before, when agents wrote here."""
        known = cls()
        for message in messages:
            if not message.value:
                known._records.pop(message.key, None)
            elif (kept := Announcement.in_record(message)) is not None:
                known._records[kept.name] = kept
        return known

    def of_key(self, key: str) -> list[Announcement]:
        """What stood in `calls` under a key, in its order."""
        return sorted((one for one in self._records.values() if one.key == key), key=lambda one: (one.offset, one.name))

    def relayed_to(self, key: str) -> list[Topology]:
        """What homes have passed on, or will, to the shard that has this key on `rounds`."""
        known = sorted(self._records.values(), key=lambda one: (one.offset, one.name))
        return [
            topology
            for one in known
            if one.key.startswith(HOME_KEY)
            for topology in one.topologies()
            if is_passed_on(topology) and relayed_key(topology.job, topology.attempt, joined_by(topology)) == key
        ]

    def of_job(self, job: str, attempt: int, settings: Settings) -> list[Event]:
        """What stage one has said of the communicators of a job that are open."""
        stages: dict[str, StageOne] = {}
        told: list[Event] = []
        said = [
            (topology.communicator, one.offset, topology)
            for one in self._records.values()
            for topology in (one.topologies() if one.job == job else ())
            if topology.attempt == attempt
        ]
        for communicator, _, topology in sorted(said, key=lambda one: one[:2]):
            stage = stages.setdefault(communicator, StageOne(settings))
            try:
                told += cast(list[Event], stage.on_event(topology))  # no digests follow from it
            except RejectedMessage as error:
                logger.warning("a record of topology contradicts the others: %s", error)
        return told
