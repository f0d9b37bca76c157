"""Writer: messages of the bus -> rows of the store, in large blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pacehound import codec
from pacehound.bus import Message
from pacehound.calls import CallBatch
from pacehound.clock import Clock, SystemClock
from pacehound.errors import RejectedMessage
from pacehound.events import DeadLetter
from pacehound.routing import Event
from storage import schemas
from storage.client import Store
from storage.rows import Row, arrow_rows, calls_table, rows_of

# A larger block is hardly faster and takes memory from the pipeline: 0.3 GB more at 300,000 calls.
MAX_BLOCK_CALLS = 100_000


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
    """Writes messages; when `write` returns, they are on disk and may be committed.

    Messages may be repeated, in other portions too: every row has an identity (the ORDER BY of its table), and the
    views show each once. When `write` raises, nothing is lost: the same messages are written again.

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
        """Write `messages`.

        Raises
        ------
        Unavailable
            The store did not take them; write the same messages again later.

        """
        block = _Block()
        letters: list[DeadLetter] = []
        for message in messages:
            self._take(message, block, letters)
            if block.calls >= MAX_BLOCK_CALLS:
                self._flush_calls(block)
        self._flush_calls(block)
        for table, parts in block.parts.items():
            self._store.insert(table, pa.concat_tables(parts).combine_chunks())
        return WriteResult(rows=dict(block.written), not_stored=block.not_stored, dead_letters=tuple(letters))

    def _take(self, message: Message, block: _Block, letters: list[DeadLetter]) -> None:
        """Gather the events of a message; one bad record does not take the good ones with it."""
        try:
            records = codec.records_of(message.value)
        except RejectedMessage as error:
            letters.append(self._letter(message, message.value, error))
            return
        for resource, record in records:
            try:
                block.add(codec.decode_record(resource, record))
            except RejectedMessage as error:
                payload = message.value if len(records) == 1 else codec.single(resource, record)
                letters.append(self._letter(message, payload, error))

    def _letter(self, message: Message, payload: bytes, error: RejectedMessage) -> DeadLetter:
        return DeadLetter(
            source_topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            time_ns=self._clock.now_ns(),
            error=type(error).__name__,
            reason=str(error),
            payload=payload,
        )

    def _flush_calls(self, block: _Block) -> None:
        if block.batches:
            self._store.insert(schemas.CALLS, calls_table(block.batches))
            block.batches.clear()
            block.calls = 0


class _Block:
    """What one `write` has gathered."""

    def __init__(self) -> None:
        self.batches: list[CallBatch] = []
        self.calls = 0
        self.parts: dict[str, list[pa.Table]] = {}
        self.written: Counter[str] = Counter()
        self.not_stored = 0

    def add(self, event: Event) -> None:
        """Take an event whole or, when a value does not fit, not at all."""
        by_table: dict[str, list[Row]] = {}
        for table, row in rows_of(event):
            by_table.setdefault(table, []).append(row)
        # Converted one event at a time, so that a bad value is known to be this event's.
        converted = {table: arrow_rows(table, rows) for table, rows in by_table.items()}
        for table, part in converted.items():
            self.parts.setdefault(table, []).append(part)
            self.written[table] += part.num_rows
        if isinstance(event, CallBatch):
            self.batches.append(event)
            self.calls += len(event)
            self.written[schemas.CALLS] += len(event)
        elif not by_table:
            self.not_stored += 1
