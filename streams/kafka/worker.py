"""What a worker does with the partitions that it has: takes messages in, sends on what follows, keeps snapshots.

What it may rely on, and why nothing is lost, stands in partition.py. Outputs and snapshots go through our own producer:
outputs first, then the snapshot that covers them, then the commit. Who belongs to the group, and which messages come,
is somebody else's affair (`Group`; app.py).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from pacehound.bus import Message, Place
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_reader import first_offset_from, oldest_offsets, read_to_end
from pacehound.clock import Clock
from pacehound.errors import BusFull, InvalidEvent, PartlyRefused, RejectedMessage, Unavailable
from pacehound.model import codec, topics
from pacehound.model.events import Tick, Topology
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.routing import Event, route
from pacehound.model.shards import RELAYED_KEY
from pacehound.model.topics import Topic
from pacehound.runtime.dead_letter import dead_letter_of
from pacehound.runtime.metric_names import (
    DEAD_LETTERED,
    EVENTS_IN,
    EVENTS_OUT,
    LAST_BATCH,
    MESSAGES,
    PIPELINE_FAILURES,
    SKIPPED,
    TICKS,
)
from pacehound.runtime.records import Outcome, dead_letters_of, refused_with, worked
from pacehound.runtime.silence import Silence, quiet_s_of
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from streams.job.stage_two import StageTwo
from streams.kafka.consumer_group import ConsumerGroup
from streams.kafka.going_back import GoingBack
from streams.kafka.operators import Operator, operator_of
from streams.kafka.outputs import Followed, encoded, passed_on, together, told
from streams.kafka.partition import Gap, KeyState, Partition
from streams.kafka.snapshot_records import MARKER, SnapshotReader
from streams.kafka.snapshot_times import SnapshotTimes
from streams.kafka.topologies import Announcement, KnownTopologies, name_of
from streams.rounds.stage_one import OpenStream
from streams.snapshots.schema import state_codec

logger = logging.getLogger("pacehound.streams")

INPUTS = (topics.CALLS, topics.HOSTS, topics.OPS, topics.ROUNDS)
FLUSH_S = 300.0
TICK_GRACE_S = 10.0
REACHED_WITHIN_S = 1.0
LOOKED_UP_WITHIN_S = 5.0


class StreamsWorker:
    """The partitions of one worker: takes messages in, sends on what follows, keeps snapshots.

    Parameters
    ----------
    settings
        Of the whole process.
    group
        Who decides which partitions are ours.
    producer
        Where outputs and snapshots go.
    telemetry, clock
        What counts, and what tells the time.

    """

    def __init__(
        self, settings: Settings, group: ConsumerGroup, producer: KafkaProducer, telemetry: Telemetry, clock: Clock
    ) -> None:
        self._settings = settings
        self._codec = state_codec(settings)
        self._group = group
        self._producer = producer
        self._telemetry = telemetry
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pacehound-kafka")
        self._probe = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pacehound-probe")
        self._partitions: dict[Place, Partition[Operator]] = {}
        self._topologies = KnownTopologies()
        self._restoring = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._going_back = GoingBack(group, self._partitions, self._first_offset_from, telemetry, clock)
        self._owner = ""
        self._generation = -1
        self._uncommitted: dict[Place, int] = {}
        self._snapshot_times = SnapshotTimes()
        self._came_s = 0.0  # when the last message did, and what follows from it had been told
        self._ticked_s = self._clock.monotonic_s()
        self._silence = self._listening_anew()

    # Messages

    async def take(self, message: Message) -> None:
        """One message of a partition that is ours; it may come twice, and others may not have come before it."""
        self._telemetry.add(MESSAGES, topic=message.topic)
        self._telemetry.set(LAST_BATCH, self._clock.now_ns() / 1e9)
        began_s = self._clock.monotonic_s()
        place = (message.topic, message.partition)
        if place not in self._partitions:
            await self._restore()
        try:
            async with self._turn:  # what waits for the bus in the middle of a message has no snapshot taken of it
                partition = self._partitions.get(place)
                if partition is not None:
                    await self._admit(partition, message)
        finally:
            # The last message of a burst takes longest: what it says to stage two is on its way when it is done.
            self._came_s = self._clock.monotonic_s()
            self._snapshot_times.worked(began_s, self._came_s)

    async def _admit(self, partition: Partition[Operator], message: Message) -> None:
        place = (message.topic, message.partition)
        try:
            state = partition.admit(message)
        except RejectedMessage as error:
            self._going_back.has_come(place)
            await self._set_aside(message, error)
            return
        if isinstance(state, Gap):
            await self._going_back.to(place, state.wanted, came=message.offset)
            return
        self._going_back.has_come(place)
        if state is None:
            self._telemetry.add(SKIPPED, topic=message.topic)
            return
        if message.key not in partition.keys:
            await self._introduce(partition, message, state)
        if await self._work(partition, message, state):
            if state.operator.is_closed and state.announced:
                for name in state.announced:
                    await self._put_topology(message.key, name, None)
                state.announced = {}
            partition.done(message.key, state)

    async def _introduce(self, partition: Partition[Operator], message: Message, state: KeyState[Operator]) -> None:
        """Tell a state that is begun anew what the log may have forgotten."""
        if message.topic == topics.ROUNDS.name:
            for event in self._forgotten(message) if state.is_begun_anew else ():
                await self._send(partition, message, state, [Followed(event, list(state.operator.on_event(event)))])
            return
        for kept in self._topologies.of_key(message.key):
            state.announced[kept.name] = None
            for topology in kept.topologies() if kept.offset < state.began else ():
                try:
                    results = state.operator.on_event(topology)
                except RejectedMessage as error:
                    logger.warning("%s/%d@%d: what was kept contradicts itself: %s", *_where(message), error)
                    continue
                await self._send(partition, message, state, [Followed(topology, results)])

    def _forgotten(self, message: Message) -> list[Event]:
        """Who is in the communicators of which this key of `rounds` hears."""
        if message.key.startswith(RELAYED_KEY):
            return [*self._topologies.relayed_to(message.key)]
        attempts = {
            event.attempt for outcome in worked(message, lambda _: None) if (event := outcome.event) is not None
        }
        return [
            event
            for attempt in sorted(attempts)
            for event in self._topologies.of_job(message.key, attempt, self._settings)
        ]

    async def _note_topology(self, message: Message, state: KeyState[Operator], event: Event) -> None:
        """Keep topologies that were taken in, for whoever begins the state anew when `calls` has forgotten them."""
        if not isinstance(event, (Topology, Flush)) or isinstance(state.operator, StageTwo) or state.operator.is_closed:
            return
        name = name_of(event)
        if name is not None and name not in state.announced:
            state.announced[name] = None
            kept = Announcement.in_event(event, name, message.key, message.offset)
            await self._put_topology(message.key, name, kept.value, kept.headers)

    async def _put_topology(
        self, key: str, name: str, value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> None:
        number = topics.partition_of(key.encode(), topics.TOPOLOGY.partitions)
        await self._put_to(topics.TOPOLOGY, number, name.encode(), value, headers)

    async def _work(self, partition: Partition[Operator], message: Message, state: KeyState[Operator]) -> bool:
        """Feed the events of a message to its key; whether that has a state worth keeping.

        Each of its records stands for itself: a bad one does not take the good ones with it.
        """
        is_kept = message.key in partition.keys

        def work(event: Event) -> list[Event | PairRounds]:
            self._check_key(event, message)
            self._telemetry.add(EVENTS_IN, kind=type(event).__name__)
            return list(state.operator.on_event(event))

        refused = []
        followed: list[tuple[Outcome[Any], Followed]] = []
        for outcome in worked(message, work):
            event, error = outcome.event, outcome.error
            if event is not None and (error is None or isinstance(error, PartlyRefused)):
                is_kept = True
                followed.append((outcome, Followed(event, outcome.result or [])))
                try:
                    await self._note_topology(message, state, event)
                    self._hear(event, message.key)
                except Unavailable:
                    raise
                except Exception as fault:
                    logger.exception("a topology could not be kept: %s/%d@%d", *_where(message))
                    error = error or fault
            if error is not None:
                refused += refused_with(message, replace(outcome, error=error))
        try:
            await self._send(partition, message, state, [one for _, one in followed])
        except Unavailable:
            raise
        except Exception as fault:  # the first of it stands for all
            if not isinstance(fault, RejectedMessage):
                logger.exception("what follows could not be sent on: %s/%d@%d", *_where(message))
            refused.append(replace(followed[-1][0], error=fault))
        for outcome in refused:
            if not isinstance(outcome.error, RejectedMessage):
                # A fault of ours: it must neither stop the partition nor disappear.
                self._telemetry.add(PIPELINE_FAILURES)
            self._telemetry.add(DEAD_LETTERED, topic=message.topic, error=type(outcome.error).__name__)
        for letter in dead_letters_of(message, refused, self._clock.now_ns()):
            await self._publish(letter)
        return is_kept

    async def _send(
        self, partition: Partition[Operator], message: Message, state: KeyState[Operator], followed: Sequence[Followed]
    ) -> None:
        """Send on what follows from the events of a message; to stage two in as few messages as may be.

        Raises
        ------
        InvalidEvent
            A result is larger than a message may be. The others are sent, and the numbers of what is sent have no gap:
            stage two would wait behind it for ever.
        ValueError
            A result holds what cannot be written, a fault of ours; the same holds of the others.

        """
        kinds = Counter(type(result).__name__ for one in followed for result in one.results)
        for kind, n_results in kinds.items():
            self._telemetry.add(EVENTS_OUT, n_results, kind=kind)
        rest, relayed = passed_on(followed)
        bodies, refused = encoded(told(rest))
        others, refused_others = encoded(relayed)
        refused = refused or refused_others
        for event, body in others:
            topic, key = route(event)
            await self._put(topic, key, body, (partition.stamp(message.key, state, to=key).header(),))
        if isinstance(state.operator, StageTwo):
            for event, body in bodies:
                topic, key = route(event)
                await self._put(topic, key, body)
        else:
            for job, joined in together(bodies):
                stamp = partition.stamp(message.key, state)
                await self._put(topics.ROUNDS, job, joined, (stamp.header(),))
        if refused is not None:
            raise refused

    async def _publish(self, event: Event) -> None:
        topic, key = route(event)
        await self._put(topic, key, codec.encode(event))

    async def _put(self, topic: Topic, key: str, value: bytes, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
        await self._put_to(topic, topics.partition_of(key.encode(), topic.partitions), key.encode(), value, headers)

    async def _put_to(
        self,
        topic: Topic,
        partition: int,
        key: bytes,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        while True:
            try:
                self._producer.publish_to(topic, partition, key, value, headers=headers)
                return
            except BusFull:
                await asyncio.sleep(0.02)  # the broker is behind, or away: so are we then

    def _check_key(self, event: Event, message: Message) -> None:
        if message.key == MARKER:
            raise InvalidEvent(f"the key {message.key!r} is that of snapshots")
        if message.topic == topics.ROUNDS.name and not message.key.startswith(RELAYED_KEY):
            if event.job != message.key:
                raise InvalidEvent(f"an event of job {event.job!r} has the key {message.key!r}")
            return
        topic, key = route(event)
        if (topic.name, key) != (message.topic, message.key):
            raise InvalidEvent(
                f"a {type(event).__name__} belongs to {topic.name!r} with the key {key!r}, "
                f"and came on {message.topic!r} with {message.key!r}"
            )

    async def _set_aside(self, message: Message, error: Exception) -> None:
        self._telemetry.add(DEAD_LETTERED, topic=message.topic, error=type(error).__name__)
        await self._publish(dead_letter_of(message, error, self._clock.now_ns()))

    # Partitions that come and go

    async def _restore(self) -> None:
        """The state of every partition that has come to this worker."""
        async with self._restoring:
            self._forget_others()
            new = [place for place in self._group.assigned() if place not in self._partitions]
            if not new:
                return
            loop = asyncio.get_running_loop()
            began_s = self._clock.monotonic_s()
            reader, oldest = await loop.run_in_executor(self._thread, self._read, new)
            self._owner = uuid.uuid4().hex[:12]
            begins_anew = False
            for topic, number in new:
                partition: Partition[Operator] = Partition(
                    topic, number, self._maker(topic), self._codec, is_stamped=topic == topics.ROUNDS.name
                )
                first = oldest[topic, number]
                lost = partition.restore(first, reader.of(topic, number, self._codec.version))
                if lost:
                    logger.error("%s/%d: state is lost, and begun anew: %s", topic, number, "; ".join(lost[:4]))
                # Who begins anew is told what the log has forgotten, and takes away at last what was kept of it before.
                begins_anew |= bool(lost) or (first > 0 and partition.next_offset == first)
                self._partitions[topic, number] = partition
            if begins_anew:
                self._topologies = await loop.run_in_executor(self._thread, self._read_topologies)
            logger.info("%d partitions have come, restored in %.1f s", len(new), self._clock.monotonic_s() - began_s)

    def _forget_others(self) -> None:
        """What is somebody else's now: of its hosts nothing is heard here any more, which is no silence of theirs."""
        generation = self._group.generation()
        if generation == self._generation:
            return
        self._generation = generation
        ours = set(self._group.assigned())
        for place in [place for place in self._partitions if place not in ours]:
            del self._partitions[place]
            self._uncommitted.pop(place, None)
            self._going_back.has_come(place)
        self._silence = self._listening_anew()

    def _read(self, places: list[Place]) -> tuple[SnapshotReader, Mapping[Place, int]]:
        reader = SnapshotReader()
        for message in read_to_end(self._settings.kafka, topics.SNAPSHOTS):
            reader.add(message.key.encode(), message.value)
        if reader.strangers:
            logger.warning("%d records of %s are no snapshots", reader.strangers, topics.SNAPSHOTS.name)
        return reader, oldest_offsets(self._settings.kafka, places)

    def _read_topologies(self) -> KnownTopologies:
        return KnownTopologies.read(read_to_end(self._settings.kafka, topics.TOPOLOGY))

    def _maker(self, topic: str) -> Callable[[str], Operator]:
        return lambda key: operator_of(topic, key, self._settings)

    async def _notice_undelivered(self) -> None:
        """Ask for messages that are there and do not come."""
        late = self._going_back.late(self._came_s)
        if late and not self._partitions.keys() >= set(late):  # of some no message has come yet
            try:
                await self._restore()
            except Unavailable as error:
                logger.warning("what has come to this worker cannot be read yet: %s", error)
        self._going_back.ask_for(late)

    async def _first_offset_from(self, place: Place, offset: int) -> int | None:
        loop = asyncio.get_running_loop()
        look_up = partial(first_offset_from, self._settings.kafka, place, offset, LOOKED_UP_WITHIN_S)
        return await loop.run_in_executor(self._probe, look_up)

    # Snapshots

    async def keep(self) -> None:
        """Write down what has changed, once everything that came out of it is in the log; then commit."""
        if not self._snapshot_times.are_due(self._clock.monotonic_s()):
            return
        self._forget_others()
        began_s = self._clock.monotonic_s()
        async with self._turn:
            snapshots = {
                place: snapshot
                for place, partition in self._partitions.items()
                if (snapshot := partition.snapshot(self._owner)) is not None
            }
        took_s = self._clock.monotonic_s() - began_s
        for place, snapshot in snapshots.items():
            for key, reason in snapshot.unwritten:
                self._telemetry.add(PIPELINE_FAILURES)
                logger.error("%s/%d: the state of %s is kept in no snapshot: %s", *place, key, reason)
            for key, reason in snapshot.too_large:
                logger.warning("%s/%d: nothing is confirmed until %s has less to wait for: %s", *place, key, reason)
        if snapshots:
            self._snapshot_times.written(began_s, took_s)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._producer.flush, FLUSH_S)
            for place, snapshot in snapshots.items():
                await self._write(place, snapshot.records)
            await loop.run_in_executor(self._thread, self._producer.flush, FLUSH_S)
            for place, snapshot in snapshots.items():
                await self._write(place, tuple((key, None) for key in snapshot.superseded))
                self._uncommitted[place] = snapshot.covered + 1
        # What could not be committed while the group changed is committed later, also if no message comes any more.
        offsets = {place: offset for place, offset in self._uncommitted.items() if place in self._partitions}
        if offsets and await self._group.commit(offsets):
            self._uncommitted = {}

    async def _write(self, place: Place, records: tuple[tuple[bytes, bytes | None], ...]) -> None:
        number = snapshot_partition(*place)
        for key, value in records:
            await self._put_to(topics.SNAPSHOTS, number, key, value)

    # Silence

    def _hear(self, event: Event, key: str) -> None:
        host = getattr(event, "host", None)
        if host is None or isinstance(event, Operations):  # which speak of the past, and on a topic of their own
            return
        if isinstance(event, Flush):  # its promises say how far the host has got; calls speak of the past by nature
            time_ns = max(event.promised_ns.values(), default=0)
        else:
            time_ns = getattr(event, "time_ns", 0)
        lag_s = (self._clock.now_ns() - time_ns) / 1e9 if time_ns > 0 else None
        now_s = self._clock.monotonic_s()
        self._silence.heard(key, event.job, host, lag_s=lag_s, now_s=now_s, quiet_s=quiet_s_of(event))

    def _listening_anew(self) -> Silence:
        return Silence(
            started_s=self._clock.monotonic_s(),
            silent_after_s=self._settings.stream.lateness_s,
            every_s=1.0,
            grace_s=TICK_GRACE_S,
        )

    async def tick(self) -> None:
        """Write a tick into every stream of ours in which a host has fallen silent.

        Not while it may be us who did not hear: after this process stood still, the broker was away, or the partitions
        were shared out anew, hosts have some seconds to catch up.
        """
        await self._going_back.ask_again()
        now_s = self._clock.monotonic_s()
        stood_still = now_s - self._ticked_s > self._settings.stream.lateness_s
        loop = asyncio.get_running_loop()
        is_reachable = await loop.run_in_executor(self._probe, self._producer.is_reachable, REACHED_WITHIN_S)
        self._ticked_s = self._clock.monotonic_s()
        self._forget_others()
        if stood_still or not is_reachable:
            self._silence = self._listening_anew()
            self._going_back.listen_anew()
            return
        await self._notice_undelivered()
        streams: dict[str, OpenStream] = {}
        for place in self._group.assigned():
            partition = self._partitions.get(place)
            for key, state in partition.keys.items() if partition is not None else ():
                if not isinstance(state.operator, StageTwo) and (opened := state.operator.open_stream()) is not None:
                    streams[key] = opened
        for name in self._silence.due(streams, self._clock.monotonic_s()):
            opened = streams[name]
            await self._publish(Tick(job=opened.job, attempt=opened.attempt, time_ns=self._clock.now_ns(), stream=name))
            self._telemetry.add(TICKS)


def snapshot_partition(topic: str, number: int) -> int:
    """Where the snapshots of a partition stand."""
    return topics.partition_of(f"{topic}/{number}".encode(), topics.SNAPSHOTS.partitions)


def _where(message: Message) -> tuple[str, int, int]:
    return message.topic, message.partition, message.offset
