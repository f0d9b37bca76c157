"""Messages of the bus -> the rows of a block, by table; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pacehound.bus import Message
from pacehound.clock import Clock
from pacehound.model.calls import CallBatch
from pacehound.model.events import DeadLetter, HostVitals, IterationSample, Markers
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations
from pacehound.model.routing import Event
from pacehound.runtime.records import dead_letters_of, worked
from storage import schemas
from storage.event_columns import iterations_table, markers_table
from storage.flush_rows import batches_table, flushes_table
from storage.rows import Row, arrow_rows, calls_table, operations_table, rows_of
from storage.vitals_rows import n_readings, vitals_table

# A larger insert is hardly faster and takes memory from the pipeline: 0.3 GB more at 300,000 calls.
MAX_INSERT_CALLS = 100_000

Calls = CallBatch | Flush
_Part: TypeAlias = Row | Flush | HostVitals | IterationSample | Markers | pa.Table


class _Columns(NamedTuple):
    """Of what there is much: which table takes it, how many rows one has, and what makes columns of many."""

    table: str
    n_rows: Callable[[Any], int]
    joined: Callable[[Sequence[Any]], pa.Table]


_TOGETHER: Mapping[type, _Columns] = {
    HostVitals: _Columns(schemas.HOST_VITALS, n_readings, vitals_table),
    IterationSample: _Columns(schemas.ITERATIONS, lambda _: 1, iterations_table),
    Markers: _Columns(schemas.MARKERS, lambda markers: len(markers.ranks), markers_table),
    Flush: _Columns(schemas.BATCHES, lambda flush: len(flush.parts), batches_table),
}
_Name = tuple[str, int, str, str, str, int]


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
    try:
        return _gathered(messages, Rows(), clock)
    except Exception:
        # Seldom; whose value it is that does not fit is seen where the rows of each event are made columns alone, and
        # then it is set aside. What else may fail must not stop the partition either.
        return _gathered(messages, Rows(at_once=True), clock)


def _gathered(messages: Sequence[Message], found: Rows, clock: Clock) -> Gathered:
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
    """Events' rows, by table.

    Parameters
    ----------
    at_once
        The rows of each event are made columns when it is added, so that a bad value is known to be this event's. Of
        all together that takes a third of the time.

    """

    def __init__(self, *, at_once: bool = False) -> None:
        self.rows: Counter[str] = Counter()
        self.not_stored = 0
        self._at_once = at_once
        self._calls: list[Calls] = []
        self._parts: dict[str, list[_Part]] = {}

    def add(self, event: Event) -> None:
        """Take an event whole or not at all.

        Raises
        ------
        InvalidEvent
            A value does not fit; where rows are not made columns at once, `inserts` says so.

        """
        by_table: dict[str, list[_Part]] = {}
        alone: tuple[Event, ...] = (event,)
        if isinstance(event, Flush):
            alone = (*event.vitals, *event.topologies, *event.markers)
        n_without_rows = 0
        for one in alone:
            known = _TOGETHER.get(type(one))
            if known is not None:
                rows: Sequence[tuple[str, _Part]] = [(known.table, one)] if known.n_rows(one) else ()
            else:
                rows = rows_of(one)
            n_without_rows += not rows
            for table, row in rows:
                by_table.setdefault(table, []).append(row)
        if isinstance(event, Flush) and event.parts:
            by_table[schemas.BATCHES] = [event]
        if isinstance(event, Operations):
            by_table = {schemas.OPERATIONS: [operations_table(event)]}
        if self._at_once:
            by_table = {table: [_joined(table, parts)] for table, parts in by_table.items()}
        for table, parts in by_table.items():
            self._parts.setdefault(table, []).extend(parts)
            self.rows[table] += sum(map(_n_rows, parts))
        if isinstance(event, CallBatch | Flush) and schemas.BATCHES in by_table:
            self._calls.append(event)
            self.rows[schemas.CALLS] += len(event)
        if isinstance(event, Flush):
            self.not_stored += len(event.promises) + n_without_rows
        elif not by_table:
            self.not_stored += 1

    def inserts(self) -> Iterator[Insert]:
        """Everything that was added; errors as in `add`."""
        # Before the calls: a batch that does not fit its row has calls that do not fit theirs.
        joined = {table: _joined(table, parts) for table, parts in self._parts.items()}
        for number, portion in enumerate(_portions(self._calls)):
            yield Insert(name=f"{schemas.CALLS}.{number}", table=schemas.CALLS, rows=portion.table())
        for table, rows in joined.items():
            yield Insert(name=table, table=table, rows=rows)


def _n_rows(part: _Part) -> int:
    if isinstance(part, dict):
        return 1
    return int(part.num_rows) if isinstance(part, pa.Table) else _TOGETHER[type(part)].n_rows(part)


def _joined(table: str, parts: Sequence[_Part]) -> pa.Table:
    """The rows of one table, in order."""
    tables: list[pa.Table] = []
    for kind, some in groupby(parts, type):
        if kind is dict:
            tables.append(arrow_rows(table, [one for one in some if isinstance(one, dict)]))
        elif (known := _TOGETHER.get(kind)) is not None:
            tables.append(known.joined([*some]))
        else:
            tables += some
    return pa.concat_tables(tables).combine_chunks()


class _Portion:
    """The batches of one insert of calls; a flush is as many."""

    def __init__(self) -> None:
        self.calls: list[Calls] = []
        self.n_calls = 0
        self._places: dict[_Name, tuple[Calls, int]] = {}

    def is_new(self, calls: Calls) -> bool:
        """None of its batches has the name of another one of it, or of one that is here."""
        names = _names(calls)
        return len(set(names)) == len(names) and self._places.keys().isdisjoint(names)

    def holds(self, calls: Calls) -> bool:
        """It is a batch that is here already, with the same calls."""
        if not isinstance(calls, CallBatch) or self.is_new(calls):
            return False
        there, number = self._places[_names(calls)[0]]
        return _has_same_calls(_batches(there)[number], calls)

    def add(self, calls: Calls) -> None:
        self.calls.append(calls)
        self.n_calls += len(calls)
        for number, name in enumerate(_names(calls)):
            self._places[name] = calls, number

    def table(self) -> pa.Table:
        """The rows, in order."""
        tables = []
        for kind, some in groupby(self.calls, type):
            if kind is Flush:
                tables.append(flushes_table([one for one in some if isinstance(one, Flush)]))
            else:
                tables.append(calls_table([one for one in some if isinstance(one, CallBatch)]))
        if len(tables) == 1:
            return tables[0]
        # One chunk: the engine reads a file of many small chunks several times slower.
        return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _portions(calls: Iterable[Calls]) -> Iterator[_Portion]:
    """What each insert of calls holds.

    The rollup adds up what one insert holds of a batch's name. So a batch that was sent twice is in an insert once, and
    two different ones of the same name (a producer that began to count again) are in two. A flush is taken whole where
    all its batches are new, as nearly every one is.
    """
    portion = _Portion()
    for some in calls:
        for one in [some] if portion.is_new(some) else _batches(some):
            if portion.holds(one):
                continue
            if not portion.is_new(one):
                yield portion
                portion = _Portion()
            portion.add(one)
            if portion.n_calls >= MAX_INSERT_CALLS:
                yield portion
                portion = _Portion()
    if portion.n_calls:
        yield portion


def _names(calls: Calls) -> list[_Name]:
    same = calls.job, calls.attempt, calls.host
    parts = calls.parts if isinstance(calls, Flush) else (calls,)
    return [(*same, part.communicator, part.source, part.ordinal) for part in parts]


def _batches(calls: Calls) -> list[CallBatch]:
    if isinstance(calls, CallBatch):
        return [calls]
    return [calls.batch(part, rows) for part, rows in zip(calls.parts, calls.slices(), strict=True)]


def _has_same_calls(one: CallBatch, other: CallBatch) -> bool:
    return all(np.array_equal(one.column(name), other.column(name)) for name in ("rank", "seq", "peer", "launch_ns"))
