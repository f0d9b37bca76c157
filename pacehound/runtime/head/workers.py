"""The threads of a head: one runs the pipeline, one writes the store, one tells people.

Each reads the bus at its own pace and commits what it has dealt with. None of them ever stops on a bad message, and
none can hold up another for longer than the bus has room.
"""

from __future__ import annotations

import abc
import logging
import threading
import time
from collections.abc import Callable

from pacehound.bus import Message
from pacehound.bus.memory import MemoryBus, MemoryConsumer
from pacehound.bus.recording import RecordingWriter
from pacehound.clock import Clock
from pacehound.errors import BusFull, MalformedMessage, RejectedMessage, Unavailable
from pacehound.model import codec, topics
from pacehound.model.events import Incident, Tick
from pacehound.model.routing import Event, route
from pacehound.runtime.dead_letter import letter_of
from pacehound.runtime.head.parts import Parts, Pipeline, Store
from pacehound.runtime.metric_names import (
    ALERT_FAILURES,
    EVENTS_IN,
    EVENTS_OUT,
    PIPELINE_FAILURES,
    PIPELINE_REJECTED,
    RECORDING_DROPPED,
    STORE_DROPPED,
    STORE_FAILURES,
    STORE_MESSAGES,
    TICKS,
    WORKER_FAILURES,
)
from pacehound.runtime.silence import Silence
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

# What the store keeps. Rounds and watermarks pass from stage one to stage two within this process.
STORED = tuple(topic for topic in topics.TOPICS.values() if topic is not topics.ROUNDS)
_POLL_S = 0.2


