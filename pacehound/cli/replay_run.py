"""A recording through the pipeline once more: the same messages give the same events, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO, cast

import msgspec
from rich.console import Console

from pacehound.bus import Message
from pacehound.errors import PartlyRefused, RejectedMessage
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import Incident
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event
from pacehound.pages.incidents import print_incidents
from pacehound.runtime.dead_letter import dead_letter_of
from pacehound.runtime.head.parts import Pipeline


def replayed(messages: Iterable[Message], pipeline: Pipeline) -> Iterator[Event]:
    """What the pipeline concludes from each message, in order; what it refuses is a dead letter of time 0."""
    for message in messages:
        try:
            for event in codec.decode(message.value):
                yield from pipeline.on_event(event)
        except RejectedMessage as error:
            yield from (cast(Event, one) for one in error.results) if isinstance(error, PartlyRefused) else ()
            yield dead_letter_of(message, error, now_ns=0)


def write_events(events: Iterable[Event], file: TextIO) -> None:
    """One JSON object with every event: kind, id, a hash of its message, and its fields unless it is columns."""
    file.write('{"schema":1,"events":[')
    for number, event in enumerate(events):
        fields: dict[str, Any] = {
            "event": type(event).__name__,
            "event_id": "" if isinstance(event, CallBatch) else event.identity(),
            "sha256": hashlib.sha256(codec.encode(event)).hexdigest(),
        }
        if not isinstance(event, (CallBatch, Rounds)):
            fields |= msgspec.to_builtins(event)
        file.write("," if number else "")
        file.write("\n" + msgspec.json.encode(fields).decode())
    file.write("\n]}\n")


@dataclass(frozen=True, slots=True)
class Replayed:
    """The last version of each incident, and how many events of each kind there were."""

    incidents: list[Incident]
    counts: dict[str, int]


def summed(events: Iterable[Event]) -> Replayed:
    """What is left of all events."""
    latest: dict[str, Incident] = {}
    counts: dict[str, int] = {}
    for event in events:
        counts[type(event).__name__] = counts.get(type(event).__name__, 0) + 1
        if isinstance(event, Incident):
            latest[event.id] = event
    return Replayed(list(latest.values()), counts)


def print_replay(found: Replayed, console: Console) -> None:
    """The incidents, and how much there was."""
    print_incidents(console, found.incidents, [])
    if found.incidents:
        console.print()
    console.print(", ".join(f"{count} {kind}" for kind, count in sorted(found.counts.items())) or "no events")
