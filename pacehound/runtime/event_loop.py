"""The loop of whoever reads events from a bus, works on them, and confirms what it has done.

The same on Kafka (confluent's consumer, a process for each worker) and on the memory bus of a head (a thread for each).
At least once: results are durable before the offsets are committed. What cannot be read goes to the dead letters and
never stops a partition; what cannot be done *now* is tried again, in order, while the member stays in its group.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Protocol

from pacehound.bus import Message, Place
from pacehound.clock import Clock
from pacehound.errors import BusFull, MalformedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.routing import Event, route
from pacehound.model.topics import DEAD_LETTERS, Topic
from pacehound.runtime.backoff import Backoff
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.metric_names import (
    AWAY,
    COMMIT_FAILURES,
    DEAD_LETTERED,
    EVENT_AGE_SECONDS,
    EVENT_AGES,
    MESSAGES,
    RETRIES,
    WORKER_FAILURES,
)
from pacehound.runtime.phases import Stages
from pacehound.runtime.records import Outcome, dead_letters_of, worked
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

MAX_MESSAGES = 64
POLL_S = 0.5
PAUSED_POLL_S = 0.1
FLUSH_S = 10.0
MOST_TOGETHER = 64
"""Results in one message (chosen: a small job ends so many iterations in a second or two, and a message costs whoever
writes and reads it as much as what it says; those of 16,384 ranks are a tenth of what a bus holds)."""
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
HANGS_AFTER_S = 5.0
"""A worker that makes nothing durable for so long, and raises nothing, waits for something that does not answer."""


_Result = tuple[Topic, str, bytes, tuple[Event, ...]]


class GroupConsumer(Protocol):
    """What the loop needs of `bus.kafka.KafkaConsumer` and of `bus.memory.MemoryConsumer`."""

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """Further messages."""
        ...

    def commit_to(self, next_offsets: Mapping[Place, int]) -> None:
        """Everything before these offsets has been dealt with."""
        ...

    def pause(self) -> None:
        """Fetch nothing more for now."""
        ...

    def resume(self) -> None:
        """Fetch again."""
        ...

    def lag(self) -> int:
        """Messages behind what was polled."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Sender(Protocol):
    """What the loop needs of `bus.kafka.KafkaProducer` and of `bus.memory.MemoryBus`."""

    @property
    def has_given_up(self) -> bool:
        """Something will never be delivered."""
        ...

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        """Append, or `BusFull`."""
        ...

    def flush(self, timeout_s: float) -> None:
        """Wait for acknowledgement, or `Unavailable`."""
        ...


class Worker(Protocol):
    """What a process does with an event."""

    kinds: tuple[type, ...]
    """The events that it takes; any other one on its topics is a dead letter."""

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """What follows from the next event of a partition.

        Raises
        ------
        Unavailable
            Not now: the same event comes again later, and none of its partition in between.
        RejectedMessage
            Never: the message is set aside.

        """
        ...

    def on_turn(self) -> list[Event]:
        """What follows from the passing of time; asked for at every turn of the loop."""
        ...

    def may_wait_s(self) -> float:
        """For how long nothing follows from the passing of time, if nothing comes before."""
        ...

    def settle(self) -> list[Event]:
        """Make durable what has been taken, before it is confirmed; what follows from that.

        Raises
        ------
        Unavailable
            Not now: nothing is confirmed, and it is asked for again later.

        """
        ...

    def on_assigned(self, places: list[Place]) -> None:
        """These partitions belong to this worker now; called from within a poll, so that nothing is asked of Kafka."""
        ...

    def on_settled(self) -> None:
        """Whatever it has concluded so far is on the bus for good."""
        ...

    def on_revoked(self, places: list[Place]) -> None:
        """These partitions belong to somebody else now: forget what was kept about them."""
        ...


class EventWorker:
    """A worker to which time means nothing and which keeps nothing that would have to be made durable."""

    kinds: tuple[type, ...] = ()

    def on_turn(self) -> list[Event]:
        """Nothing."""
        return []

    def may_wait_s(self) -> float:
        """For ever."""
        return math.inf

    def settle(self) -> list[Event]:
        """Nothing."""
        return []

    def on_assigned(self, places: list[Place]) -> None:
        """It is enough to hear of their events."""

    def on_settled(self) -> None:
        """It waits for nothing of its own."""

    def on_revoked(self, places: list[Place]) -> None:
        """Nothing is kept."""