class Worker(threading.Thread, abc.ABC):
    """A thread that polls, deals with what it got, and commits, until it is told to stop."""

    def __init__(self, name: str, consumer: MemoryConsumer, max_messages: int, telemetry: Telemetry) -> None:
        super().__init__(name=name, daemon=True)
        self.consumer = consumer
        self._telemetry = telemetry
        self._max_messages = max_messages
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until `stop`, and then to the end of what is on the bus."""
        while True:
            stopping = self._stopping.is_set()
            messages = self.consumer.poll(self._max_messages, 0.0 if stopping else _POLL_S)
            try:
                self.deal_with(messages)
            except Exception:
                # A fault of ours in what surrounds the parts: the watching goes on, and the count says that it was.
                logger.exception("the %s worker failed on %d messages", self.name, len(messages))
                self._telemetry.add(WORKER_FAILURES, worker=self.name)
            self.consumer.commit()
            if stopping and not messages:
                self.finish()
                return
            self.rest(len(messages))

    def stop(self) -> None:
        """Finish what is on the bus, then end."""
        self._stopping.set()

    @abc.abstractmethod
    def deal_with(self, messages: list[Message]) -> None:
        """Process the next messages (none: time has passed)."""

    def rest(self, n_messages: int) -> None:
        """Wait before the next messages, after so many."""

    def finish(self) -> None:
        """The last thing before the thread ends."""


class PipelineWorker(Worker):
    """Feeds the pipeline in log order, records what it is fed, publishes what it concludes, and ticks."""

    def __init__(
        self,
        bus: MemoryBus,
        parts: Parts,
        silence: Silence,
        clock: Clock,
        telemetry: Telemetry,
        recording: RecordingWriter | None = None,
    ) -> None:
        super().__init__("pipeline", bus.subscribe([topics.CALLS, topics.HOSTS, topics.OPS]), 16, telemetry)
        self._bus = bus
        self._pipeline: Pipeline = parts.pipeline
        self._decide = parts.decide
        self._silence = silence
        self._clock = clock
        self._recording = recording

    def deal_with(self, messages: list[Message]) -> None:
        """Run each message through the pipeline, then tick what is silent."""
        for message in messages:
            self._record(message)
            for event in self._results(message):
                self._publish(event)
        if not messages and self._recording is not None:
            self._recording.flush()
        if not self._stopping.is_set():
            self._tick()

    def finish(self) -> None:
        """Close the recording."""
        if self._recording is not None:
            self._recording.close()

    def _record(self, message: Message) -> None:
        if self._recording is None:
            return
        try:
            self._recording.write(message)
        except OSError as error:
            if self._telemetry.value(RECORDING_DROPPED) == 0:
                logger.warning("the recording is incomplete from here on", extra={"error": str(error)})
            self._telemetry.add(RECORDING_DROPPED)

    def _results(self, message: Message) -> list[Event]:
        results: list[Event] = []
        try:
            for event in codec.decode(message.value):
                self._telemetry.add(EVENTS_IN, kind=type(event).__name__)
                results += self._pipeline.on_event(event)
        except RejectedMessage as error:
            self._telemetry.add(PIPELINE_REJECTED, error=type(error).__name__)
            results.append(letter_of(message, error, self._clock.now_ns()))
        except Exception as error:
            # A fault of ours: it must neither stop the watching nor disappear.
            logger.exception("the pipeline failed on a message", extra={"key": message.key, "offset": message.offset})
            self._telemetry.add(PIPELINE_FAILURES)
            results.append(letter_of(message, error, self._clock.now_ns()))
        for incident in [event for event in results if isinstance(event, Incident)]:
            results += self._decisions(incident)
        for event in results:
            self._telemetry.add(EVENTS_OUT, kind=type(event).__name__)
        return results

    def _decisions(self, incident: Incident) -> list[Event]:
        try:
            return list(self._decide(incident))
        except Exception:
            logger.exception("no decision could be made", extra={"incident": incident.id})
            self._telemetry.add(PIPELINE_FAILURES)
            return []

    def _publish(self, event: Event) -> None:
        topic, key = route(event)
        if topic not in STORED:
            return
        try:
            value = codec.encode(event)
        except ValueError:
            # A fault of the operator that concluded it; the other conclusions are none the worse.
            logger.exception("a conclusion cannot be written", extra={"kind": type(event).__name__, "job": event.job})
            self._telemetry.add(PIPELINE_FAILURES)
            return
        while True:
            try:
                self._bus.publish(topic, key, value)
                return
            except BusFull:
                # The store is behind; it drops and counts in the end, so this wait is bounded.
                time.sleep(0.05)

    def _tick(self) -> None:
        streams = self._pipeline.streams()
        for stream in self._silence.due(streams, self._clock.monotonic_s()):
            opened = streams[stream]
            tick = Tick(job=opened.job, attempt=opened.attempt, time_ns=self._clock.now_ns(), stream=stream)
            topic, key = route(tick)
            try:
                self._bus.publish(topic, key, codec.encode(tick))
                self._telemetry.add(TICKS)
            except BusFull:
                return  # a full bus is not a silent one


class StoreWorker(Worker):
    """Writes to the store in batches; gives a batch up after some tries, counts it, and goes on."""

    def __init__(
        self, bus: MemoryBus, store: Store, telemetry: Telemetry, tries: int = 4, first_pause_s: float = 0.25
    ) -> None:
        super().__init__("store", bus.subscribe(STORED), 2048, telemetry)
        self._bus = bus
        self._store = store
        self._tries = tries
        self._first_pause_s = first_pause_s

    def deal_with(self, messages: list[Message]) -> None:
        """Write them together; a batch that is refused is written one by one, so that one bad row takes no others."""
        if messages and not self._written(messages):
            for message in messages:
                if len(messages) == 1 or not self._written([message], tries=1):
                    self._telemetry.add(STORE_DROPPED)

    def rest(self, n_messages: int) -> None:
        """Few, large inserts cost the training host least, and a sender can wait for so long."""
        if 0 < n_messages < 64:
            self._stopping.wait(0.3)

    def _written(self, messages: list[Message], tries: int | None = None) -> bool:
        pause_s = self._first_pause_s
        for left in reversed(range(tries or self._tries)):
            try:
                letters = self._store.write(messages)
                self._telemetry.add(STORE_MESSAGES, len(messages))
                for letter in letters:
                    # A letter that does not fit itself is not worth another one.
                    if letter.source_topic != topics.DEAD_LETTERS.name:
                        self._bus.publish(*route(letter), codec.encode(letter))
                return True
            except RejectedMessage as error:
                logger.warning("the store refused a batch", extra={"error": str(error)})
                self._telemetry.add(STORE_FAILURES)
                return False
            except Exception as error:
                logger.warning("a write to the store failed", extra={"error": repr(error), "tries_left": left})
                self._telemetry.add(STORE_FAILURES)
                if left:
                    time.sleep(pause_s)
                    pause_s *= 2
        return False


class AlertWorker(Worker):
    """Hands every version of every incident to the alerts, which decide whom to tell."""

    def __init__(self, bus: MemoryBus, alert: Callable[[Incident], object], telemetry: Telemetry) -> None:
        super().__init__("alerts", bus.subscribe([topics.INCIDENTS]), 16, telemetry)
        self._alert = alert

    def deal_with(self, messages: list[Message]) -> None:
        """One after the other; a failure is counted and logged, and the next version tries again."""
        for message in messages:
            for event in codec.decode(message.value):
                if not isinstance(event, Incident):
                    raise MalformedMessage(f"a {type(event).__name__} on the topic of incidents")
                try:
                    self._alert(event)
                except Unavailable as error:
                    logger.warning("an alert could not be delivered", extra={"error": str(error)})
                    self._telemetry.add(ALERT_FAILURES)
                except Exception:
                    logger.exception("the alerts failed", extra={"incident": event.id})
                    self._telemetry.add(ALERT_FAILURES)
