"""What messages of agents say, each thing by itself, however they were sent."""

from __future__ import annotations

from collections.abc import Iterator

from pacehound.model import codec
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event


def said_in(message: bytes) -> Iterator[Event]:
    """The events of a message."""
    for event in codec.decode(message):
        if isinstance(event, Flush):
            yield from event.events()
        else:
            yield event
