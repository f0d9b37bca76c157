"""One protocol for every bus: in memory, OTLP over HTTP to a head node, Kafka.

In: messages of a topic. Out: the same messages, in order, to whoever subscribes.
Must not import anything of Pacehound but the model, errors and settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only names a message must not load NumPy and Arrow
    from pacehound.model.routing import Event

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
    events: tuple[Event, ...] | None = field(default=None, repr=False, compare=False)
    """What `value` says, where a process that reads it more than once has decoded it already."""
    number: int = field(default=-1, compare=False)
    """In the journal of a head; -1: it stands in none."""
