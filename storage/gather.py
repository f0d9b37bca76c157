"""Messages of the bus -> the rows of a block, by table; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pacehound.bus import Message
from pacehound.clock import Clock
from pacehound.model.calls import CallBatch
from pacehound.model.events import DeadLetter
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations
from pacehound.model.routing import Event
from pacehound.runtime.records import dead_letters_of, worked
from storage import schemas
from storage.rows import Row, arrow_rows, calls_table, operations_table, rows_of

# A larger insert is hardly faster and takes memory from the pipeline: 0.3 GB more at 300,000 calls.
MAX_INSERT_CALLS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """The rows of one insert.

    Attributes
    ----------
    name
        Among the inserts of its block.
    table
        Where to.
    rows
        In the order of the messages.

    """

    name: str
    table: str
    rows: pa.Table = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What some messages hold.

    Attributes
    ----------
    inserts
        A batch of calls is whole in one of them.
    rows
        How many events' rows there are, by table; a batch that was sent twice counts twice and is inserted once.
    not_stored
        Events that no table takes (progress, ticks, watermarks, rounds).
    dead_letters
        What could not be read or does not fit; publish them on `topics.DEAD_LETTERS`.

    """

    inserts: tuple[Insert, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    not_stored: int = 0
    dead_letters: tuple[DeadLetter, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing of this goes anywhere."""
        return not self.rows and not self.dead_letters


def gather(messages: Sequence[Message], clock: Clock) -> Gathered:
    """The rows of `messages`; the same messages give the same inserts.

    Parameters
    ----------
    messages
        Of any topics; what cannot be read becomes a dead letter.
    clock
        Stamps dead letters.

    """
    found = Rows()
    letters: list[DeadLetter] = []
    for message in messages:
        letters += _take(message, found, clock)
    return Gathered(
        inserts=tuple(found.inserts()), rows=dict(found.rows), not_stored=found.not_stored, dead_letters=tuple(letters)
    )


def _take(message: Message, found: Rows, clock: Clock) -> Iterator[DeadLetter]:
    """Add the events of a message; one bad record does not take the good ones with it."""
    refused = [outcome for outcome in worked(message, found.add) if outcome.error is not None]
    yield from dead_letters_of(message, refused, clock.now_ns())


class Rows:
    """Events' rows, by table."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.not_stored = 0
        self._batches: list[CallBatch] = []
        self._parts: dict[str, list[pa.Table]] = {}

    def add(self, event: Event) -> None:
        """Take an event whole or, when a value does not fit, not at all."""
        if isinstance(event, Flush):
            inside = Rows()
            for one in event.events():
                inside.add(one)
            self._take_over(inside)
            return
        by_table: dict[str, list[Row]] = {}
        for table, row in rows_of(event):
            by_table.setdefault(table, []).append(row)
        # Converted one event at a time, so that a bad value is known to be this event's.
        converted = {table: arrow_rows(table, rows) for table, rows in by_table.items()}
        if isinstance(event, Operations):
            converted = {schemas.OPERATIONS: operations_table(event)}
        for table, part in converted.items():
            self._parts.setdefault(table, []).append(part)
            self.rows[table] += part.num_rows
        if isinstance(event, CallBatch):
            self._batches.append(event)
            self.rows[schemas.CALLS] += len(event)
        elif not converted:
            self.not_stored += 1

    def _take_over(self, other: Rows) -> None:
        self.rows.update(other.rows)
        self.not_stored += other.not_stored
        self._batches += other._batches
        for table, parts in other._parts.items():
            self._parts.setdefault(table, []).extend(parts)

    def inserts(self) -> Iterator[Insert]:
        """Everything that was added."""
        for number, batches in enumerate(_portions(self._batches)):
            yield Insert(name=f"{schemas.CALLS}.{number}", table=schemas.CALLS, rows=calls_table(batches))
        for table, parts in self._parts.items():
            yield Insert(name=table, table=table, rows=pa.concat_tables(parts).combine_chunks())


def _portions(batches: Sequence[CallBatch]) -> Iterator[list[CallBatch]]:
    """The batches of each insert of calls.

    The rollup adds up what one insert holds of a batch's name. So a batch that was sent twice is in an insert once, and
    two different ones of the same name (a producer that began to count again) are in two.
    """
    portion: dict[tuple[str, int, str, str, str, int], CallBatch] = {}
    calls = 0
    for batch in batches:
        name = (batch.job, batch.attempt, batch.host, batch.communicator, batch.source, batch.ordinal)
        if name in portion:
            if _has_same_calls(portion[name], batch):
                continue
            yield list(portion.values())
            portion, calls = {}, 0
        portion[name] = batch
        calls += len(batch)
        if calls >= MAX_INSERT_CALLS:
            yield list(portion.values())
            portion, calls = {}, 0
    if calls:
        yield list(portion.values())


def _has_same_calls(one: CallBatch, other: CallBatch) -> bool:
    return all(np.array_equal(one.column(name), other.column(name)) for name in ("rank", "seq", "peer", "launch_ns"))
