"""The Faust application: both stages on Kafka, an agent for each.

Faust brings the messages, joins and leaves the group, and keeps time. It commits nothing by itself and keeps no table;
what it delivers twice, late or not at all is noticed by the partitions' own offsets (worker.py, partition.py).
"""

from __future__ import annotations

import logging
import os
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import faust
from aiokafka.errors import IllegalStateError
from faust.types import TP, StreamT

from pacehound.bus import Message, Place
from pacehound.bus.kafka import SESSION_TIMEOUT_S, KafkaProducer
from pacehound.clock import SystemClock
from pacehound.model import topics
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from streams.kafka.assignor import assignor_of
from streams.kafka.client import credentials_of
from streams.kafka.fetches import PARTITION_BYTES, fetch_promptly
from streams.kafka.hand_over import hand_over_at_once
from streams.kafka.lenient_records import read_leniently
from streams.kafka.worker import INPUTS, StreamsWorker

logger = logging.getLogger("pacehound.streams")

GROUP = "streams"


class FaustGroup:
    """The group of a Faust application."""

    def __init__(self, app: faust.App, prefix: str) -> None:
        self._app = app
        self._prefix = prefix
        self._names = {topic.name for topic in INPUTS}

    def assigned(self) -> list[Place]:
        """The partitions of our topics."""
        places = [(tp.topic.removeprefix(self._prefix), tp.partition) for tp in self._app.consumer.assignment()]
        return sorted(place for place in places if place[0] in self._names)

    def generation(self) -> int:
        """As the group's coordinator counts."""
        generation: int = self._app.consumer_generation_id
        return generation

    def end(self, place: Place) -> int | None:
        """As the broker has last told."""
        try:
            highwater: int | None = self._app.consumer.highwater(self._tp(place))
        except (AssertionError, AttributeError):  # it went to another worker just now
            return None
        return highwater

    async def seek(self, place: Place, offset: int) -> None:
        """From here on, in the thread that reads.

        Faust's `seek` takes away in ours what aiokafka may be handing out just then, and that ends the worker.
        """
        try:
            await self._app.consumer.seek_wait({self._tp(place): offset})
        except (IllegalStateError, AttributeError, TimeoutError) as error:  # it went to another worker just now
            logger.info("%s/%d: not read from %d on: %r", *place, offset, error)

    async def commit(self, offsets: Mapping[Place, int]) -> bool:
        """What is no longer ours is left out."""
        ours = set(self.assigned())
        held = {self._tp(place): offset for place, offset in offsets.items() if place in ours}
        if not held:
            return True
        consumer: Any = self._app.consumer
        # The public commit follows Faust's own acknowledgements, which are switched off.
        committed: bool = await consumer._commit(held)
        return committed

    def message(self, raw: Any) -> Message | None:
        """A message as the worker takes it; `None` for one that was fetched before the group last changed.

        That one is fetched again, by whoever owns its partition now.
        """
        if raw.generation_id != self._app.consumer_generation_id:
            return None
        return Message(
            topic=raw.topic.removeprefix(self._prefix),
            key=(raw.key or b"").decode(errors="replace"),
            partition=raw.partition,
            offset=raw.offset,
            value=raw.value or b"",
            headers=tuple((name, value or b"") for name, value in raw.headers or ()),
        )

    def _tp(self, place: Place) -> TP:
        return TP(self._prefix + place[0], place[1])


def make_app(settings: Settings, telemetry: Telemetry | None = None, liveness: Liveness | None = None) -> faust.App:
    """The application: one agent per stage.

    Parameters
    ----------
    settings
        `kafka.servers` must be set, and the topics must be there (`pacehound topics`).
    telemetry
        Counts what passes.
    liveness
        Told that the loop turns.

    """
    prefix = settings.kafka.prefix
    read_leniently()
    fetch_promptly()
    hand_over_at_once()
    app = faust.App(
        prefix + GROUP,
        broker=[f"kafka://{server}" for server in settings.kafka.servers.split(",")],
        broker_credentials=credentials_of(settings.kafka),
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=SESSION_TIMEOUT_S / 3,
        broker_request_timeout=30.0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=PARTITION_BYTES,
        stream_buffer_maxsize=256,
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        PartitionAssignor=assignor_of(INPUTS, prefix),
        store="memory://",
        datadir=str(Path(tempfile.gettempdir()) / f"pacehound-streams-{os.getpid()}"),  # it makes one, whatever for
        web_enabled=False,
        key_serializer="raw",
        value_serializer="raw",
    )

    def raw(*names: str) -> Any:
        full = [prefix + name for name in names]
        return app.topic(
            *full, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=False
        )

    group = FaustGroup(app, prefix)
    producer = KafkaProducer(settings.kafka, f"{GROUP}-{uuid.uuid4().hex[:8]}")
    worker: list[StreamsWorker] = []

    def ours() -> StreamsWorker:
        if not worker:  # in the loop that it lives in
            worker.append(StreamsWorker(settings, group, producer, telemetry or Telemetry(), SystemClock()))
        return worker[0]

    async def taken(stream: StreamT[Any]) -> None:
        async for event in stream.events():
            message = group.message(event.message)
            if message is not None:
                await ours().take(message)

    async def communicators(stream: StreamT[Any]) -> None:
        await taken(stream)

    async def jobs(stream: StreamT[Any]) -> None:
        await taken(stream)

    async def keep() -> None:
        if liveness is not None:
            liveness.mark_alive()
        await ours().keep()

    async def tick() -> None:
        await ours().tick()

    app.agent(raw(topics.CALLS.name, topics.HOSTS.name, topics.OPS.name), name="communicators")(communicators)
    app.agent(raw(topics.ROUNDS.name), name="jobs")(jobs)
    app.timer(interval=0.5)(keep)
    app.timer(interval=1.0)(tick)
    return app
