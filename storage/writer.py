"""Writer: messages of the bus -> rows of the store, in large blocks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pacehound import codec
from pacehound.bus import Message
from pacehound.calls import CallBatch
from pacehound.clock import Clock, SystemClock
from pacehound.engine.letters import letter_of
from pacehound.errors import RejectedMessage
from pacehound.events import DeadLetter
from pacehound.operations import Operations
from pacehound.routing import Event
from storage import schemas
from storage.blocks import Block
from storage.client import Store
from storage.presence import missing_rows
from storage.rows import Row, arrow_rows, calls_table, operations_table, rows_of

logger = logging.getLogger(__name__)

# A larger insert is hardly faster and takes memory from the pipeline: 0.3 GB more at 300,000 calls.
MAX_INSERT_CALLS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What became of some messages.

    Attributes
    ----------
    rows
        Rows written, by table.
    not_stored
        Events that no table takes (progress, ticks, watermarks, rounds).
    dead_letters
        What could not be read or does not fit; publish them on `topics.DEAD_LETTERS`.

    """

    rows: Mapping[str, int] = field(default_factory=dict)
    not_stored: int = 0
    dead_letters: tuple[DeadLetter, ...] = ()


class Writer:
    """Writes messages; when `write` or `write_block` returns, they are on disk and may be committed.

    Messages may be repeated, in other portions too: every row has an identity (the ORDER BY of its table), and the
    views show each once. What is written as blocks is in the tables once, before any merge. When it raises, nothing is
    lost: the same messages are written again.

    Parameters
    ----------
    store
        Where to.
    clock
        Stamps dead letters.

    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def write(self, messages: Sequence[Message]) -> WriteResult:
        """Write `messages`, whatever their offsets.

        Raises
        ------
        Unavailable
            The store did not take them; write the same messages again later.

        """
        gathered = self.gather(messages)
        for _, table, rows in gathered.inserts():
            self._store.insert(table, rows)
        return gathered.result()

    def gather(self, messages: Sequence[Message]) -> Gathered:
        """The rows of `messages`; nothing is written yet."""
        gathered = Gathered()
        for message in messages:
            self._take(message, gathered)
        return gathered

    def write_block(self, block: Block, gathered: Gathered, log: str, *, is_repeat: bool) -> WriteResult:
        """Write what was gathered from the messages of a block, exactly once.

        Parameters
        ----------
        block
            Its span was decided (`storage.cuts`): the same offsets are the same block for every writer.
        gathered
            The rows of its messages.
        log
            Which log the offsets belong to.
        is_repeat
            It may have been written before, wholly or in part: the store is asked whether everything is there.

        Raises
        ------
        Unavailable
            The store did not take everything; write the same block again later, with `is_repeat`.

        """
        for part, table, rows in gathered.inserts():
            # Where it begins names the block: where it ends was decided for everybody.
            token = f"{log}/{block.span.topic}/{block.span.partition}/{block.span.first}/{part}"
            self._store.insert(table, rows, token=token)
            if is_repeat:
                # Without the token: it is remembered, and these rows are not there.
                self._store.insert(table, missing_rows(self._store, table, rows))
        return gathered.result()

    def _take(self, message: Message, gathered: Gathered) -> None:
        """Gather the events of a message; one bad record does not take the good ones with it."""
        try:
            records = codec.records_of(message.value)
        except RejectedMessage as error:
            gathered.letters.append(letter_of(message, error, self._clock.now_ns()))
            return
        for resource, record in records:
            try:
                gathered.add(codec.decode_record(resource, record))
            except Exception as error:
                if not isinstance(error, RejectedMessage):
                    # A fault of ours: it must neither stop the partition nor disappear.
                    logger.exception("%s/%d@%d could not be stored", message.topic, message.partition, message.offset)
                payload = message.value if len(records) == 1 else codec.single(resource, record)
                gathered.letters.append(letter_of(message, error, self._clock.now_ns(), payload))


class Gathered:
    """The rows of some messages, by table; the same messages give the same inserts."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self._batches: list[CallBatch] = []
        self._parts: dict[str, list[pa.Table]] = {}
        self._rows: Counter[str] = Counter()
        self._not_stored = 0

    @property
    def is_empty(self) -> bool:
        """Nothing of this is stored."""
        return not self._rows

    def add(self, event: Event) -> None:
        """Take an event whole or, when a value does not fit, not at all."""
        by_table: dict[str, list[Row]] = {}
        for table, row in rows_of(event):
            by_table.setdefault(table, []).append(row)
        # Converted one event at a time, so that a bad value is known to be this event's.
        converted = {table: arrow_rows(table, rows) for table, rows in by_table.items()}
        if isinstance(event, Operations):
            converted = {schemas.OPERATIONS: operations_table(event)}
        for table, part in converted.items():
            self._parts.setdefault(table, []).append(part)
            self._rows[table] += part.num_rows
        if isinstance(event, CallBatch):
            self._batches.append(event)
            self._rows[schemas.CALLS] += len(event)
        elif not converted:
            self._not_stored += 1

    def inserts(self) -> Iterator[tuple[str, str, pa.Table]]:
        """(name of the insert, table, rows); a batch of calls is whole in one of them."""
        for number, batches in enumerate(_portions(self._batches)):
            yield f"{schemas.CALLS}.{number}", schemas.CALLS, calls_table(batches)
        for table, parts in self._parts.items():
            yield table, table, pa.concat_tables(parts).combine_chunks()

    def result(self) -> WriteResult:
        """What there was."""
        return WriteResult(rows=dict(self._rows), not_stored=self._not_stored, dead_letters=tuple(self.letters))


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
