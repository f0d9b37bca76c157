"""Flush: what one host says at once of all communicators of a shard, the calls of all its ranks as columns.

It says what a `Topology`, a `CallBatch`, `Markers` and a `Progress` for each communicator would, and costs its readers
one message. The rows of a communicator lie side by side: a `CallPart` says whose they are, and how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidEvent
from pacehound.model.by_the_hundred import ByTheHundred
from pacehound.model.calls import CALL_SCHEMA, NO_PEER, UNKNOWN_COUNT, CallBatch, Sees
from pacehound.model.codes import ALGORITHMS, DIRECTIONS, DTYPES, OPS, PROTOCOLS, REDOPS
from pacehound.model.columns import numbers, numpy_type, values_of
from pacehound.model.events import MAX_WORLD_RANKS, HostVitals, Markers, Progress, Topology
from pacehound.model.events.hosts import check_quiet
from pacehound.model.finite import unfit_field
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64
from pacehound.model.representative import MAX_ROWS, OWN, RepresentedRank, check_represented
from pacehound.model.shards import Place, shard_key
from pacehound.model.spans import SpannedTopology, in_full, in_short

CODED: Mapping[str, tuple[str, ...]] = {
    "op": OPS,
    "dtype": DTYPES,
    "redop": REDOPS,
    "direction": DIRECTIONS,
    "algorithm": ALGORITHMS,
    "protocol": PROTOCOLS,
}
"""Columns that hold positions in these names; a position that this build does not know stands for the first."""

_SAME = {"job", "attempt", "communicator", "source"}

COLUMNS: Mapping[str, type[np.generic]] = {
    spec.name: np.int8 if spec.name in CODED else numpy_type(spec.type)
    for spec in CALL_SCHEMA
    if spec.name not in _SAME
}
"""By name, what a column of calls holds."""

_UNKNOWN = {
    "count": UNKNOWN_COUNT, "peer": NO_PEER, "send_count": UNKNOWN_COUNT, "recv_count": UNKNOWN_COUNT,
    "send_rate": float("nan"), "recv_rate": float("nan"),
}  # fmt: skip

ALWAYS = ("rank", "seq", "op", "launch_ns")
"""Other columns travel where a row knows something of them."""

_ALWAYS = frozenset(ALWAYS)
_SEES = frozenset(range(Sees.ALL.value + 1))

MAX_FLUSH_ROWS = 4_096
"""Of one message: below the 512 KB to which messages are joined on Kafka, whatever the source sees."""

MAX_FLUSH_SAID = 1_024
"""Entries of the promises of one message, each of 60 to 400 bytes."""

Column = npt.NDArray[np.generic]
HostCall = Topology | CallBatch | Markers | Progress
"""What a host says of its calls, each with a message of its own."""


class CallPart(ByTheHundred, frozen=True, kw_only=True):
    """Whose the next rows are; all of it as in `CallBatch`."""

    communicator: str
    source: str
    ordinal: Int64
    sees: Int64
    n_rows: Int64
    dropped: Int64 = 0
    within_ns: Int64 = 0
    represented: tuple[RepresentedRank, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A host's promise for many communicators at once: all that has ended by `time_ns` was sent, as in `Progress`.

    How far its ranks are it does not say: what a `Progress` has said last of these communicators is all that is known.
    So it is sent where nobody could conclude anything from it, as long as iterations end as usual.

    Beside promises it may name the communicators of which nothing else is said, or none, and speak of processes alone.

    Attributes
    ----------
    quiet_ns
        For so long the host may say nothing more, and is not silent.
    is_of_processes
        The host's processes are as its last `HostSample` has them, up to the same time.
    behind_ns
        What a host says besides calls travels on another topic, and may be read later. This is the time of its last
        word there, and no two have the same: what is said of processes holds once that one has been heard.

    """

    time_ns: Int64
    communicators: tuple[str, ...]
    quiet_ns: Int64 = 0
    is_of_processes: bool = False
    behind_ns: Int64 = 0

    def __post_init__(self) -> None:
        check_quiet(self.quiet_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """What a host says at once of the communicators of a shard; in the order in which it is to be heard.

    Attributes
    ----------
    shard, is_home
        Which one of the job's, and whether it is the home of this host (`pacehound.model.shards`): then it has also
        communicators that belong to others.
    vitals
        What its hardware is like, of hosts that would send a message of its own for it otherwise.
    topologies
        Communicators that ranks of the host have joined.
    parts, columns
        The rows, by name of `COLUMNS`, and whose they are, one part behind the other. Each array has shape
        `(n_rows,)`; what is not there is unknown in every row.
    markers, promises
        As they would stand alone. A promise speaks of all rows that this host has sent before, and of these.
    heartbeat
        In the place of promises, or beside them, of other communicators and of processes.

    """

    job: str
    attempt: Int64
    host: str
    shard: Int64
    is_home: bool = False
    vitals: tuple[HostVitals, ...] = ()
    topologies: tuple[Topology, ...] = ()
    parts: tuple[CallPart, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict, repr=False)
    markers: tuple[Markers, ...] = ()
    promises: tuple[Progress, ...] = ()
    heartbeat: Heartbeat | None = None

    def __post_init__(self) -> None:
        check_columns(self.columns, _n_rows(self.parts))
        for said in self.said:
            if (said.job, said.attempt, said.host) != (self.job, self.attempt, self.host):
                raise InvalidEvent(
                    f"a flush of host {self.host!r}, job {self.job!r} holds a {type(said).__name__} of another one"
                )

    def __len__(self) -> int:
        for column in self.columns.values():
            return len(column)  # those of all parts: their sum takes longer
        return _n_rows(self.parts)

    @property
    def said(self) -> tuple[HostVitals | Topology | Markers | Progress, ...]:
        """All but the calls."""
        return (*self.vitals, *self.topologies, *self.markers, *self.promises)

    @property
    def communicators(self) -> list[str]:
        """Of which it says anything."""
        beating = () if self.heartbeat is None else self.heartbeat.communicators
        of_calls: tuple[CallPart | HostCall, ...] = (*self.parts, *self.topologies, *self.markers, *self.promises)
        return list(dict.fromkeys([*(one.communicator for one in of_calls), *beating]))

    @property
    def promised_ns(self) -> dict[str, int]:
        """By communicator, up to when all has been sent that has ended on it."""
        beating = () if self.heartbeat is None else self.heartbeat.communicators
        beat_ns = 0 if self.heartbeat is None else self.heartbeat.time_ns
        return {**dict.fromkeys(beating, beat_ns), **{one.communicator: one.time_ns for one in self.promises}}

    @property
    def promised(self) -> list[str]:
        """Communicators of which it promises something, in full or in short."""
        return list(self.promised_ns)

    @property
    def promises_the_last(self) -> bool:
        """Nothing more will come of what it promises."""
        is_beating = self.heartbeat is not None and bool(self.heartbeat.communicators)
        return bool(self.promises) and not is_beating and all(promise.closed for promise in self.promises)

    @property
    def speaks_of_processes(self) -> bool:
        """Its heartbeat says that the host's processes are as before."""
        return self.heartbeat is not None and self.heartbeat.is_of_processes

    @property
    def quiet_ns(self) -> int | None:
        """For so long the host may say nothing more; `None` where it says nothing of its communicators."""
        if self.heartbeat is not None:
            return self.heartbeat.quiet_ns
        return 0 if self.communicators else None

    @property
    def key(self) -> str:
        """On `calls`."""
        return shard_key(self.job, self.attempt, Place(self.shard, self.is_home))

    @property
    def n_bytes(self) -> int:
        """What its columns take."""
        return sum(column.nbytes for column in self.columns.values())

    @property
    def time_ns(self) -> int:
        """Of the last that it tells."""
        beats = () if self.heartbeat is None else (self.heartbeat,)
        said = max((one.time_ns for one in (*self.said, *beats)), default=0)
        rows = [int(self.column(name).max(initial=0)) for name in ("launch_ns", "end_ns") if name in self.columns]
        return max([said, *rows])

    def identity(self) -> str:
        """Names (job, attempt, host, shard, its batches, promises and vitals)."""
        batches = [f"{part.communicator} {part.source} {part.ordinal}" for part in self.parts]
        said = [one.identity() for one in self.said]
        if self.heartbeat is not None:
            said.append(f"heartbeat {self.heartbeat.time_ns}")
        return event_id("flush", self.job, self.attempt, self.host, self.shard, " ".join(batches), " ".join(said))

    def column(self, name: str) -> Column:
        """A column, shape `(n_rows,)`, also where nothing is known of it."""
        return column_of(self.columns, name, len(self))

    @property
    def known_columns(self) -> dict[str, Column]:
        """Its columns; those that always travel also where no part has a row, and none has travelled."""
        return known_columns_of(self.columns, len(self))

    def slices(self) -> list[slice]:
        """Where the rows of each part are."""
        return slices_of([part.n_rows for part in self.parts])

    def batch(self, part: CallPart, rows: slice) -> CallBatch:
        """The rows of one part as a batch of their own."""
        return batch_of_rows(
            self.known_columns,
            rows,
            job=self.job,
            attempt=self.attempt,
            host=self.host,
            communicator=part.communicator,
            source=part.source,
            ordinal=part.ordinal,
            sees=part.sees,
            dropped=part.dropped,
            within_ns=part.within_ns,
        )

    def hosts_of(self, part: CallPart) -> tuple[str, ...]:
        """Who has sent the rows of a part."""
        return (self.host,)

    def whole(self) -> Flush:
        """The same calls with a row for each, also where one rank stands for several (representative.py).

        Raises
        ------
        InvalidEvent
            A row is of a rank that its part does not stand for, or they stand for too many.

        """
        if not any(part.represented for part in self.parts):
            return self
        n_rows = sum(part.n_rows * max(len(part.represented), 1) for part in self.parts)
        if n_rows > MAX_ROWS:
            raise InvalidEvent(f"a flush stands for {n_rows} rows; at most {MAX_ROWS} are taken")
        counts = np.concatenate([np.full(part.n_rows, max(len(part.represented), 1)) for part in self.parts])
        taken = np.repeat(np.arange(len(self)), counts)
        columns = {name: column[taken] for name, column in self.columns.items()}
        parts, first = [], 0
        for part in self.parts:
            n_ranks = max(len(part.represented), 1)
            after = first + part.n_rows * n_ranks
            if part.represented:
                check_represented(part.n_rows, part.represented)
                _spread({name: column[first:after] for name, column in columns.items()}, part.represented)
            parts.append(msgspec.structs.replace(part, n_rows=after - first, represented=()))
            first = after
        return replace(self, parts=tuple(parts), columns=columns)

    def events(self) -> Iterator[HostCall | HostVitals]:
        """The same, each thing by itself, in order."""
        yield from self.vitals
        yield from self.topologies
        for part, rows in zip(self.parts, self.slices(), strict=True):
            yield self.batch(part, rows)
        yield from self.markers
        yield from self.promises


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushHead:
    """All but the columns, as it travels; nothing of vitals where there are none, as before there were any."""

    parts: tuple[CallPart, ...] = ()
    topologies: tuple[Topology, ...] = ()
    markers: tuple[Markers, ...] = ()
    promises: tuple[Progress, ...] = ()
    heartbeat: Heartbeat | None = None
    spanned: tuple[SpannedTopology, ...] = ()
    vitals: tuple[HostVitals, ...] | msgspec.UnsetType = msgspec.UNSET


def head_of(flush: Flush) -> FlushHead:
    """All but the columns.

    Raises
    ------
    ValueError
        A number is NaN or infinite: no reader would take it.

    """
    for said in (*flush.vitals, *flush.promises):
        if unfit := unfit_field(said):
            raise ValueError(f"{type(said).__name__} of job {flush.job!r}: {unfit} is no finite number")
    topologies, spanned = in_short(flush.topologies)
    return FlushHead(
        parts=flush.parts,
        topologies=topologies,
        spanned=spanned,
        markers=flush.markers,
        promises=flush.promises,
        heartbeat=flush.heartbeat,
        vitals=flush.vitals or msgspec.UNSET,
    )


def _n_rows(parts: Sequence[CallPart]) -> int:
    return sum([part.n_rows for part in parts])


def check_columns(columns: Mapping[str, Column], n_rows: int) -> None:
    """That columns hold so many values each, of their type, and those are there that always are; or `InvalidEvent`."""
    for name, column in columns.items():
        if column.shape != (n_rows,) or column.dtype != COLUMNS[name]:
            raise InvalidEvent(f"flush column {name!r} is {column.dtype} {column.shape}, not {n_rows} values")
    if n_rows and not columns.keys() >= _ALWAYS:
        raise InvalidEvent(f"a flush of {n_rows} rows has the columns {sorted(columns)} alone")


def batch_of_rows(columns: Mapping[str, Column], rows: slice, *, sees: int, **whose: Any) -> CallBatch:
    """Some rows as a batch, whose fields are `whose`; `columns` are by name of `COLUMNS`."""
    chosen = {name: column[rows] for name, column in columns.items()}
    chosen |= {name: _NAMES[name][values] for name, values in chosen.items() if name in _NAMES}
    return CallBatch.from_columns(chosen, sees=Sees(sees), **whose)


def column_of(columns: Mapping[str, Column], name: str, n_rows: int) -> Column:
    """One of the columns of so many rows, also where nothing is known of it."""
    known = columns.get(name)
    return known if known is not None else unknown_column(name, n_rows)


def known_columns_of(columns: Mapping[str, Column], n_rows: int) -> dict[str, Column]:
    """The columns of so many rows, and those that always travel where none has."""
    return {**{name: column_of(columns, name, n_rows) for name in ALWAYS}, **columns}


def slices_of(n_rows: Iterable[int]) -> list[slice]:
    """Where the rows of each part are, of which so many lie one part behind the other.

    >>> slices_of([2, 3])
    [slice(0, 2, None), slice(2, 5, None)]
    """
    return [slice(first, after) for first, after in pairwise(accumulate(n_rows, initial=0))]


def unknown_column(name: str, n_rows: int) -> Column:
    """A column of which nothing is known."""
    return np.full(n_rows, _UNKNOWN.get(name, 0), COLUMNS[name])


def arrow_rows(columns: Mapping[str, Column]) -> pa.RecordBatch:
    """The columns, as they travel."""
    kinds = {name: pa.from_numpy_dtype(COLUMNS[name]) for name in columns}
    arrays = [numbers(column, kinds[name]) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(kinds.items())))


