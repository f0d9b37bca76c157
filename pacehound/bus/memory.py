"""The bus of one process: the same order and back-pressure as Kafka, without a broker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from pacehound.bus import Message, Place
from pacehound.errors import BusFull
from pacehound.model.topics import Topic, partition_of


class MemoryBus:
    """Topics as bounded logs; a message is forgotten when every consumer of its topic has committed it.

    Thread-safe. A topic that nobody consumes keeps nothing.

    Parameters
    ----------
    max_bytes
        Payload bytes held over all topics; `publish` raises `BusFull` beyond it.

    Examples
    --------
    >>> from pacehound.model.topics import CALLS
    >>> bus = MemoryBus()
    >>> reader = bus.subscribe([CALLS])
    >>> bus.publish(CALLS, "c1", b"one")
    >>> [m.value for m in reader.poll(10)]
    [b'one']

    """

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._log: deque[tuple[int, Message]] = deque()  # (position, message), oldest first
        self._next_position = 0
        self._offsets: dict[Place, int] = {}
        self._consumers: list[MemoryConsumer] = []

    @property
    def held_bytes(self) -> int:
        """Payload bytes held now."""
        return self._held_bytes

    @property
    def position(self) -> int:
        """How many messages were kept so far; a consumer whose `committed` is as high has dealt with them all."""
        return self._next_position

    def subscribe(self, topics: Iterable[Topic]) -> MemoryConsumer:
        """A consumer of `topics` that starts with the next message published."""
        with self._lock:
            consumer = MemoryConsumer(self, frozenset(topic.name for topic in topics), self._next_position)
            self._consumers.append(consumer)
            return consumer

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        """Append to the partition of `key`."""
        with self._lock:
            partition = partition_of(key.encode(), topic.partitions)
            offset = self._offsets.get((topic.name, partition), 0)
            if not any(topic.name in consumer.topics for consumer in self._consumers):
                self._offsets[topic.name, partition] = offset + 1
                return
            if self._held_bytes + len(value) > self._max_bytes:
                raise BusFull(
                    f"the memory bus holds {self._held_bytes} of {self._max_bytes} bytes; its consumers are behind"
                )
            self._offsets[topic.name, partition] = offset + 1
            message = Message(topic=topic.name, key=key, partition=partition, offset=offset, value=value)
            self._log.append((self._next_position, message))
            self._next_position += 1
            self._held_bytes += len(value)
            self._arrived.notify_all()

    def _read(self, consumer: MemoryConsumer, max_messages: int, timeout_s: float) -> list[Message]:
        with self._lock:
            if consumer.position >= self._next_position and timeout_s > 0:
                self._arrived.wait(timeout_s)
            if not self._log:
                consumer.position = self._next_position
                return []
            first_position = self._log[0][0]
            index = max(0, consumer.position - first_position)
            taken: list[Message] = []
            while index < len(self._log) and len(taken) < max_messages:
                position, message = self._log[index]
                if message.topic in consumer.topics:
                    taken.append(message)
                consumer.position = position + 1
                index += 1
            return taken

    def _forget(self, leaving: MemoryConsumer | None = None) -> None:
        with self._lock:
            if leaving in self._consumers:
                self._consumers.remove(leaving)
            keep_from = min((c.committed for c in self._consumers), default=self._next_position)
            while self._log and self._log[0][0] < keep_from:
                _, message = self._log.popleft()
                self._held_bytes -= len(message.value)


class MemoryConsumer:
    """One reader of a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, topics: frozenset[str], position: int) -> None:
        self._bus = bus
        self.topics = topics
        self.position = position
        self.committed = position

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """Up to `max_messages` further messages of its topics; waits up to `timeout_s` for the first."""
        return self._bus._read(self, max_messages, timeout_s)

    def commit(self) -> None:
        """Let the bus forget what was polled."""
        self.committed = self.position
        self._bus._forget()

    def close(self) -> None:
        """Leave: nothing is kept for it any more."""
        self.committed = 1 << 62
        self.position = 1 << 62
        self._bus._forget(leaving=self)
