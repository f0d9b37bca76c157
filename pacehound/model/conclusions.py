"""Conclusions: all that stage one says of a flush to stage two, in one message.

Rounds of many communicators travel as one table, a line for each round and in it a list with a place for each rank;
everything else as JSON. Their order is that in which they were concluded. Digests of pairs are lines of the same table,
behind those of rounds, which say themselves whose they are.

Other rounds of pairs are written as those of each pair by itself, which is how they were told before they were one
object, and read as one where they follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidEvent, MalformedMessage
from pacehound.model.by_the_hundred import ByTheHundred
from pacehound.model.calls import Sees
from pacehound.model.columns import numbers, values_of
from pacehound.model.digests import is_of_digests
from pacehound.model.events import (
    MAX_WORLD_RANKS,
    HostVitals,
    IterationSample,
    Markers,
    Progress,
    SignatureMismatch,
    Topology,
    Watermark,
)
from pacehound.model.flushes import entries_of
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.spans import SpannedTopology, in_full, in_short

Concluded = (
    Rounds | Progress | Watermark | IterationSample | Markers | Topology | SignatureMismatch | PairRounds | HostVitals
)

_KINDS: dict[str, type] = {
    "rounds": Rounds,
    "progress": Progress,
    "watermarks": Watermark,
    "iterations": IterationSample,
    "markers": Markers,
    "topologies": Topology,
    "mismatches": SignatureMismatch,
    "pairs": PairRounds,
    "vitals": HostVitals,
}
_FIELD_OF = {kind: name for name, kind in _KINDS.items()}
_NUMBER_OF = {kind: number for number, kind in enumerate(_KINDS.values())}

_GRID = ("arrival_ns", "start_ns", "end_ns")
_RATES = ("send_rate", "recv_rate")
_LINE = {"seq": np.int64, "op": np.int8, "size_bytes": np.int64, "algorithm": np.int8}
_PAIR = ("communicator", "sender", "receiver")
"""Of each line of a pair: the place of its communicator among those that are named, and its ranks."""


_ENTRY_CELLS = 5
"""An entry of a promise takes as much as so many cells: 200 bytes of JSON."""


def cells_of(one: Concluded) -> int:
    """How much it takes of a message: rounds times ranks, of 24 to 40 bytes each, and what takes as much of others."""
    match one:
        case Rounds() | PairRounds():
            return one.arrival_ns.size
        case Topology() | Markers() | Progress():
            return _ENTRY_CELLS * entries_of(one)
        case IterationSample():
            return len(one.ranks)
        case SignatureMismatch():
            return _ENTRY_CELLS * len(one.called)
        case HostVitals():
            readings = len(one.gpus) + len(one.nics) + len(one.sockets) + len(one.rank_processors)
            return _ENTRY_CELLS * (1 + readings)
        case _:
            return _ENTRY_CELLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusions:
    """What follows from one message of `calls`, in order, all of one attempt of one job."""

    job: str
    attempt: Int64
    said: tuple[Concluded, ...]

    def __post_init__(self) -> None:
        if any((one.job, one.attempt) != (self.job, self.attempt) for one in self.said):
            raise InvalidEvent(f"conclusions about job {self.job!r}, attempt {self.attempt}, hold some of another one")

    @property
    def time_ns(self) -> int:
        """Of the last of them; a stream that has ended has no time."""
        return max((one.time_ns for one in self.said if not isinstance(one, Watermark)), default=0)

    def rounds(self) -> Iterator[Rounds]:
        """Those of each communicator and each pair."""
        for one in self.said:
            if isinstance(one, Rounds):
                yield one
            elif isinstance(one, PairRounds):
                yield from one.by_pair()

    def identity(self) -> str:
        """Names what it holds."""
        return event_id("conclusions", self.job, self.attempt, " ".join(one.identity() for one in self.said))


class RoundsHead(ByTheHundred, frozen=True, kw_only=True):
    """Of which rounds the next `n_rounds` lines of the table are; a column that none of them has is not read there."""

    communicator: str
    source: str
    sees: Int64
    ranks: tuple[Int64, ...]
    n_rounds: Int64
    is_pair: bool = False
    has_send_rate: bool = False
    has_recv_rate: bool = False
    has_algorithm: bool = False


class PairsHead(ByTheHundred, frozen=True, kw_only=True):
    """Of which pairs' digests the next `n_lines` lines of the table are, as in `RoundsHead`."""

    source: str
    sees: Int64
    communicators: tuple[str, ...]
    n_lines: Int64
    has_send_rate: bool = False
    has_recv_rate: bool = False
    has_algorithm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConclusionsHead:
    """All but the table, as it travels: `order` has the number of the kind of each conclusion.

    Where there are no pairs or no vitals nothing is said of them, as before there were any.
    """

    order: tuple[int, ...] = ()
    rounds: tuple[RoundsHead, ...] = ()
    progress: tuple[Progress, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    iterations: tuple[IterationSample, ...] = ()
    markers: tuple[Markers, ...] = ()
    topologies: tuple[Topology, ...] = ()
    mismatches: tuple[SignatureMismatch, ...] = ()
    spanned: tuple[SpannedTopology, ...] = ()
    pairs: tuple[PairsHead, ...] | msgspec.UnsetType = msgspec.UNSET
    vitals: tuple[HostVitals, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def n_said(self) -> int:
        """How many conclusions it tells of."""
        return len(self.spanned) + sum(len(getattr(self, name) or ()) for name in _KINDS)


def head_of(conclusions: Conclusions) -> ConclusionsHead:
    """All but the table."""
    by_field: dict[str, list[Any]] = {name: [] for name in _KINDS}
    order: list[int] = []
    for one in conclusions.said:
        if isinstance(one, PairRounds) and not one.is_digest:
            heads = _heads_by_pair(one)
            by_field[_FIELD_OF[Rounds]] += heads
            order += [_NUMBER_OF[Rounds]] * len(heads)
            continue
        by_field[_FIELD_OF[type(one)]].append(_line_head(one) if isinstance(one, (Rounds, PairRounds)) else one)
        order.append(_NUMBER_OF[type(one)])
    by_field["topologies"], by_field["spanned"] = map(list, in_short(by_field["topologies"]))
    fields: dict[str, Any] = {name: tuple(found) for name, found in by_field.items()}
    fields |= {name: msgspec.UNSET for name in ("pairs", "vitals") if not fields[name]}
    return ConclusionsHead(order=tuple(order), **fields)


def _line_head(of: Rounds | PairRounds) -> RoundsHead | PairsHead:
    columns = _columns_told(of)
    if isinstance(of, PairRounds):
        return PairsHead(
            source=of.source, sees=of.sees.value, communicators=of.communicators, n_lines=len(of), **columns
        )
    return RoundsHead(
        communicator=of.communicator,
        source=of.source,
        sees=of.sees.value,
        ranks=of.ranks,
        n_rounds=len(of),
        is_pair=of.is_pair,
        **columns,
    )


def _heads_by_pair(pairs: PairRounds) -> list[RoundsHead]:
    """One for each pair, in order."""
    begins = pairs.begins
    columns = _columns_told(pairs)
    whose = (pairs.communicator[begins].tolist(), pairs.ranks[begins].tolist())
    lengths = np.diff(begins, append=len(pairs)).tolist()
    return [
        RoundsHead(
            communicator=pairs.communicators[communicator],
            source=pairs.source,
            sees=pairs.sees.value,
            ranks=tuple(ranks),
            n_rounds=n_rounds,
            is_pair=True,
            **columns,
        )
        for communicator, ranks, n_rounds in zip(*whose, lengths, strict=True)
    ]


def _columns_told(of: Rounds | PairRounds) -> dict[str, bool]:
    return {
        "has_send_rate": of.send_rate is not None,
        "has_recv_rate": of.recv_rate is not None,
        "has_algorithm": of.algorithm is not None,
    }


def rounds_table(conclusions: Conclusions) -> pa.RecordBatch | None:
    """The rounds, and behind them the digests of pairs, as they travel; `None` where there are none."""
    with_lines = [one for one in conclusions.said if isinstance(one, (Rounds, PairRounds))]
    pairs = [one for one in with_lines if isinstance(one, PairRounds) and one.is_digest]
    blocks = [*(one for one in with_lines if isinstance(one, Rounds) or not one.is_digest), *pairs]
    if not blocks:
        return None
    widths = np.repeat([block.arrival_ns.shape[1] for block in blocks], [len(block) for block in blocks])
    offsets = numbers(np.concatenate([[0], np.cumsum(widths)]).astype(np.int32), pa.int32())
    columns: dict[str, pa.Array] = {}
    for name, kind in _LINE.items():
        of_blocks = [getattr(block, name) for block in blocks]
        if any(column is not None for column in of_blocks):
            whole = [np.zeros(len(b), kind) if c is None else c for c, b in zip(of_blocks, blocks, strict=True)]
            columns[name] = numbers(np.concatenate(whole).astype(kind, copy=False), pa.from_numpy_dtype(kind))
    for name in (*_GRID, *_RATES):
        of_blocks = [getattr(block, name) for block in blocks]
        if any(column is not None for column in of_blocks):
            flat = [
                np.full(b.arrival_ns.size, np.nan) if c is None else c.reshape(-1)
                for c, b in zip(of_blocks, blocks, strict=True)
            ]
            values = np.concatenate(flat)
            columns[name] = pa.ListArray.from_arrays(offsets, numbers(values, pa.from_numpy_dtype(values.dtype)))
    if pairs:
        before = np.zeros((len(widths) - sum(map(len, pairs)), len(_PAIR)), np.int64)
        whose = np.concatenate([before, *(np.column_stack((one.communicator, one.ranks)) for one in pairs)])
        columns |= {name: numbers(whose[:, at], pa.int32()) for at, name in enumerate(_PAIR)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def time_with(conclusions: Conclusions, table: pa.RecordBatch | None) -> int:
    """`Conclusions.time_ns` where the rounds are a table already: of thousands of blocks each by itself takes long."""
    ends_ns = values_of(table.column("end_ns").values) if table is not None else np.zeros(0, np.int64)
    if not len(ends_ns) or ends_ns.min() <= 0:
        return conclusions.time_ns
    others = (one.time_ns for one in conclusions.said if not isinstance(one, (Watermark, Rounds, PairRounds)))
    return max(int(ends_ns.max()), *others, 0)


def read_conclusions(head: ConclusionsHead, table: pa.RecordBatch | None, *, job: str, attempt: int) -> Conclusions:
    """Conclusions as they came.

    Raises
    ------
    InvalidEvent, MalformedMessage
        They contradict themselves.

    """
    if head.n_said != len(head.order) or not set(head.order) <= set(_NUMBER_OF.values()):
        raise InvalidEvent(f"conclusions say that they are {len(head.order)}, and are {head.n_said}")
    with_columns = (Rounds, PairRounds)
    waiting: dict[int, Iterator[Concluded]] = {
        _NUMBER_OF[kind]: iter(getattr(head, name) or ()) for name, kind in _KINDS.items() if kind not in with_columns
    }
    waiting[_NUMBER_OF[Topology]] = iter(in_full(head.topologies, head.spanned, job=job, attempt=attempt))
    columns = _read_table(head, table)
    waiting[_NUMBER_OF[PairRounds]] = _read_digests_of_pairs(head.pairs or (), columns, job, attempt)
    rounds = _RoundsReader(head.rounds, columns, job, attempt)
    said: list[Concluded] = []
    for number, run in groupby(head.order):
        n = sum(1 for _ in run)
        if number == _NUMBER_OF[Rounds]:
            said += rounds.read(n)
        elif len(found := list(islice(waiting[number], n))) == n:
            said += found
        else:
            raise InvalidEvent("conclusions are of other kinds than they say")
    return Conclusions(job=job, attempt=attempt, said=tuple(said))


@dataclass(frozen=True, slots=True)
class _Columns:
    """A table as it was read: by name the values of its lines, and those of all ranks of each line."""

    lines: dict[str, npt.NDArray[Any]]
    cells: dict[str, npt.NDArray[Any]]
    first_of_pairs: int  # the line behind those of rounds


def _read_table(head: ConclusionsHead, table: pa.RecordBatch | None) -> _Columns:
    pairs = head.pairs or ()
    lengths = [*(one.n_rounds for one in head.rounds), *(one.n_lines for one in pairs)]
    if table is None:
        if lengths:
            raise InvalidEvent("conclusions have rounds, and no table of them")
        return _Columns({}, {}, 0)
    if min(lengths, default=0) < 0 or sum(lengths) != table.num_rows:
        raise InvalidEvent(f"a table of {table.num_rows} rounds is of {sum(lengths)}")
    widths = np.repeat(np.array([len(one.ranks) for one in head.rounds] + [2] * len(pairs), np.int64), lengths)
    lines = {
        name: values_of(table.column(name)).astype(kind, copy=False)
        for name, kind in _LINE.items()
        if name in table.schema.names
    }
    if pairs:
        lines |= {name: values_of(table.column(name)).astype(np.int64) for name in _PAIR}
    cells = {name: _flat(table.column(name), name, widths) for name in (*_GRID, *_RATES) if name in table.schema.names}
    return _Columns(lines, cells, sum(one.n_rounds for one in head.rounds))


class _RoundsReader:
    """Cuts rounds out of a table, in the order of their heads: those of pairs that follow each other as one object."""

    def __init__(self, heads: Sequence[RoundsHead], columns: _Columns, job: str, attempt: int) -> None:
        self._heads = heads
        self._columns = columns
        self._whose: dict[str, Any] = {"job": job, "attempt": attempt}
        self._n_read = self._line = self._cell = 0

    def read(self, n: int) -> Iterator[Rounds | PairRounds]:
        """Those of the next heads."""
        heads = self._heads[self._n_read : self._n_read + n]
        if len(heads) < n:
            raise InvalidEvent("conclusions are of other kinds than they say")
        self._n_read += n
        for (width, is_pair), some in groupby(heads, key=_shape_of):
            alike = list(some)
            n_rounds = sum(head.n_rounds for head in alike)
            lines = {name: values[self._line : self._line + n_rounds] for name, values in self._columns.lines.items()}
            grids = {
                name: values[self._cell : self._cell + n_rounds * width].reshape(n_rounds, width)
                for name, values in self._columns.cells.items()
            }
            self._line, self._cell = self._line + n_rounds, self._cell + n_rounds * width
            yield from (self._pairs if is_pair else self._each)(alike, lines, grids)

    def _each(
        self, heads: Sequence[RoundsHead], lines: dict[str, npt.NDArray[Any]], grids: dict[str, npt.NDArray[Any]]
    ) -> Iterator[Rounds]:
        begin = 0
        for head in heads:
            own = slice(begin, begin + head.n_rounds)
            begin = own.stop
            yield Rounds(
                **self._whose,
                communicator=head.communicator,
                source=head.source,
                sees=Sees(head.sees),
                is_pair=head.is_pair,
                ranks=head.ranks,
                **_cut_out(head, lines, grids, own),
            )

    def _pairs(
        self, heads: Sequence[RoundsHead], lines: dict[str, npt.NDArray[Any]], grids: dict[str, npt.NDArray[Any]]
    ) -> Iterator[PairRounds]:
        """One for each source, as nearly always all have."""
        begin = 0
        for _, some in groupby(heads, key=_told_alike):
            alike = list(some)
            lengths = [head.n_rounds for head in alike]
            own = slice(begin, begin + sum(lengths))
            begin = own.stop
            names = {name: at for at, name in enumerate(dict.fromkeys(head.communicator for head in alike))}
            yield PairRounds(
                **self._whose,
                source=alike[0].source,
                sees=Sees(alike[0].sees),
                communicators=tuple(names),
                communicator=np.repeat([names[head.communicator] for head in alike], lengths),
                ranks=_world_ranks(np.repeat([head.ranks for head in alike], lengths, axis=0)),
                **_cut_out(alike[0], lines, grids, own),
            )


def _shape_of(head: RoundsHead) -> tuple[int, bool]:
    return len(head.ranks), head.is_pair and len(head.ranks) == 2


def _told_alike(head: RoundsHead) -> tuple[str, int, bool, bool, bool]:
    return head.source, head.sees, head.has_send_rate, head.has_recv_rate, head.has_algorithm


def _world_ranks(ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Who reads them makes room for as many ranks as the largest."""
    if ranks.size and not 0 <= ranks.min() <= ranks.max() < MAX_WORLD_RANKS:
        raise InvalidEvent(f"rounds of pairs are of ranks outside 0..{MAX_WORLD_RANKS - 1}")
    return ranks


def _read_digests_of_pairs(
    heads: Sequence[PairsHead], columns: _Columns, job: str, attempt: int
) -> Iterator[PairRounds]:
    lines = {name: values[columns.first_of_pairs :] for name, values in columns.lines.items()}
    n_lines = sum(head.n_lines for head in heads)
    cells = {name: values[len(values) - 2 * n_lines :].reshape(-1, 2) for name, values in columns.cells.items()}
    line = 0
    for head in heads:
        if not is_of_digests(head.source):
            raise InvalidEvent(f"digests of pairs have the source {head.source!r}, which is none of digests")
        own = slice(line, line + head.n_lines)
        line = own.stop
        yield PairRounds(
            job=job,
            attempt=attempt,
            source=head.source,
            sees=Sees(head.sees),
            communicators=head.communicators,
            communicator=lines["communicator"][own],
            ranks=_world_ranks(np.column_stack((lines["sender"][own], lines["receiver"][own]))),
            **_cut_out(head, lines, cells, own),
        )


def _cut_out(
    head: RoundsHead | PairsHead,
    lines: dict[str, npt.NDArray[Any]],
    grids: dict[str, npt.NDArray[Any]],
    own: slice,
) -> dict[str, Any]:
    """What rounds have of a table (`pacehound.model.rounds.COLUMNS`)."""
    return {
        "seq": lines["seq"][own],
        "op": lines["op"][own],
        "size_bytes": lines["size_bytes"][own],
        "arrival_ns": grids["arrival_ns"][own],
        "start_ns": grids["start_ns"][own],
        "end_ns": grids["end_ns"][own],
        "send_rate": grids["send_rate"][own] if head.has_send_rate else None,
        "recv_rate": grids["recv_rate"][own] if head.has_recv_rate else None,
        "algorithm": lines["algorithm"][own] if head.has_algorithm else None,
    }


def _flat(column: pa.Array, name: str, widths: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The values of a column of lists, whose lengths are these."""
    kind = np.float64 if name in _RATES else np.int64
    if not pa.types.is_list(column.type) or not pa.types.is_primitive(column.type.value_type) or column.null_count:
        raise MalformedMessage(f"rounds column {name!r} holds {column.type}, not as many numbers for each round")
    if not np.array_equal(np.diff(values_of(column.offsets)), widths):
        raise MalformedMessage(f"rounds column {name!r} holds other numbers of ranks than it says")
    return values_of(column.flatten()).astype(kind, copy=False)
