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
from dataclasses import dataclass, field
from typing import cast

from pacehound.bus import Message
from pacehound.errors import RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Topology
from pacehound.model.flushes import Flush
from pacehound.model.identity import event_id
from pacehound.model.routing import Event
from pacehound.settings import Settings
from streams.rounds.stage_one import StageOne

logger = logging.getLogger("pacehound.streams")


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a message says of who is in which communicators, to be kept as one record."""

    name: str
    """Whoever says the same again says it under the same name."""
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    """Where it stood in `calls`, and whose it is: others need not be decoded."""

    @classmethod
    def in_event(cls, event: Event, key: str, offset: int) -> Announcement | None:
        """That of an event which stood there under a key; `None`: it announces nothing."""
        if isinstance(event, Topology):
            name, kept = event.identity(), cast(Event, event)
        elif isinstance(event, Flush) and event.topologies:
            name = event_id("topologies", event.job, *[one.identity() for one in event.topologies])
            kept = Flush(
                job=event.job, attempt=event.attempt, host=event.host, shard=event.shard, topologies=event.topologies
            )
        else:
            return None
        headers = ("job", event.job.encode()), ("key", key.encode()), ("at", b"%d" % offset)
        return cls(name, codec.encode(kept), headers)


@dataclass(frozen=True, slots=True)
class KeptAnnouncement:
    """A record: whose it is, where in `calls` it stood, and what it says."""

    name: str
    job: str
    key: str
    offset: int
    value: bytes

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

    _records: dict[str, KeptAnnouncement] = field(default_factory=dict)

    @classmethod
    def read(cls, messages: Iterable[Message]) -> KnownTopologies:
        """From the topic, in its order. What has no place in `calls` is of before, when agents wrote here."""
        known = cls()
        for message in messages:
            said = dict(message.headers)
            # Before a message was one record, one of a communicator's own key named the communicator alone.
            key = said.get("key", said.get("communicator", b"")).decode(errors="replace")
            if not message.value:
                known._records.pop(message.key, None)
            elif key and {"job", "at"} <= said.keys() and said["at"].isdigit():
                job = said["job"].decode(errors="replace")
                known._records[message.key] = KeptAnnouncement(message.key, job, key, int(said["at"]), message.value)
        return known

    def of_key(self, key: str) -> list[KeptAnnouncement]:
        """What stood in `calls` under a key, in its order."""
        return sorted((one for one in self._records.values() if one.key == key), key=lambda one: (one.offset, one.name))

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
