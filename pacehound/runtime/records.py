"""A message record by record: decoded, worked on, or refused with the bytes that a dead letter keeps.

Every consumer reads messages through here, whatever brought them: the memory bus, confluent's consumer, Faust. A bad
record takes no good one with it; a fault of ours is refused like a bad record, and says that it was one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

from pacehound.bus import Message
from pacehound.errors import PartlyRefused, RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import DeadLetter
from pacehound.model.routing import Event
from pacehound.runtime.dead_letter import dead_letter_of

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What became of one record.

    Attributes
    ----------
    event
        What it said; `None` where it could not be read.
    result
        What `work` returned; `None` where the record was refused, as a whole.
    error
        Why it was refused; `None` where it was not.
    record
        Which one; `None` where the message itself cannot be read.

    """

    event: Event | None = None
    result: T | None = None
    error: Exception | None = None
    record: Record | None = None

    @property
    def is_fault(self) -> bool:
        """The record was good, as far as we know, and we failed on it."""
        return self.error is not None and not isinstance(self.error, RejectedMessage)


class Record:
    """One record of a message: an event, decoded already or still to be, and its bytes."""

    __slots__ = ("_encoded", "_event", "_is_alone", "_message")

    def __init__(
        self,
        message: Message,
        *,
        event: Event | None = None,
        encoded: tuple[ResourceLogs, LogRecord] | None = None,
        is_alone: bool = True,
    ) -> None:
        self._message = message
        self._event = event
        self._encoded = encoded
        self._is_alone = is_alone

    def event(self) -> Event:
        """What it says; errors as in `codec.decode`."""
        if self._event is None:
            assert self._encoded is not None
            self._event = codec.decode_record(*self._encoded)
        return self._event

    def payload(self) -> bytes:
        """Its bytes, as a message of its own."""
        if self._is_alone:
            return self._message.value
        return codec.encode(self.event()) if self._encoded is None else codec.single(*self._encoded)

    @property
    def among_others(self) -> tuple[ResourceLogs, LogRecord] | None:
        """Itself and its resource, where its message holds others; else it is the message."""
        if self._is_alone:
            return None
        return codec.records_of(self.payload())[0] if self._encoded is None else self._encoded

    def outcome(self, work: Callable[[Event], T]) -> Outcome[T]:
        """What comes of handing it to `work`; `Unavailable` reaches the caller."""
        event = None
        try:
            event = self.event()
            return Outcome(event=event, result=work(event), record=self)
        except Unavailable:
            raise
        except Exception as error:
            if not isinstance(error, RejectedMessage):
                # It must neither stop the partition nor disappear.
                where = (self._message.topic, self._message.partition, self._message.offset)
                logger.exception("failed on %s/%d at %d", *where)
            results: Any = list(error.results) if isinstance(error, PartlyRefused) else None
            return Outcome(event=event, result=results, error=error, record=self)


def record_of(message: Message, event: Event) -> Record:
    """The record of a message that says this event."""
    return Record(message, event=event, is_alone=message.events is None or len(message.events) == 1)


def refused_with(message: Message, outcome: Outcome[T]) -> list[Outcome[T]]:
    """An outcome of a message that is refused, and those of events that came before it and were refused with it."""
    error = outcome.error
    if not isinstance(error, PartlyRefused):
        return [outcome]
    earlier: list[Outcome[T]] = [
        Outcome(event=event, error=why, record=Record(message, event=event, is_alone=False))
        for event, why in error.earlier
    ]
    return [*earlier, outcome] if error.is_of_event else earlier


def records_of(message: Message) -> list[Record]:
    """The records of a message, in order.

    Where it holds its events decoded already (a head decodes what it is sent once), they are not read again.

    Raises
    ------
    RejectedMessage
        The bytes are no message at all.

    """
    if message.events is not None:
        return [record_of(message, event) for event in message.events]
    encoded = codec.records_of(message.value)
    return [Record(message, encoded=one, is_alone=len(encoded) == 1) for one in encoded]


def worked(message: Message, work: Callable[[Event], T], begin: int = 0) -> Iterator[Outcome[T]]:
    """Hand each record of a message to `work`, in order, and say what became of it.

    It goes on only as far as it is asked to: who sends results on before the next record does so between two of them.

    Parameters
    ----------
    message
        From any bus.
    work
        What is done with an event. `RejectedMessage`, or any fault, refuses the record.
    begin
        So many records have been dealt with before.

    Raises
    ------
    Unavailable
        `work` cannot take this record now; the records before it have been dealt with.

    """
    try:
        records = records_of(message)
    except RejectedMessage as error:
        if begin == 0:
            yield Outcome(error=error)
        return
    for record in records[begin:]:
        yield record.outcome(work)


def dead_letters_of(message: Message, refused: Iterable[Outcome[T]], now_ns: int) -> list[DeadLetter]:
    """What was refused of a message, a letter for each kind of error.

    All records of a kind lie in one letter, each resource once: many small ones under a large resource would be more
    than was sent.
    """
    by_error: dict[str, list[Outcome[T]]] = {}
    for outcome in refused:
        by_error.setdefault(type(outcome.error).__name__, []).append(outcome)
    letters = []
    for outcomes in by_error.values():
        error = outcomes[0].error
        assert error is not None
        records = [found for one in outcomes if one.record is not None and (found := one.record.among_others)]
        letter = dead_letter_of(message, error, now_ns, codec.together(records) if records else None)
        if len(outcomes) > 1:
            letter = replace(letter, reason=f"{letter.reason} (the first of {len(outcomes)} records)")
        letters.append(letter)
    return letters
