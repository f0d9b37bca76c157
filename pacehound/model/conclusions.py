"""Conclusions: all that stage one says of a flush to stage two, in one message.

Rounds of many communicators travel as one table, a line for each round and in it a list with a place for each rank;
everything else as JSON. Their order is that in which they were concluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidEvent, MalformedMessage
from pacehound.model.calls import Sees
from pacehound.model.columns import numbers, values_of
from pacehound.model.events import IterationSample, Markers, Progress, SignatureMismatch, Topology, Watermark
from pacehound.model.identity import event_id
from pacehound.model.rounds import Rounds
from pacehound.model.spans import SpannedTopology, in_full, in_short

Concluded = Rounds | Progress | Watermark | IterationSample | Markers | Topology | SignatureMismatch

_KINDS: dict[str, type] = {
    "rounds": Rounds,
    "progress": Progress,
    "watermarks": Watermark,
    "iterations": IterationSample,
    "markers": Markers,
    "topologies": Topology,
    "mismatches": SignatureMismatch,
}
_FIELD_OF = {kind: name for name, kind in _KINDS.items()}
_NUMBER_OF = {kind: number for number, kind in enumerate(_KINDS.values())}

_GRID = ("arrival_ns", "start_ns", "end_ns")
_RATES = ("send_rate", "recv_rate")
_LINE = {"seq": np.int64, "op": np.int8, "size_bytes": np.int64, "algorithm": np.int8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusions:
    """What follows from one message of `calls`, in order, all of one attempt of one job."""

    job: str
    attempt: int
    said: tuple[Concluded, ...]

    def __post_init__(self) -> None:
        if any((one.job, one.attempt) != (self.job, self.attempt) for one in self.said):
            raise InvalidEvent(f"conclusions about job {self.job!r}, attempt {self.attempt}, hold some of another one")

    @property
    def time_ns(self) -> int:
        """Of the last of them; a stream that has ended has no time."""
        return max((one.time_ns for one in self.said if not isinstance(one, Watermark)), default=0)

    def identity(self) -> str:
        """Names what it holds."""
        return event_id("conclusions", self.job, self.attempt, " ".join(one.identity() for one in self.said))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsHead:
    """Of which rounds the next `n_rounds` lines of the table are; a column that none of them has is not read there."""

    communicator: str
    source: str
    sees: int
    ranks: tuple[int, ...]
    n_rounds: int
    is_pair: bool = False
    has_send_rate: bool = False
    has_recv_rate: bool = False
    has_algorithm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConclusionsHead:
    """All but the table, as it travels: `order` has the number of the kind of each conclusion."""

    order: tuple[int, ...] = ()
    rounds: tuple[RoundsHead, ...] = ()
    progress: tuple[Progress, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    iterations: tuple[IterationSample, ...] = ()
    markers: tuple[Markers, ...] = ()
    topologies: tuple[Topology, ...] = ()
    mismatches: tuple[SignatureMismatch, ...] = ()
    spanned: tuple[SpannedTopology, ...] = ()


def head_of(conclusions: Conclusions) -> ConclusionsHead:
    """All but the table."""
    by_field: dict[str, list[Any]] = {name: [] for name in _KINDS}
    for one in conclusions.said:
        by_field[_FIELD_OF[type(one)]].append(_rounds_head(one) if isinstance(one, Rounds) else one)
    order = tuple(_NUMBER_OF[type(one)] for one in conclusions.said)
    by_field["topologies"], by_field["spanned"] = map(list, in_short(by_field["topologies"]))
    return ConclusionsHead(order=order, **{name: tuple(found) for name, found in by_field.items()})


def _rounds_head(rounds: Rounds) -> RoundsHead:
    return RoundsHead(
        communicator=rounds.communicator,
        source=rounds.source,
        sees=rounds.sees.value,
        ranks=rounds.ranks,
        n_rounds=len(rounds),
        is_pair=rounds.is_pair,
        has_send_rate=rounds.send_rate is not None,
        has_recv_rate=rounds.recv_rate is not None,
        has_algorithm=rounds.algorithm is not None,
    )


def rounds_table(conclusions: Conclusions) -> pa.RecordBatch | None:
    """The rounds, as they travel; `None` where there are none."""
    blocks = [one for one in conclusions.said if isinstance(one, Rounds)]
    if not blocks:
        return None
    widths = np.repeat([len(block.ranks) for block in blocks], [len(block) for block in blocks])
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
                np.full(len(b) * len(b.ranks), np.nan) if c is None else c.reshape(-1)
                for c, b in zip(of_blocks, blocks, strict=True)
            ]
            values = np.concatenate(flat)
            columns[name] = pa.ListArray.from_arrays(offsets, numbers(values, pa.from_numpy_dtype(values.dtype)))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def read_conclusions(head: ConclusionsHead, table: pa.RecordBatch | None, *, job: str, attempt: int) -> Conclusions:
    """Conclusions as they came.

    Raises
    ------
    InvalidEvent, MalformedMessage
        They contradict themselves.

    """
    waiting: dict[int, Iterator[Concluded]] = {
        _NUMBER_OF[kind]: iter(getattr(head, name)) for name, kind in _KINDS.items() if kind is not Rounds
    }
    waiting[_NUMBER_OF[Topology]] = iter(in_full(head.topologies, head.spanned, job=job, attempt=attempt))
    waiting[_NUMBER_OF[Rounds]] = _read_rounds(head.rounds, table, job, attempt)
    n_said = len(head.spanned) + sum(len(getattr(head, name)) for name in _KINDS)
    if n_said != len(head.order) or not set(head.order) <= waiting.keys():
        raise InvalidEvent(f"conclusions say that they are {len(head.order)}, and are {n_said}")
    try:
        said = tuple(next(waiting[number]) for number in head.order)
    except RuntimeError as error:  # the end of one of them
        raise InvalidEvent("conclusions are of other kinds than they say") from error
    return Conclusions(job=job, attempt=attempt, said=said)


def _read_rounds(
    heads: Sequence[RoundsHead], table: pa.RecordBatch | None, job: str, attempt: int
) -> Iterator[Concluded]:
    if table is None:
        if heads:
            raise InvalidEvent("conclusions have rounds, and no table of them")
        return
    if min(head.n_rounds for head in heads) < 0 or sum(head.n_rounds for head in heads) != table.num_rows:
        raise InvalidEvent(f"a table of {table.num_rows} rounds is of {sum(head.n_rounds for head in heads)}")
    widths = np.repeat([len(head.ranks) for head in heads], [head.n_rounds for head in heads])
    lines = {
        name: values_of(table.column(name)).astype(kind, copy=False)
        for name, kind in _LINE.items()
        if name in table.schema.names
    }
    cells = {name: _flat(table.column(name), name, widths) for name in (*_GRID, *_RATES) if name in table.schema.names}
    line = cell = 0
    for head in heads:
        shape = head.n_rounds, len(head.ranks)
        of_lines, of_cells = slice(line, line + shape[0]), slice(cell, cell + shape[0] * shape[1])
        line, cell = of_lines.stop, of_cells.stop
        yield Rounds(
            job=job,
            attempt=attempt,
            communicator=head.communicator,
            source=head.source,
            sees=Sees(head.sees),
            is_pair=head.is_pair,
            ranks=head.ranks,
            seq=lines["seq"][of_lines],
            op=lines["op"][of_lines],
            size_bytes=lines["size_bytes"][of_lines],
            arrival_ns=cells["arrival_ns"][of_cells].reshape(shape),
            start_ns=cells["start_ns"][of_cells].reshape(shape),
            end_ns=cells["end_ns"][of_cells].reshape(shape),
            send_rate=cells["send_rate"][of_cells].reshape(shape) if head.has_send_rate else None,
            recv_rate=cells["recv_rate"][of_cells].reshape(shape) if head.has_recv_rate else None,
            algorithm=lines["algorithm"][of_lines] if head.has_algorithm else None,
        )


def _flat(column: pa.Array, name: str, widths: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The values of a column of lists, whose lengths are these."""
    kind = np.float64 if name in _RATES else np.int64
    if not pa.types.is_list(column.type) or not pa.types.is_primitive(column.type.value_type) or column.null_count:
        raise MalformedMessage(f"rounds column {name!r} holds {column.type}, not as many numbers for each round")
    if not np.array_equal(np.diff(values_of(column.offsets)), widths):
        raise MalformedMessage(f"rounds column {name!r} holds other numbers of ranks than it says")
    return values_of(column.flatten()).astype(kind, copy=False)