def read_flush(
    head: FlushHead, rows: pa.RecordBatch | None, *, job: str, attempt: int, host: str, place: Place
) -> Flush:
    """A flush as it came, with a row for every call; unknown columns are ignored.

    Raises
    ------
    InvalidEvent
        It contradicts itself, or claims what cannot be.

    """
    if not 0 <= place.shard <= MAX_WORLD_RANKS:
        raise InvalidEvent(f"the shard of a flush is {place.shard}")
    columns = read_columns(rows, _n_rows(head.parts), "a flush")
    for part in head.parts:
        if part.n_rows < 0:
            raise InvalidEvent(f"a part of a flush says it has {part.n_rows} rows")
        if part.dropped < 0 or part.within_ns < 0:
            raise InvalidEvent(f"{part.dropped} calls dropped, right within {part.within_ns} ns: neither is negative")
        known_sees(part.sees)
        if part.represented and (highest := max([one.rank for one in part.represented])) >= MAX_WORLD_RANKS:
            raise InvalidEvent(f"a flush has rank {highest}; at most {MAX_WORLD_RANKS} can be watched")
    return Flush(
        job=job,
        attempt=attempt,
        host=host,
        shard=place.shard,
        is_home=place.is_home,
        vitals=head.vitals or (),
        topologies=in_full(head.topologies, head.spanned, job=job, attempt=attempt),
        parts=head.parts,
        columns=columns,
        markers=head.markers,
        promises=head.promises,
        heartbeat=head.heartbeat,
    ).whole()


