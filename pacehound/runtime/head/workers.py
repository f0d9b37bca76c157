"""The loops of a head: the pipeline, the store, the actuators and the alerts, each on a thread of its own.

It is the same loop as on Kafka (`runtime.event_loop`), over the memory bus. None of them ever stops on a bad message,
and none can hold up another for longer than the bus has room.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pacehound.bus import Message
from pacehound.bus.memory import MemoryBus, MemoryConsumer
from pacehound.bus.recording import RecordingWriter
from pacehound.clock import Clock
from pacehound.errors import PartlyRefused
from pacehound.model import topics
from pacehound.model.events import Tick
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic
from pacehound.runtime.event_loop import LONGEST_RETRY_S, MAX_MESSAGES, EventLoop, EventWorker, Worker
from pacehound.runtime.head.keeper import Keeper
from pacehound.runtime.head.parts import Pipeline
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.metric_names import EVENTS_IN, EVENTS_OUT, RECORDING_DROPPED, TICKS
from pacehound.runtime.phases import Stages
from pacehound.runtime.silence import OpenStream, Silence
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

# What the store keeps. Rounds and watermarks pass from stage one to stage two within this process.
STORED = tuple(topic for topic in topics.TOPICS.values() if topic is not topics.ROUNDS)
_LONGEST_POLL_S = 60.0
"""Whom nothing concerns before something comes sleeps until then: a look in between takes a third of a millisecond."""
_STATE_POLL_S = 0.2
"""So often a state that waits for the store is asked after."""


class HeadLoop(threading.Thread):
    """One worker on the memory bus, until it is told to stop; then it deals with what is left there."""

    def __init__(
        self,
        name: str,
        bus: MemoryBus,
        read: Iterable[Topic],
        worker: Worker,
        telemetry: Telemetry,
        clock: Clock,
        *,
        max_messages: int = 16,
        linger_s: float = 0.0,
        linger_below: int = MAX_MESSAGES,
        longest_retry_s: float = LONGEST_RETRY_S,
        recording: RecordingWriter | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        consumer = bus.subscribe(read)
        self._consumer = consumer if recording is None else RecordedConsumer(consumer, recording, telemetry)
        self.loop = EventLoop(
            name=name,
            worker=worker,
            subscribe=lambda on_revoked: self._consumer,
            producer=bus,
            telemetry=telemetry,
            liveness=Liveness(clock),
            clock=clock,
            stages=Stages(telemetry, clock),
            max_messages=max_messages,
            poll_s=_LONGEST_POLL_S,
            linger_s=linger_s,
            linger_below=linger_below,
            longest_retry_s=longest_retry_s,
            # Who reads it here need not read the bytes that were written a moment ago.
            publish=bus.publish,
            drains=True,
        )
        self._stopping = threading.Event()

    @property
    def committed(self) -> int:
        """The position on the bus up to which everything is dealt with."""
        return self._consumer.committed

    @property
    def stuck_why(self) -> str:
        """Why nothing can be made durable now; empty where it can."""
        return self.loop.problem or ("" if self.is_alive() else f"the {self.name} has ended")

    def run(self) -> None:
        """Until `stop`."""
        self.loop.run(self._stopping)

    def stop(self) -> None:
        """Finish what is on the bus, then end."""
        self._stopping.set()
        self._consumer.hurry()
        self.hurry()

    def hurry(self) -> None:
        """Somebody waits for it: deal now with what has come."""
        self.loop.hurried.set()

    def wake(self) -> None:
        """Something has come that is no message of its topics: its worker is asked what follows now."""
        self._consumer.wake()


class RecordedConsumer:
    """A consumer of the memory bus that writes every message it hands out into a recording, in log order."""

    def __init__(self, consumer: MemoryConsumer, recording: RecordingWriter, telemetry: Telemetry) -> None:
        self._consumer = consumer
        self._recording = recording
        self._telemetry = telemetry
        self.commit_to = consumer.commit_to
        self.pause = consumer.pause
        self.resume = consumer.resume
        self.lag = consumer.lag
        self.hurry = consumer.hurry
        self.wake = consumer.wake

    @property
    def committed(self) -> int:
        """As the consumer's."""
        return self._consumer.committed

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """Further messages; a recording that cannot be written is incomplete, and counted."""
        messages = self._consumer.poll(max_messages, timeout_s)
        try:
            for message in messages:
                self._recording.write(message)
            if not messages:
                self._recording.flush()
        except OSError as error:
            if self._telemetry.value(RECORDING_DROPPED) == 0:
                logger.warning("the recording is incomplete from here on", extra={"error": str(error)})
            self._telemetry.add(RECORDING_DROPPED, len(messages))
        return messages

    def close(self) -> None:
        """Leave the bus and close the recording."""
        self._consumer.close()
        self._recording.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Who keeps the state of the pipeline, and what he has to know of the bus: its end, and how far the store is.

    `store_now` has it stored at once: a state waits for that.
    """

    keeper: Keeper
    position: Callable[[], int]
    stored: Callable[[], int]
    store_now: Callable[[], object]


class PipelineWorker(EventWorker):
    """Feeds the pipeline in log order, and ticks the streams in which a host has fallen silent."""

    kinds: tuple[type, ...] = (object,)

    def __init__(
        self,
        pipeline: Pipeline,
        silence: Silence,
        clock: Clock,
        telemetry: Telemetry,
        on_rounds: Callable[[Rounds], object] | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self._keeping = keeping
        self._pipeline = pipeline
        self._on_rounds = on_rounds
        self._silence = silence
        self._clock = clock
        self._telemetry = telemetry
        self._streams: Mapping[str, OpenStream] = {}
        """Those that were open when time was asked for last."""

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """What the pipeline concludes, as far as it is kept."""
        self._telemetry.add(EVENTS_IN, kind=type(event).__name__)
        refused: PartlyRefused | None = None
        try:
            results = self._pipeline.on_event(event)
        except PartlyRefused as error:
            refused, results = error, [cast(Event, result) for result in error.results]
        finally:
            if self._keeping is not None:
                self._keeping.keeper.handled(message)
        for kind, number in Counter(type(result).__name__ for result in results).items():
            self._telemetry.add(EVENTS_OUT, number, kind=kind)
        if self._on_rounds is not None:
            for result in results:
                if isinstance(result, Rounds):
                    self._on_rounds(result)
        stored = [result for result in results if route(result)[0] in STORED]
        if refused is not None:
            raise refused.with_results(stored)
        return stored

    def on_turn(self) -> list[Event]:
        """A tick for each stream in which a host is silent: only what stands in the log may close a silence."""
        if self._keeping is not None:
            self._keeping.keeper.write(self._keeping.stored())
        self._streams = streams = self._pipeline.streams()
        due = self._silence.due(streams, self._clock.monotonic_s())
        self._telemetry.add(TICKS, len(due))
        now_ns = self._clock.now_ns()
        return [Tick(job=streams[name].job, attempt=streams[name].attempt, time_ns=now_ns, stream=name) for name in due]

    def may_wait_s(self) -> float:
        """Until a stream may be due for a tick; a state that waits for the store is looked after meanwhile."""
        wait_s = self._silence.may_wait_s(self._streams, self._clock.monotonic_s())
        is_waiting = self._keeping is not None and self._keeping.keeper.is_waiting
        return min(wait_s, _STATE_POLL_S) if is_waiting else wait_s

    def on_settled(self) -> None:
        """Between two messages, with all that they led to on the bus: the state may be kept."""
        if self._keeping is None:
            return
        try:
            if self._keeping.keeper.look(self._keeping.position()):
                self._keeping.store_now()
        except Exception:
            logger.exception("the state of the operators cannot be kept")
