"""The bus of one process: the same order and back-pressure as Kafka, without a broker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from pacehound.bus import Message, Place
from pacehound.errors import BusFull
from pacehound.model.calls import CallBatch
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations
from pacehound.model.routing import Event
from pacehound.model.topics import Topic, partition_of


class Journal(Protocol):
    """Keeps what is published where this process's end does not reach it."""

    def append(self, topic: str, key: str, value: bytes) -> int:
        """Keep it; its number, -1 where the topic is not kept. Raises nothing."""
        ...


class MemoryBus:
    """Topics as bounded logs; a message is forgotten when every consumer of its topic has committed it.

    Thread-safe. A topic that nobody consumes keeps nothing.

    Parameters
    ----------
    max_bytes
        Bytes held over all topics; `publish` raises `BusFull` beyond it.
    journal
        Has what is published, in that order; `None`: nobody does.

    Examples
    --------
    >>> from pacehound.model.topics import CALLS
    >>> bus = MemoryBus()
    >>> reader = bus.subscribe([CALLS])
    >>> bus.publish(CALLS, "c1", b"one")
    >>> [m.value for m in reader.poll(10)]
    [b'one']

    """

    def __init__(self, max_bytes: int = 256 * 1024 * 1024, journal: Journal | None = None) -> None:
        self._max_bytes = max_bytes
        self._journal = journal
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._logs: dict[str, _Log] = {}
        self._next_position = 0
        self._offsets: dict[Place, int] = {}
        self._consumers: list[MemoryConsumer] = []
        self.has_given_up = False
        """As a producer's: what was published is delivered."""

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return self._held_bytes

    @property
    def position(self) -> int:
        """How many messages were kept so far; a consumer whose `committed` is as high has dealt with them all."""
        return self._next_position

    def subscribe(self, topics: Iterable[Topic]) -> MemoryConsumer:
        """A consumer of `topics` that starts with the next message published."""
        with self._lock:
            logs = [self._logs.setdefault(topic.name, _Log()) for topic in topics]
            consumer = MemoryConsumer(self, logs)
            for log in logs:
                log.next_index[consumer] = log.first_index + len(log.entries)
                log.committed[consumer] = self._next_position
            self._consumers.append(consumer)
            return consumer

    def publish(
        self,
        topic: Topic,
        key: str,
        value: bytes,
        events: tuple[Event, ...] | None = None,
        number: int | None = None,
    ) -> None:
        """Append to the partition of `key`.

        Parameters
        ----------
        topic, key, value
            What, and where to.
        events
            What `value` says, where that has been decoded already.
        number
            That of a message which stands in the journal already.

        Raises
        ------
        BusFull
            The consumers are behind.

        """
        size = len(value) + sum(decoded_bytes(event) for event in events or ())
        with self._lock:
            partition = partition_of(key.encode(), topic.partitions)
            offset = self._offsets.get((topic.name, partition), 0)
            log = self._logs.get(topic.name)
            if log is None or not log.next_index:
                self._offsets[topic.name, partition] = offset + 1
                return
            if self._held_bytes + size > self._max_bytes:
                raise BusFull(
                    f"the memory bus holds {self._held_bytes} of {self._max_bytes} bytes; its consumers are behind"
                )
            self._offsets[topic.name, partition] = offset + 1
            if number is None:
                number = -1 if self._journal is None else self._journal.append(topic.name, key, value)
            message = Message(
                topic=topic.name,
                key=key,
                partition=partition,
                offset=offset,
                value=value,
                events=events,
                number=number,
            )
            log.entries.append((self._next_position, message, size))
            self._next_position += 1
            self._held_bytes += size
            for consumer in log.next_index:  # whoever reads other topics sleeps on
                consumer.arrived.notify()

    def flush(self, timeout_s: float) -> None:
        """As a producer's: there is nothing to wait for."""

    def _read(self, consumer: MemoryConsumer, max_messages: int, timeout_s: float) -> list[tuple[int, Message]]:
        with self._lock:
            waits = consumer.is_paused or not any(log.has_for(consumer) for log in consumer.logs)
            if timeout_s > 0 and waits and not (consumer.is_hurried or consumer.is_woken):
                consumer.arrived.wait(timeout_s)
            consumer.is_woken = False
            taken: list[tuple[int, Message]] = []
            while not consumer.is_paused and len(taken) < max_messages:
                waiting = [log for log in consumer.logs if log.has_for(consumer)]
                if not waiting:
                    break
                # One log over all its topics, in the order in which they were published.
                first = min(waiting, key=lambda log: log.next_of(consumer)[0])
                position, message, _ = first.next_of(consumer)
                first.next_index[consumer] += 1
                taken.append((position, message))
            return taken

    def _unread(self, consumer: MemoryConsumer) -> int:
        """The position of the first message that a consumer has not read; where there is none, of the next one."""
        return min((log.next_of(consumer)[0] for log in consumer.logs if log.has_for(consumer)), default=self.position)

    def _forget(self, consumer: MemoryConsumer, committed: int | None) -> None:
        """What is before `committed` is not needed by `consumer` any more; `None`: nothing is, ever."""
        with self._lock:
            for log in consumer.logs:
                if committed is None:
                    log.next_index.pop(consumer, None)
                    log.committed.pop(consumer, None)
                else:
                    log.committed[consumer] = committed
                needed_from = min(log.committed.values(), default=self._next_position)
                while log.entries and log.entries[0][0] < needed_from:
                    self._held_bytes -= log.entries.popleft()[2]
                    log.first_index += 1
            if committed is None and consumer in self._consumers:
                self._consumers.remove(consumer)


