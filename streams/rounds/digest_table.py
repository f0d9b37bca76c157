"""Digests of iterations on their way to becoming rounds: those of all communicators of a shard, as one table.

A job of 16,384 ranks has 31,000 rounds of digests in an iteration, most of them of a pair. With a grid for each of
them, as calls have, what an iteration costs is the number of grids. Here each optimizer step has one array per column,
with a cell for each rank of each round, and what a host says goes into it at once: where, is the same in every
iteration (`Places`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streams.rounds.assembly import MAX_OPEN_CELLS
from streams.rounds.digest_places import DigestLines, Int64Array, Places
from streams.rounds.digest_rounds import Chosen, Digested, cells_of, rounds_of
from streams.rounds.digest_rows import DigestRows
from streams.rounds.digest_step import DigestStep
from streams.rounds.room import from_snapshot, with_room
from streams.rounds.round_table import joined

BoolArray = npt.NDArray[np.bool_]

LEAST_OPEN_STEPS = 64
"""However many ranks there are; of more the first is given up."""

NONE_YET = -1
"""In the place of a step."""


class Awaited(NamedTuple):
    """What is waited for on a communicator: digests of rounds that were entered before `before_ns` should have come,
    but for members that are running (shape `(n_members,)`) and have told of no later step.
    """

    before_ns: int
    is_running: BoolArray


class DigestTable:
    """The digests of some communicators, joined by optimizer step.

    A line is a communicator's collectives, or a pair of its ranks: in each step it is a round. `duplicate_rows`,
    `late_rows` and `missing_rows` count what was not used, as those of `RoundGrid`.
    """

    def __init__(self) -> None:
        self.duplicate_rows = 0
        self.late_rows = 0
        self.missing_rows = 0
        self.lines = DigestLines()
        self._over_seq, self._told_seq = np.zeros((2, 0), np.int64)  # by line, and by the cells of collectives
        self._steps: dict[int, DigestStep] = {}

    def forget(self, communicator: str) -> bool:
        """A communicator is over; whether places that were worked out before hold no more."""
        mine = self.lines.forget(communicator)
        if not len(mine):
            return False
        self._make_room()
        cells = cells_of(self.lines, mine)
        self._over_seq[mine], self._told_seq[cells] = NONE_YET, NONE_YET
        for seq, step in list(self._steps.items()):
            self._fitted(step).forget(mine, cells)
            self._drop_if_over(seq, step)
        return True

    # Rows

    def put(self, rows: DigestRows, places: Places) -> None:
        """Rows of one host, and where they go."""
        if not len(rows):
            return
        first = int(rows.seq[0])
        if places.are_apart and (rows.seq == first).all():
            self._put(first, rows, places)
            return
        for seq in np.unique(rows.seq).tolist():
            of_step = np.flatnonzero(rows.seq == seq)
            _, at = np.unique(places.cells[of_step], return_index=True)  # of two for one cell the first is taken
            self.duplicate_rows += len(of_step) - len(at)
            chosen = of_step[np.sort(at)]
            self._put(seq, rows.chosen(chosen), places.chosen(chosen))

    def _put(self, seq: int, rows: DigestRows, places: Places) -> None:
        """Rows of one step, all for cells of their own."""
        step = self._step(seq)
        members = self.lines.member[places.cells]
        self._told_seq[members] = np.maximum(self._told_seq[members], seq)
        is_late = step.is_closed[places.lines] | (self._over_seq[places.lines] >= seq)
        is_twice = step.is_seen[places.cells] & ~is_late
        if is_late.any() or is_twice.any():
            self.late_rows += int(is_late.sum())
            self.duplicate_rows += int(is_twice.sum())
            chosen = np.flatnonzero(~is_late & ~is_twice)
            rows, places = rows.chosen(chosen), places.chosen(chosen)
        step.put(rows, places, self.lines.width)
        self._drop_if_over(seq, step)

    def _step(self, seq: int) -> DigestStep:
        """A step, with room for all lines there are."""
        self._make_room()
        step = self._steps.get(seq)
        if step is not None:
            return self._fitted(step)
        step = self._steps[seq] = DigestStep.empty(len(self._over_seq), len(self._told_seq))
        if len(self._steps) > max(LEAST_OPEN_STEPS, MAX_OPEN_CELLS // max(self.lines.n_cells, 1)):
            self._give_up(min(self._steps))
        return step

    def _fitted(self, step: DigestStep) -> DigestStep:
        step.make_room(len(self._over_seq), len(self._told_seq))
        return step

    def _make_room(self) -> None:
        for name, n in (("_over_seq", self.lines.n_lines), ("_told_seq", self.lines.n_cells)):
            before = getattr(self, name)
            if len(before) < n:
                column = with_room(before, n)
                column[len(before) :] = NONE_YET
                setattr(self, name, column)

    def _give_up(self, seq: int) -> None:
        """Too many steps are open: nothing more is waited for in this one, nor told of it."""
        step = self._steps.pop(seq)
        begun = np.flatnonzero(step.n_seen)
        self.missing_rows += int((self.lines.width[begun] - step.n_seen[begun])[~step.is_closed[begun]].sum())
        self._over_seq[begun] = np.maximum(self._over_seq[begun], seq)

    def _drop_if_over(self, seq: int, step: DigestStep) -> None:
        if not step.is_over:
            return
        over = np.flatnonzero(step.is_closed)
        self._over_seq[over] = np.maximum(self._over_seq[over], seq)
        self._steps.pop(seq, None)

    # Rounds

    @property
    def has_open(self) -> bool:
        """Something was told that has not been taken."""
        return bool(self._steps)

    def take(
        self,
        job: str,
        attempt: int,
        members_of: Callable[[str], tuple[int, ...]],
        awaited: Callable[[str], Awaited],
        *,
        among: Collection[str] | None = None,
        absent: Collection[str] = (),
    ) -> list[Digested]:
        """Take out the rounds of which all members have told, or whose missing digests will not come; in order.

        Parameters
        ----------
        job, attempt, members_of
            Of whom they are, and who is in a communicator.
        awaited
            What is waited for on a communicator.
        among
            Communicators in which what is overdue is looked for, where these are not all.
        absent
            Communicators of which a member is not running: in others who is missing is waited for until he has told
            of a later step.

        """
        expected = _Expected(self.lines, self._told_seq, awaited)
        looked_at = None if among is None else self.lines.numbers(among)
        away = self.lines.numbers(absent)
        chosen: list[Chosen] = []
        self._make_room()
        for seq, step in sorted(self._steps.items()):
            overdue = expected.overdue(seq, step, self._open_lines(self._fitted(step), looked_at), away)
            self.missing_rows += int((self.lines.width[overdue] - step.n_seen[overdue]).sum())
            lines = joined([*step.complete, overdue], np.int64)
            step.complete = []
            if len(lines):
                chosen.append(Chosen(seq, step, lines))
        taken = rounds_of(self.lines, chosen, job, attempt, members_of)
        for seq, step, lines in chosen:
            step.close(lines)
            self._drop_if_over(seq, step)
        return taken

    def _open_lines(self, step: DigestStep, looked_at: Int64Array | None) -> Int64Array:
        """Of which something was told, and not all; those of some communicators, or of all."""
        of_lines = slice(self.lines.n_lines)
        n_seen = step.n_seen[of_lines]
        lines = np.flatnonzero((n_seen > 0) & (n_seen < self.lines.width[of_lines]) & ~step.is_closed[of_lines])
        return lines if looked_at is None else lines[np.isin(self.lines.owner[lines], looked_at)]

    def __getstate__(self) -> dict[str, Any]:
        """Without the room that is kept free, nor what follows from the rest."""
        n_lines, n_cells = self.lines.n_lines, self.lines.n_cells
        self._make_room()
        return {
            "duplicate_rows": self.duplicate_rows,
            "late_rows": self.late_rows,
            "missing_rows": self.missing_rows,
            "lines": self.lines,
            "over_seq": self._over_seq[:n_lines],
            "told_seq": self._told_seq[:n_cells],
            "steps": {seq: step.written(n_lines, n_cells) for seq, step in self._steps.items()},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What contradicts itself is refused (`ValueError`): rows are put where these numbers say."""
        self.__init__()  # type: ignore[misc]
        for name in ("duplicate_rows", "late_rows", "missing_rows", "lines"):
            setattr(self, name, state[name])
        n_lines, n_cells = self.lines.n_lines, self.lines.n_cells
        for name, n in (("over_seq", n_lines), ("told_seq", n_cells)):
            setattr(self, f"_{name}", from_snapshot(state[name], np.int64, (n,), f"{name} of digests"))
        width = self.lines.width
        self._steps = {seq: DigestStep.read(columns, width, n_cells) for seq, columns in state["steps"].items()}


