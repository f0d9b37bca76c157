"""Who is in a communicator, kept on the compacted topic `topology` for as long as the communicator is open.

Hosts say it once, in `calls`, which forgets after hours. A worker that has lost the state of a job which is older than
that (a schema of states that it cannot read, a topic that was made anew) would set all that the job says aside: nobody
had announced it. So whoever takes a topology in writes it down here, with the offset at which it stood, and takes it
away when the communicator has closed. A state that is begun anew hears first what stood before its first message; what
stands behind it comes in the log. So what follows depends on the log alone here, too.
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
from pacehound.model.routing import Event
from pacehound.settings import Settings
from streams.rounds.stage_one import StageOne

logger = logging.getLogger("pacehound.streams")


def headers_of(topology: Topology, key: str, offset: int) -> tuple[tuple[str, bytes], ...]:
    """What a record says of itself, so that others need not be decoded: whose it is, and where it stood in `calls`."""
    of = ("communicator", topology.communicator.encode()), ("job", topology.job.encode()), ("at", b"%d" % offset)
    return of if key == topology.communicator else (*of, ("key", key.encode()))


def as_said(topology: Topology, event: Topology | Flush) -> Topology | Flush:
    """A topology as it is kept: one of a flush in the form in which it came, which is shorter."""
    if isinstance(event, Topology):
        return topology
    return Flush(job=event.job, attempt=event.attempt, host=event.host, shard=event.shard, topologies=(topology,))


@dataclass(frozen=True, slots=True)
class _Record:
    communicator: str
    job: str
    offset: int
    value: bytes
    key: str

    def topology(self) -> Topology | None:
        try:
            (event,) = codec.decode(self.value)
        except (RejectedMessage, ValueError) as error:
            logger.warning("a record of topology cannot be read: %s", error)
            return None
        if isinstance(event, Flush) and len(event.topologies) == 1:
            return event.topologies[0]
        return event if isinstance(event, Topology) else None


@dataclass(slots=True)
class KnownTopologies:
    """The records of the topic, from which states that are begun anew are told.

    Examples
    --------
    >>> known = KnownTopologies()
    >>> known.before("c", 7)
    []

    """

    _records: dict[str, _Record] = field(default_factory=dict)

    @classmethod
    def read(cls, messages: Iterable[Message]) -> KnownTopologies:
        """From the topic, in its order. What has no place in `calls` is of before, when agents wrote here."""
        known = cls()
        for message in messages:
            said = dict(message.headers)
            if not message.value:
                known._records.pop(message.key, None)
            elif {"communicator", "job", "at"} <= said.keys() and said["at"].isdigit():
                communicator, job = (said[name].decode(errors="replace") for name in ("communicator", "job"))
                key = said["key"].decode(errors="replace") if "key" in said else communicator
                known._records[message.key] = _Record(communicator, job, int(said["at"]), message.value, key)
        return known

    def before(self, key: str, offset: int) -> list[Topology]:
        """What stood in `calls` before an offset, on a key, in its order."""
        found = [one for one in self._records.values() if one.key == key and one.offset < offset]
        return [said for one in sorted(found, key=lambda one: one.offset) if (said := one.topology()) is not None]

    def of_job(self, job: str, attempt: int, settings: Settings) -> list[Event]:
        """What stage one has said of the communicators of a job that are open."""
        stages: dict[str, StageOne] = {}
        told: list[Event] = []
        for one in sorted(self._records.values(), key=lambda one: (one.communicator, one.offset)):
            said = one.topology() if one.job == job else None
            if said is None or said.attempt != attempt:
                continue
            stage = stages.setdefault(one.communicator, StageOne(settings))
            try:
                told += cast(list[Event], stage.on_event(said))  # no digests follow from it
            except RejectedMessage as error:
                logger.warning("a record of topology contradicts the others: %s", error)
        return told