class _Log:
    """One topic: (position on the bus, message, bytes), oldest first, and how far each of its consumers is."""

    __slots__ = ("committed", "entries", "first_index", "next_index")

    def __init__(self) -> None:
        self.entries: deque[tuple[int, Message, int]] = deque()
        self.first_index = 0
        self.next_index: dict[MemoryConsumer, int] = {}
        self.committed: dict[MemoryConsumer, int] = {}

    def has_for(self, consumer: MemoryConsumer) -> bool:
        """Whether there is something that `consumer` has not read."""
        return self.next_index.get(consumer, 1 << 62) < self.first_index + len(self.entries)

    def next_of(self, consumer: MemoryConsumer) -> tuple[int, Message, int]:
        """The next entry for `consumer`."""
        return self.entries[self.next_index[consumer] - self.first_index]


class MemoryConsumer:
    """One reader of a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, logs: list[_Log]) -> None:
        self._bus = bus
        self.logs = logs
        self.arrived = threading.Condition(bus._lock)
        """Notified of each message of its topics."""
        self.is_paused = False
        self.is_hurried = False
        self.is_woken = False
        self._polled: deque[tuple[int, Message]] = deque()

    @property
    def committed(self) -> int:
        """The position of the first message that is not dealt with."""
        with self._bus._lock:
            return self._polled[0][0] if self._polled else self._bus._unread(self)

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """Up to `max_messages` further messages of its topics; waits up to `timeout_s` for the first."""
        taken = self._bus._read(self, max_messages, timeout_s)
        self._polled += taken
        return [message for _, message in taken]

    def commit(self) -> None:
        """Let the bus forget what was polled."""
        self._polled.clear()
        self._bus._forget(self, self._bus._unread(self))

    def commit_to(self, next_offsets: Mapping[Place, int]) -> None:
        """Everything that was polled before these offsets has been dealt with, in the order of the bus."""
        while self._polled:
            _, message = self._polled[0]
            if message.offset >= next_offsets.get((message.topic, message.partition), 0):
                break
            self._polled.popleft()
        self._bus._forget(self, self.committed)

    def hurry(self) -> None:
        """Whoever waits in `poll` comes back now, and nobody waits there again."""
        with self._bus._lock:
            self.is_hurried = True
            self.arrived.notify()

    def wake(self) -> None:
        """Whoever waits in `poll`, or does so next, comes back now."""
        with self._bus._lock:
            self.is_woken = True
            self.arrived.notify()

    def pause(self) -> None:
        """Poll nothing more for now."""
        self.is_paused = True

    def resume(self) -> None:
        """Poll again."""
        self.is_paused = False

    def lag(self) -> int:
        """Messages that it has not polled."""
        with self._bus._lock:
            return sum(log.first_index + len(log.entries) - log.next_index[self] for log in self.logs)

    def close(self) -> None:
        """Leave: nothing is kept for it any more."""
        self._polled.clear()
        self._bus._forget(self, None)


def decoded_bytes(event: Event) -> int:
    """What an event takes that has been decoded, where that is worth counting: its columns."""
    if isinstance(event, Flush):
        return event.n_bytes
    return int(event.rows.nbytes) if isinstance(event, (CallBatch, Operations)) else 0