def known_sees(number: int) -> None:
    """That it is one of `Sees`, or `ValueError`."""
    if number not in _SEES:
        Sees(number)  # says so


def read_columns(rows: pa.RecordBatch | None, n_rows: int, what: str) -> dict[str, Column]:
    """The columns of `what` that this build knows, which says that it has so many rows.

    Raises
    ------
    InvalidEvent
        It has not, or they are of ranks that there cannot be.

    """
    n_there = 0 if rows is None else rows.num_rows
    if n_rows != n_there:
        raise InvalidEvent(f"{what} says it has {n_rows} rows and has {n_there}")
    if rows is None:
        return {}
    there = zip(rows.schema.names, rows.columns, strict=True)
    columns = {name: _read_column(column, name, COLUMNS[name]) for name, column in there if name in COLUMNS}
    if n_rows and "rank" in columns and "seq" in columns:
        ranks = columns["rank"]
        if ranks.min() < 0 or columns["seq"].min() < 0:
            raise InvalidEvent(f"{what} has a negative rank or sequence number")
        if (highest := int(ranks.max())) >= MAX_WORLD_RANKS:
            raise InvalidEvent(f"{what} has rank {highest}; at most {MAX_WORLD_RANKS} can be watched")
    return columns


def _read_column(column: pa.Array, name: str, kind: type[np.generic]) -> Column:
    wanted = _ARROW_KINDS[kind]
    values: Column = values_of(column if column.type.id == wanted.id else column.cast(wanted))
    # Of few rows NumPy takes longer to begin than this takes in all.
    if name in CODED and values.tobytes().translate(None, _CODES[name]):
        values = np.where(values.view(np.uint8) < len(CODED[name]), values, 0).astype(np.int8)
    return values