class _Expected:
    """Who may still tell of what, asked of each communicator once and only where it matters."""

    def __init__(self, lines: DigestLines, told_seq: Int64Array, awaited: Callable[[str], Awaited]) -> None:
        self._lines, self._told_seq, self._awaited = lines, told_seq, awaited
        self._before_ns: dict[int, int] = {}
        self._is_running = np.ones(lines.n_cells, np.bool_)  # the cells of members

    def overdue(self, seq: int, step: DigestStep, lines: Int64Array, away: Int64Array) -> Int64Array:
        """Which of these lines of a step are overdue; `away` are communicators some of whose members do not run."""
        if not len(lines):
            return lines
        first, member = self._lines.first[: self._lines.n_lines], self._lines.member[: self._lines.n_cells]
        is_seen = step.is_seen[: self._lines.n_cells]
        may_come = ~is_seen & (self._told_seq[member] < seq)
        # Mostly somebody has not told yet who will: then nobody need be asked when.
        lines = lines[~np.logical_or.reduceat(may_come, first)[lines] | np.isin(self._lines.owner[lines], away)]
        if not len(lines):
            return lines
        owners = self._lines.owner[lines]
        for owner in np.unique(owners).tolist():
            self._ask(owner)
        before_ns = np.array([self._before_ns[owner] for owner in owners.tolist()], np.int64)
        arrival_ns = np.where(is_seen, np.maximum(step.arrival_ns[: len(is_seen)], 1), np.iinfo(np.int64).max)
        has_begun = np.minimum.reduceat(arrival_ns, first)[lines] < before_ns
        overdue: Int64Array = lines[
            has_begun & ~np.logical_or.reduceat(may_come & self._is_running[member], first)[lines]
        ]
        return overdue

    def _ask(self, owner: int) -> None:
        if owner not in self._before_ns:
            self._before_ns[owner], is_running = self._awaited(self._lines.known(owner).name)
            line, _ = self._lines.collectives(owner)
            self._is_running[self._lines.cells_of(line)] = is_running
