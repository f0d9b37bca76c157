"""One protocol for every bus: in memory, OTLP over HTTP to a head node, Kafka.

In: messages of a topic. Out: the same messages, in order, to whoever subscribes.
Must not import anything of Pacehound but the model, errors and settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pacehound.model.topics import Topic

Place = tuple[str, int]
"""A topic's name (without prefix) and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message where it stands on a bus."""

    topic: str
    key: str
    partition: int
    offset: int
    value: bytes = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = ()


class Producer(Protocol):
    """Where a process puts its events."""

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        """Append `value`.

        Raises
        ------
        BusFull
            The bus cannot take more now; try again, or drop and count.

        """
        ...


class Consumer(Protocol):
    """One reader of some topics, with a position of its own."""

    def poll(self, max_messages: int) -> list[Message]:
        """The next messages, in order within each partition; empty when there are none now."""
        ...

    def commit(self) -> None:
        """Everything polled so far has been dealt with; the bus may forget it."""
        ...