_CODES = {name: bytes(range(len(names))) for name, names in CODED.items()}
_ARROW_KINDS = {kind: pa.from_numpy_dtype(kind) for kind in COLUMNS.values()}
_NAMES = {name: np.array(CODED[name]) for name in ("algorithm", "protocol")}


def columns_of(batches: Sequence[CallBatch]) -> dict[str, Column]:
    """The rows of batches as the columns of a flush, without those of which nothing is known."""
    columns: dict[str, Column] = {}
    for name, kind in COLUMNS.items():
        parts = [_column(batch, name).astype(kind, copy=False) for batch in batches]
        column = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if name in ALWAYS or not _is_unknown(column, name):
            columns[name] = column
    return columns


def _column(batch: CallBatch, name: str) -> Column:
    if name not in _NAMES:
        return batch.codes(name) if name in CODED else batch.column(name)
    column = batch.rows.column(name)
    known = {value: code for code, value in enumerate(CODED[name])}
    table = np.array([known.get(value, 0) for value in column.dictionary.to_pylist()] or [0], np.int8)
    codes: Column = table[values_of(column.indices)]
    return codes


def _is_unknown(column: Column, name: str) -> bool:
    unknown = _UNKNOWN.get(name, 0)
    return bool(np.isnan(column).all() if unknown != unknown else (column == unknown).all())


