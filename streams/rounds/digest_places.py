"""Where digests go: a line is the collectives of a communicator or a pair of its ranks, with a cell for each rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import Sees
from streams.rounds.room import from_snapshot, with_room

Int64Array = npt.NDArray[np.int64]

COLLECTIVE = (-1, -1)
"""Stands in the place of sender and receiver."""


@dataclass(frozen=True, slots=True)
class Places:
    """The line and the cell of some rows, shape `(n_rows,)`, and by line where its rows are.

    Attributes
    ----------
    by_line, begins
        Positions of the rows ordered by their lines, and where among these those of each line begin.
    own, counts
        The lines, ascending, and how many of the rows each has.
    are_apart
        No two of them go to the same cell.

    Examples
    --------
    >>> places = Places.of(np.array([1, 0, 1]), np.array([4, 0, 5]))
    >>> places.own.tolist(), places.counts.tolist(), places.are_apart
    ([0, 1], [1, 2], True)

    """

    lines: Int64Array
    cells: Int64Array
    by_line: Int64Array
    begins: Int64Array
    own: Int64Array
    counts: Int64Array
    are_apart: bool

    @classmethod
    def of(cls, lines: Int64Array, cells: Int64Array) -> Places:
        """From the line and the cell of each row."""
        by_line = np.argsort(lines, kind="stable")
        own, begins, counts = np.unique(lines[by_line], return_index=True, return_counts=True)
        return cls(lines, cells, by_line, begins, own, counts, len(np.unique(cells)) == len(cells))

    def chosen(self, rows: Int64Array) -> Places:
        """Of some of the rows."""
        return Places.of(self.lines[rows], self.cells[rows])


@dataclass(frozen=True, slots=True)
class Digesting:
    """A communicator of which there are digests, what says so, and the line of its collectives."""

    name: str
    n_members: int
    source: str
    sees: Sees
    line: int


class DigestLines:
    """All lines of some communicators.

    Attributes
    ----------
    n_lines, n_cells
        How many there are. The arrays have room for more.
    owner, pair, first, width
        Of each line: the number of its communicator (-1: it is free), sender and receiver (or `COLLECTIVE`, shape
        `(n, 2)`), its first cell and how many it has.
    member
        Of each cell, that of the same rank in the line of its communicator's collectives.

    Examples
    --------
    >>> lines = DigestLines()
    >>> number = lines.number_of("c", 4, "c10d digests", Sees.ALL)
    >>> lines.collectives(number), lines.of_pair(number, (16, 17), (2, 3))
    ((0, 0), (1, 4))
    >>> lines.member[:6].tolist()
    [0, 1, 2, 3, 2, 3]

    """

    def __init__(self) -> None:
        self.n_lines = self.n_cells = 0
        self.owner, self.first, self.width, self.member = (np.zeros(0, np.int64) for _ in range(4))
        self.pair = np.zeros((0, 2), np.int64)
        self._n_named = 0
        self._numbers: dict[str, int] = {}
        self._known: dict[int, Digesting] = {}  # by number
        self._line_of: dict[tuple[int, int, int], int] = {}  # by number, sender and receiver
        self._free: dict[int, list[int]] = {}  # lines of communicators that are over, by their width

    def number_of(self, communicator: str, n_members: int, source: str, sees: Sees) -> int:
        """The number of a communicator, which gets one with its first digests."""
        number = self._numbers.get(communicator)
        if number is None:
            number = self._numbers[communicator] = self._n_named
            self._n_named += 1
            line = self._add(number, COLLECTIVE, n_members)
            self.member[self.cells_of(line)] = np.arange(n_members) + self.first[line]
            self._known[number] = Digesting(communicator, n_members, source, sees, line)
        return number

    def known(self, number: int) -> Digesting:
        """A communicator by its number."""
        return self._known[number]

    def numbers(self, communicators: Iterable[str]) -> Int64Array:
        """Those of communicators, as far as they have one."""
        return np.array([self._numbers[name] for name in communicators if name in self._numbers], np.int64)

    def collectives(self, number: int) -> tuple[int, int]:
        """The line of a communicator's collectives, and its first cell."""
        line = self._known[number].line
        return line, int(self.first[line])

    def of_pair(self, number: int, pair: tuple[int, int], columns: tuple[int, int]) -> tuple[int, int]:
        """The line of a sender and a receiver, and its first cell; `columns` are their places in the communicator."""
        line = self._line_of.get((number, *pair))
        if line is None:
            _, first = self.collectives(number)
            line = self._add(number, pair, 2)
            self.member[self.cells_of(line)] = np.array(columns, np.int64) + first
        return line, int(self.first[line])

    def cells_of(self, line: int) -> slice:
        """Where the cells of a line are."""
        first = int(self.first[line])
        return slice(first, first + int(self.width[line]))

    def forget(self, communicator: str) -> Int64Array:
        """A communicator is over: the lines that it had, which others may have from now on."""
        number = self._numbers.pop(communicator, None)
        if number is None:
            return np.zeros(0, np.int64)
        del self._known[number]
        mine = np.flatnonzero(self.owner[: self.n_lines] == number)
        for line in mine.tolist():
            self._free.setdefault(int(self.width[line]), []).append(line)
            sender, receiver = self.pair[line].tolist()
            del self._line_of[number, sender, receiver]
        self.owner[mine] = -1
        return mine

    def _add(self, owner: int, pair: tuple[int, int], width: int) -> int:
        if free := self._free.get(width):
            line = free.pop()
        else:
            line, first = self.n_lines, self.n_cells
            self.n_lines, self.n_cells = line + 1, first + width
            self.owner, self.first, self.width, self.pair = (
                with_room(column, self.n_lines) for column in (self.owner, self.first, self.width, self.pair)
            )
            self.member = with_room(self.member, self.n_cells)
            self.first[line], self.width[line] = first, width
        self.owner[line], self.pair[line] = owner, pair
        self._line_of[owner, pair[0], pair[1]] = line
        return line

    def __getstate__(self) -> dict[str, Any]:
        """Without the room that is kept free, nor what follows from the rest."""
        lines = slice(self.n_lines)
        return {
            "known": self._known,
            "owner": self.owner[lines],
            "width": self.width[lines],
            "pair": self.pair[lines],
            "member": self.member[: self.n_cells],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What contradicts itself is refused (`ValueError`): rows are put where these numbers say."""
        self.__init__()  # type: ignore[misc]
        shapes = {"owner": (None,), "width": (None,), "pair": (None, 2), "member": (None,)}
        self.owner, self.width, self.pair, self.member = (
            from_snapshot(state[name], np.int64, shape, f"{name} of digests") for name, shape in shapes.items()
        )
        self._known = state["known"]
        self.n_lines, self.n_cells = len(self.owner), len(self.member)
        self.first = np.cumsum(self.width) - self.width
        is_sound = len(self.width) == len(self.pair) == self.n_lines
        is_sound &= bool((self.width > 0).all()) and int(self.width.sum()) == self.n_cells
        is_sound &= bool((self.member >= 0).all() and (self.member < self.n_cells).all())
        if not is_sound:
            raise ValueError(f"digests of {self.n_lines} lines and {self.n_cells} cells contradict themselves")
        for line in range(self.n_lines):
            self._find(line)
        for number, one in self._known.items():
            if self._line_of.get((number, *COLLECTIVE)) != one.line or self.width[one.line] != one.n_members:
                raise ValueError(f"digests of communicator {one.name!r} have line {one.line}, which is not its own")
        self._numbers = {one.name: number for number, one in self._known.items()}
        self._n_named = max(self._known, default=-1) + 1

    def _find(self, line: int) -> None:
        """Whose a line is."""
        owner, width = int(self.owner[line]), int(self.width[line])
        sender, receiver = self.pair[line].tolist()
        if owner < 0:
            self._free.setdefault(width, []).append(line)
            return
        if owner not in self._known or (width != 2 and sender >= 0):
            raise ValueError(f"a line of digests is of {width} ranks and of communicator {owner}, which is not known")
        self._line_of[owner, sender, receiver] = line