class EventLoop:
    """Turns until it is told to stop.

    Parameters
    ----------
    name
        Of the process, in logs and counts.
    worker
        What is done.
    subscribe
        Makes the consumer; is given what to call when partitions are taken away.
    producer
        Where results and dead letters go.
    telemetry, liveness, clock, stages
        What is counted, where it shows that it lives, the time, how long it takes.
    max_messages
        At most so many are polled at once.
    poll_s
        So long the first message is waited for at most.
    linger_s, linger_below
        After a turn with fewer messages than that others are waited for so long: few, large writes cost least.
    longest_retry_s
        What is away is asked again so often at least.
    publish
        Hands a message to the producer, with the events that its bytes say; `None`: the bytes alone.
    drains
        When it is told to stop it first deals with what is on the bus, as far as nothing is away: that of a process is
        nowhere else.

    """

    def __init__(
        self,
        *,
        name: str,
        worker: Worker,
        subscribe: Callable[[Callable[[list[Place]], None]], GroupConsumer],
        producer: Sender,
        telemetry: Telemetry,
        liveness: Liveness,
        clock: Clock,
        stages: Stages,
        max_messages: int = MAX_MESSAGES,
        poll_s: float = POLL_S,
        linger_s: float = 0.0,
        linger_below: int = MAX_MESSAGES,
        longest_retry_s: float = LONGEST_RETRY_S,
        publish: Callable[[Topic, str, bytes, tuple[Event, ...]], None] | None = None,
        drains: bool = False,
    ) -> None:
        self._name = name
        self._worker = worker
        self._producer = producer
        self._publish = publish or (lambda topic, key, value, _: producer.publish(topic, key, value))
        self._telemetry = telemetry
        self._liveness = liveness
        self._clock = clock
        self._stages = stages
        self._max_messages = max_messages
        self._poll_s = poll_s
        self._linger_s = linger_s
        self._linger_below = linger_below
        self.hurried = threading.Event()
        """Set: it does not linger now."""
        self._drains = drains
        self._is_stopping = False
        self._is_unsettled = False
        self._is_flushed = True
        self._waiting: deque[Message] = deque()
        self._results: deque[_Result] = deque()
        self._done: dict[Place, int] = {}
        self._begun = 0  # records of the first waiting message that are dealt with
        self._refused: list[Outcome[list[Event]]] = []  # of those
        self._is_paused = False
        self._work_again = _Again(clock, longest_retry_s)
        self._settle_again = _Again(clock, longest_retry_s)
        self._settling_since_s: float | None = None
        self._consumer = subscribe(self._revoked)
        self.lag = 0
        """Messages that were not dealt with after the last turn; for other threads, which must not ask the consumer."""

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping` is set; then what was worked on is confirmed and the group left.

        Raises
        ------
        Unavailable
            A result will never be delivered. A new process begins again at what was confirmed.

        """
        backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        try:
            while not stopping.is_set():
                try:
                    n_worked = self.turn()
                    backoff.reset()
                    if 0 < n_worked < self._linger_below and self._linger_s and not self._is_unsettled:
                        self.hurried.wait(self._linger_s)
                    self.hurried.clear()
                except Unavailable as error:
                    if self._producer.has_given_up:
                        raise
                    logger.warning("%s cannot get on: %s", self._name, error)
                    self._liveness.mark_stuck(str(error))
                    stopping.wait(backoff.next_s())
            if self._drains:
                self._drain()
            self._confirm()
        finally:
            self._consumer.close()

    @property
    def problem(self) -> str:
        """What does not answer, so that messages wait; empty where nothing is away. For other threads too."""
        return self._work_again.problem or self._settle_again.problem or self._hangs

    @property
    def _hangs(self) -> str:
        since_s = self._settling_since_s
        waited_s = 0.0 if since_s is None else self._clock.monotonic_s() - since_s
        return f"no answer for {waited_s:.0f} s" if waited_s >= HANGS_AFTER_S else ""

    @property
    def failures(self) -> int:
        """How many tries have failed because something did not answer."""
        return self._work_again.failures + self._settle_again.failures

    def turn(self) -> int:
        """Poll, work, publish, commit, once; how many messages were dealt with.

        Raises
        ------
        Unavailable
            Kafka refuses to be read. (A Kafka that is away is waited for.)

        """
        with self._stages.stage("poll"):
            self._waiting += self._poll()
        self._liveness.mark_alive()
        with self._stages.stage("work"):
            n_worked = self._work()
            if not self._is_stopping:
                self._results += self._because_time_passes()
                self._send()
        if self._is_unsettled or self._results or self._done or not self._is_flushed:
            self._confirm()
        if not self.problem:
            self._telemetry.set(AWAY, 0.0, worker=self._name)
        self.lag = self._consumer.lag() + len(self._waiting)
        self._stages.end_batch(n_worked)
        return n_worked

    def _drain(self) -> None:
        """Deal with what is left on the bus, until there is nothing, or something is away."""
        self._is_stopping = True
        self._work_again.reset()
        self._settle_again.reset()
        while self._consumer.lag() or self._waiting or self._results:
            if self._work_again.is_later or self._settle_again.is_later:
                return
            self.turn()

    def _because_time_passes(self) -> list[_Result]:
        try:
            return _encoded(self._worker.on_turn())
        except Exception:
            self._failed("as time passed")
            return []

    def _failed(self, what: str) -> None:
        """A fault of ours: it must neither stop the loop nor disappear."""
        logger.exception("%s failed %s", self._name, what)
        self._telemetry.add(WORKER_FAILURES, worker=self._name)

    def _poll(self) -> list[Message]:
        if not self._waiting and not self._results and not self._is_unsettled:
            if self._is_paused:
                self._consumer.resume()
                self._is_paused = False
            wait_s = 0.0 if self._is_stopping else min(self._poll_s, self._worker.may_wait_s())
            return self._consumer.poll(self._max_messages, wait_s)
        # Polling keeps this member in its group; partitions that it is given meanwhile are paused the next time.
        self._consumer.pause()
        self._is_paused = True
        return self._consumer.poll(self._max_messages, PAUSED_POLL_S)

    def _work(self) -> int:
        """Deal with what waits, in order, as far as it goes; how many messages that were."""
        n_worked = 0
        if not self._send() or self._work_again.is_later:
            return n_worked
        while self._waiting:
            message = self._waiting[0]
            try:
                self._deal_with(message)
            except Unavailable as error:
                self._postpone(self._work_again, f"{message.topic}/{message.partition} at {message.offset}", error)
                break
            self._work_again.reset()
            self._begin_message()
            self._waiting.popleft()
            self._done[message.topic, message.partition] = message.offset + 1
            self._is_unsettled = True
            self._telemetry.add(MESSAGES, topic=message.topic)
            n_worked += 1
            if not self._send():
                break
        return n_worked

    def _begin_message(self) -> None:
        self._begun, self._refused = 0, []

    def _deal_with(self, message: Message) -> None:
        """Add what follows from a message to the results; each of its records stands for itself."""

        def work(event: Event) -> list[Event]:
            if not isinstance(event, self._worker.kinds):
                raise MalformedMessage(f"a {type(event).__name__} on the topic of {message.topic}")
            return self._worker.on_event(event, message)

        ages_s = list[float]()
        try:
            for outcome in worked(message, work, self._begun):
                if outcome.error is not None:
                    if outcome.is_fault:
                        self._telemetry.add(WORKER_FAILURES, worker=self._name)
                    self._telemetry.add(DEAD_LETTERED, topic=message.topic, error=type(outcome.error).__name__)
                    self._refused.append(outcome)
                if outcome.result:
                    self._take_results(outcome.result)
                if outcome.event is not None and outcome.error is None:
                    ages_s.append(max(self._clock.now_ns() - _time_ns(outcome.event), 0) / 1e9)
                self._begun += 1
        finally:  # the rest of the message may come again; these have been dealt with
            self._telemetry.add(EVENT_AGE_SECONDS, sum(ages_s))
            self._telemetry.add(EVENT_AGES, len(ages_s))
        if message.topic != DEAD_LETTERS.name:  # a letter that does not fit itself is not worth another one
            self._results += _encoded(dead_letters_of(message, self._refused, self._clock.now_ns()))

    def _take_results(self, results: Sequence[Event]) -> None:
        try:
            self._results += _encoded(results)
            return
        except ValueError:
            pass  # seldom: which of them cannot be said is seen where each is written by itself
        for result in results:
            try:
                self._results += _encoded([result])
            except ValueError:
                # What else was concluded is none the worse.
                self._failed(f"to write a {type(result).__name__} of job {result.job!r}")

    def _postpone(self, again: _Again, what: str, error: Exception) -> None:
        pause_s = again.later(str(error) or type(error).__name__)
        self._telemetry.add(RETRIES)
        self._telemetry.set(AWAY, 1.0, worker=self._name)
        logger.warning("%s tries %s again in %g s: %s", self._name, what, pause_s, error)

    def _send(self) -> bool:
        """Hand results to the producer; whether it took all of them."""
        while self._results:
            try:
                self._publish(*self._results[0])
            except BusFull:
                return False
            self._results.popleft()
            self._is_flushed = False
        return True

    def _confirm(self) -> None:
        """Make durable what was taken and what follows, then commit; what does not work now is tried again."""
        if not self._is_settled() or not self._send():
            return
        with self._stages.stage("publish"):
            try:
                self._producer.flush(FLUSH_S)
            except Unavailable as error:
                if self._producer.has_given_up:
                    raise
                logger.warning("%s waits for Kafka: %s", self._name, error)
                return
        if not self._results:
            self._is_flushed = True
            self._worker.on_settled()
        if self._results or not self._done:
            return  # what is done has results that are not durable yet
        with self._stages.stage("commit"):
            try:
                self._consumer.commit_to(dict(self._done))
            except Unavailable as error:
                # Somebody else may have the partitions by now; what was done is done again there, to the same ids.
                logger.warning("%s could not commit: %s", self._name, error)
                self._telemetry.add(COMMIT_FAILURES)
                return
        self._done.clear()

    def _is_settled(self) -> bool:
        """Whether the worker keeps nothing that is not durable, which it is asked to make so."""
        if self._is_unsettled and not self._settle_again.is_later:
            self._settling_since_s = self._clock.monotonic_s()
            try:
                self._results += _encoded(self._worker.settle())
            except Exception as error:
                if not isinstance(error, Unavailable):
                    self._failed("to make durable what it has taken")
                self._postpone(self._settle_again, "to make durable what it has taken", error)
                return False
            finally:
                self._settling_since_s = None
            self._settle_again.reset()
            self._is_unsettled = False
        return not self._is_unsettled

    def _revoked(self, places: list[Place]) -> None:
        gone = set(places)
        if self._waiting and (self._waiting[0].topic, self._waiting[0].partition) in gone:
            self._begin_message()
        self._waiting = deque(m for m in self._waiting if (m.topic, m.partition) not in gone)
        for place in gone:
            self._done.pop(place, None)
        self._worker.on_revoked(places)


class _Again:
    """When something that has failed is tried again; `problem` says what failed, as long as it does."""

    def __init__(self, clock: Clock, longest_retry_s: float) -> None:
        self._clock = clock
        self.problem = ""
        self.failures = 0
        self._backoff = Backoff(FIRST_RETRY_S, longest_retry_s)
        self._not_before_s = 0.0

    @property
    def is_later(self) -> bool:
        """Not yet."""
        return self._clock.monotonic_s() < self._not_before_s

    def later(self, problem: str) -> float:
        """It failed: after how many seconds it is tried again."""
        self.problem = problem
        self.failures += 1
        pause_s = self._backoff.next_s()
        self._not_before_s = self._clock.monotonic_s() + pause_s
        return pause_s

    def reset(self) -> None:
        """It worked."""
        self.problem = ""
        self._backoff.reset()
        self._not_before_s = 0.0


def _encoded(events: Iterable[Event]) -> list[_Result]:
    """As messages: what follows each other and goes under one key is one, as long as it is not too much."""
    messages: list[_Result] = []
    for (topic, key), some in groupby(events, route):
        while together := tuple(islice(some, MOST_TOGETHER)):
            messages.append((topic, key, codec.encode(*together), together))
    return messages


def _time_ns(event: Event) -> int:
    """When what an event tells of was over."""
    return int(event.integers("end_ns").max(initial=0)) if isinstance(event, CallBatch) else event.time_ns
