"""The digests of one optimizer step on their way to becoming rounds: a value for each line, and for each cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.rounds.digest_places import Int64Array, Places
from streams.rounds.digest_rows import DigestRows
from streams.rounds.room import from_snapshot, with_room

OF_LINES = {"n_seen": np.int64, "is_closed": np.bool_, "op": np.int8, "size_bytes": np.int64, "algorithm": np.int8}
OF_CELLS = {"is_seen": np.bool_, "arrival_ns": np.int64, "start_ns": np.int64, "end_ns": np.int64}
"""Columns by name, and what they hold."""


@dataclass(slots=True)
class DigestStep:
    """One step.

    Attributes
    ----------
    n_seen, is_closed, op, size_bytes, algorithm
        Of each line: by how many ranks it has been told, whether it has been taken out, and what rounds have.
    is_seen, arrival_ns, start_ns, end_ns
        Of each cell; zero where nothing has been told.
    rates
        To send and to receive, shape `(2, n_cells)`; nothing where no row has one.
    n_begun, n_closed
        Lines of which something was told, and how many of these are closed.
    complete
        Lines that are, and have not been taken out.

    """

    n_seen: Int64Array
    is_closed: npt.NDArray[np.bool_]
    op: npt.NDArray[np.int8]
    size_bytes: Int64Array
    algorithm: npt.NDArray[np.int8]
    is_seen: npt.NDArray[np.bool_]
    arrival_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    rates: npt.NDArray[np.float64] | None = None
    n_begun: int = 0
    n_closed: int = 0
    complete: list[Int64Array] = field(default_factory=list)

    @classmethod
    def empty(cls, n_lines: int, n_cells: int) -> DigestStep:
        """Nothing is known of it."""
        of_lines: list[Any] = [np.zeros(n_lines, kind) for kind in OF_LINES.values()]
        of_cells: list[Any] = [np.zeros(n_cells, kind) for kind in OF_CELLS.values()]
        return cls(*of_lines, *of_cells)

    @property
    def is_over(self) -> bool:
        """Nothing that was told of it is open."""
        return self.n_begun == self.n_closed

    def make_room(self, n_lines: int, n_cells: int) -> None:
        """For so many lines and cells."""
        if len(self.n_seen) >= n_lines and len(self.is_seen) >= n_cells:
            return
        for names, n in ((OF_LINES, n_lines), (OF_CELLS, n_cells)):
            for name in names:
                setattr(self, name, with_room(getattr(self, name), n))
        if self.rates is not None:
            more = np.full((2, len(self.is_seen) - self.rates.shape[1]), np.nan)
            self.rates = np.concatenate((self.rates, more), axis=1)

    def put(self, rows: DigestRows, places: Places, width: Int64Array) -> None:
        """Rows for cells of which nothing was told, of lines that are not closed and have so many ranks."""
        cells, own = places.cells, places.own
        if not len(own):
            return
        self.is_seen[cells] = True
        self.arrival_ns[cells], self.start_ns[cells], self.end_ns[cells] = rows.arrival_ns, rows.start_ns, rows.end_ns
        self.n_begun += int(np.count_nonzero(self.n_seen[own] == 0))
        self.n_seen[own] += places.counts
        self.op[own] = rows.op[places.by_line][places.begins]
        largest = np.maximum.reduceat(rows.size_bytes[places.by_line], places.begins)
        self.size_bytes[own] = np.maximum(self.size_bytes[own], largest)
        complete = own[self.n_seen[own] == width[own]]
        if len(complete):
            self.complete.append(complete)
        if rows.send_rate is not None and rows.recv_rate is not None and rows.algorithm is not None:
            if self.rates is None:
                self.rates = np.full((2, len(self.is_seen)), np.nan)
            self.rates[0, cells], self.rates[1, cells] = rows.send_rate, rows.recv_rate
            self.algorithm[places.lines] = rows.algorithm

    def close(self, lines: Int64Array) -> None:
        """These lines are taken out."""
        self.is_closed[lines] = True
        self.n_closed += len(lines)

    def forget(self, lines: Int64Array, cells: Int64Array) -> None:
        """As if nothing had been told of these lines, and of the cells that they have."""
        self.n_begun -= int(np.count_nonzero(self.n_seen[lines]))
        self.n_closed -= int(np.count_nonzero(self.is_closed[lines]))
        self.complete = [some[~np.isin(some, lines)] for some in self.complete]
        for names, where in ((OF_LINES, lines), (OF_CELLS, cells)):
            for name in names:
                getattr(self, name)[where] = 0
        if self.rates is not None:
            self.rates[:, cells] = np.nan

    def rates_of(self, cells: slice | Int64Array) -> npt.NDArray[np.float64]:
        """Rates to send and to receive of some cells, the cells' shape behind the two; NaN where none is known."""
        if self.rates is not None:
            return self.rates[:, cells]
        return np.full((2, *self.is_seen[cells].shape), np.nan)

    def written(self, n_lines: int, n_cells: int) -> tuple[npt.NDArray[Any], ...]:
        """What a snapshot has of it."""
        self.make_room(n_lines, n_cells)
        of_lines = [getattr(self, name)[:n_lines] for name in OF_LINES]
        of_cells = [getattr(self, name)[:n_cells] for name in OF_CELLS]
        return (*of_lines, *of_cells, *([] if self.rates is None else [self.rates[:, :n_cells]]))

    @classmethod
    def read(cls, columns: tuple[npt.NDArray[Any], ...], width: Int64Array, n_cells: int) -> DigestStep:
        """As it was; columns of another form are refused (`ValueError`)."""
        kinds: list[Any] = [*OF_LINES.values(), *OF_CELLS.values(), np.float64][: len(columns)]
        shapes: list[tuple[int, ...]] = [(len(width),) for _ in OF_LINES]
        shapes = [*shapes, *((n_cells,) for _ in OF_CELLS), (2, n_cells)][: len(columns)]
        what = "a column of a step of digests"
        arrays: list[Any] = [from_snapshot(*one, what) for one in zip(columns, kinds, shapes, strict=True)]
        step = cls(*arrays)
        step.n_begun, step.n_closed = int(np.count_nonzero(step.n_seen)), int(np.count_nonzero(step.is_closed))
        step.complete = [np.flatnonzero((step.n_seen == width) & ~step.is_closed)]
        return step