def flushes_of(events: Iterable[HostCall], places: Mapping[str, Place]) -> Iterator[Flush]:
    """What a host says, in as few flushes as may be, of one kind of thing each; in the order in which it is heard.

    Topologies, calls, markers, promises, and the promises that close: what an agent may do with them, if it has to make
    room, differs (of iterations it makes one again: `collector.agent.saying`). On Kafka they are joined to one message.

    Parameters
    ----------
    events
        Of one host, and of any attempts.
    places
        By communicator.

    """
    by_place: dict[tuple[int, Place, int], list[HostCall]] = {}
    for event in events:
        by_place.setdefault((event.attempt, places[event.communicator], _turn(event)), []).append(event)
    for (attempt, place, _), said in sorted(by_place.items(), key=lambda one: one[0]):
        for some in _portions(said):
            batches = [event for event in some if isinstance(event, CallBatch)]
            yield Flush(
                job=said[0].job,
                attempt=attempt,
                host=said[0].host,
                shard=place.shard,
                is_home=place.is_home,
                topologies=tuple(event for event in some if isinstance(event, Topology)),
                parts=tuple(map(_part, batches)),
                columns=columns_of(batches) if batches else {},
                markers=tuple(event for event in some if isinstance(event, Markers)),
                promises=tuple(event for event in some if isinstance(event, Progress)),
            )


def _turn(event: HostCall) -> int:
    if isinstance(event, Progress):
        return 3 + event.closed
    return (Topology, CallBatch, Markers).index(type(event))


def _spread(columns: Mapping[str, Column], represented: Sequence[RepresentedRank]) -> None:
    """Rows that were repeated once for each of these ranks become those of the ranks; the columns are written to."""
    ranks = np.array([one.rank for one in represented], columns["rank"].dtype)
    own = columns["rank"].copy()
    unlisted = sorted(set(own.tolist()) - set(ranks.tolist()))
    if unlisted:
        raise InvalidEvent(
            f"rows of ranks {unlisted[:8]} stand for ranks {ranks.tolist()[:8]}: they are not among them"
        )
    n_each = len(own) // len(ranks)
    columns["rank"][:] = np.tile(ranks, n_each)
    is_own = own == columns["rank"]
    for name in ("launch_ns", "start_ns", "end_ns"):
        if name in columns:
            values = columns[name].astype(np.int64)
            later = np.tile(np.array([getattr(one, name) for one in represented], np.int64), n_each)
            columns[name][:] = np.where(is_own | (values <= 0), values, values + later)
    for name in OWN:
        if name in columns:
            columns[name][~is_own] = 0


def _part(batch: CallBatch) -> CallPart:
    return CallPart(
        communicator=batch.communicator,
        source=batch.source,
        ordinal=batch.ordinal,
        sees=batch.sees.value,
        n_rows=len(batch),
        dropped=batch.dropped,
        within_ns=batch.within_ns,
        represented=batch.represented,
    )


def _portions(said: Sequence[HostCall]) -> Iterator[list[HostCall]]:
    """As many at a time as one message takes."""
    some: list[HostCall] = []
    n_rows = n_said = 0
    for event in said:
        rows, entries = (len(event), 1) if isinstance(event, CallBatch) else (0, entries_of(event))
        if some and (n_rows + rows > MAX_FLUSH_ROWS or n_said + entries > MAX_FLUSH_SAID):
            yield some
            some, n_rows, n_said = [], 0, 0
        some.append(event)
        n_rows += rows
        n_said += entries
    if some:
        yield some


def entries_of(event: Topology | Markers | Progress) -> int:
    """How much it takes of a message, in entries of 60 to 400 bytes."""
    if isinstance(event, Topology):
        return 1 + len(event.members) // 32
    if isinstance(event, Markers):
        return 1 + len(event.ranks) // 4
    ranks = [
        1 + len(rank.open) * (1 + sum(len(c.channels) for c in rank.open)) + len(rank.pairs) for rank in event.ranks
    ]
    return 1 + sum(ranks) + len(event.edges) + len(event.announced) // 4
