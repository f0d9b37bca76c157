"""Rounds of the digests that are taken out of a table: one block for each communicator, and one table of all pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import Sees
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.rounds.digest_places import DigestLines, Int64Array
from streams.rounds.digest_step import OF_LINES, DigestStep
from streams.rounds.round_table import joined

Digested = Rounds | PairRounds


class Chosen(NamedTuple):
    """Lines of a step that are taken out."""

    seq: int
    step: DigestStep
    lines: Int64Array

    def among(self, which: npt.NDArray[np.bool_]) -> Chosen:
        """Some of them."""
        return self._replace(lines=self.lines[which])


def rounds_of(
    lines: DigestLines,
    chosen: Sequence[Chosen],
    job: str,
    attempt: int,
    members_of: Callable[[str], tuple[int, ...]],
) -> list[Digested]:
    """What was told of some lines, steps in order; of each communicator `members_of` says who is in it."""
    is_pair = [lines.pair[one.lines, 0] >= 0 for one in chosen]
    collectives = [one.among(~pairs) for one, pairs in zip(chosen, is_pair, strict=True)]
    pairs = [one.among(pairs) for one, pairs in zip(chosen, is_pair, strict=True)]
    return [*_collectives_of(lines, collectives, job, attempt, members_of), *_pairs_of(lines, pairs, job, attempt)]


def _collectives_of(
    lines: DigestLines,
    chosen: Sequence[Chosen],
    job: str,
    attempt: int,
    members_of: Callable[[str], tuple[int, ...]],
) -> Iterator[Rounds]:
    """The rounds of each communicator, cut out of columns of all of them."""
    taken = _Taken(lines, [one for one in chosen if len(one.lines)])
    op, size_bytes, algorithm = map(taken.of_lines, ("op", "size_bytes", "algorithm"))
    arrival_ns, start_ns, end_ns = map(taken.of_cells, ("arrival_ns", "start_ns", "end_ns"))
    send_rate, recv_rate = taken.rates()
    for own, cells in taken.by_line():
        known = lines.known(int(taken.owner[own.start]))
        shape = own.stop - own.start, known.n_members
        yield Rounds(
            job=job,
            attempt=attempt,
            communicator=known.name,
            source=known.source,
            sees=known.sees,
            ranks=members_of(known.name),
            seq=taken.seq[own],
            op=op[own],
            size_bytes=size_bytes[own],
            arrival_ns=arrival_ns[cells].reshape(shape),
            start_ns=start_ns[cells].reshape(shape),
            end_ns=end_ns[cells].reshape(shape),
            send_rate=None if send_rate is None else send_rate[cells].reshape(shape),
            recv_rate=None if recv_rate is None else recv_rate[cells].reshape(shape),
            algorithm=None if send_rate is None else algorithm[own],
        )


def _pairs_of(lines: DigestLines, chosen: Sequence[Chosen], job: str, attempt: int) -> Iterator[PairRounds]:
    """One table of each source, as nearly always all have."""
    sources: dict[tuple[str, Sees], list[int]] = {}
    for number in np.unique(lines.owner[joined([one.lines for one in chosen], np.int64)]).tolist():
        known = lines.known(number)
        sources.setdefault((known.source, known.sees), []).append(number)
    for (source, sees), numbers in sources.items():
        mine = [one.among(np.isin(lines.owner[one.lines], numbers)) for one in chosen]
        taken = _Taken(lines, [one for one in mine if len(one.lines)], by_pair=True)
        names, communicator = np.unique(taken.owner, return_inverse=True)
        send_rate, recv_rate = taken.rates()
        yield PairRounds(
            job=job,
            attempt=attempt,
            source=source,
            sees=sees,
            communicators=tuple(lines.known(number).name for number in names.tolist()),
            communicator=communicator.reshape(-1),
            ranks=lines.pair[taken.lines],
            seq=taken.seq,
            op=taken.of_lines("op"),
            size_bytes=taken.of_lines("size_bytes"),
            arrival_ns=taken.of_cells("arrival_ns").reshape(-1, 2),
            start_ns=taken.of_cells("start_ns").reshape(-1, 2),
            end_ns=taken.of_cells("end_ns").reshape(-1, 2),
            send_rate=None if send_rate is None else send_rate.reshape(-1, 2),
            recv_rate=None if recv_rate is None else recv_rate.reshape(-1, 2),
            algorithm=None if send_rate is None else taken.of_lines("algorithm"),
        )


class _Taken:
    """What is taken out as columns: of lines in their order, or that of pairs, and of each its steps in order.

    Attributes
    ----------
    lines, owner, seq
        Of each round its line, the number of its communicator, and its step.

    """

    def __init__(self, lines: DigestLines, chosen: Sequence[Chosen], *, by_pair: bool = False) -> None:
        self._chosen = chosen
        of_all = joined([one.lines for one in chosen], np.int64)
        seq = np.repeat(np.array([one.seq for one in chosen], np.int64), [len(one.lines) for one in chosen])
        keys = (lines.pair[of_all, 1], lines.pair[of_all, 0], lines.owner[of_all]) if by_pair else (of_all,)
        self._order = np.lexsort((seq, *keys))
        self.lines, self.seq = of_all[self._order], seq[self._order]
        self.owner = lines.owner[self.lines]
        self._cells = [cells_of(lines, one.lines) for one in chosen]
        width = lines.width[of_all]
        begins = (np.cumsum(width) - width)[self._order]
        self._width = width[self._order]
        self._ends = np.cumsum(self._width)
        self._cell_order = np.repeat(begins - (self._ends - self._width), self._width) + np.arange(width.sum())

    def by_line(self) -> Iterator[tuple[slice, slice]]:
        """Of each line, where its rounds are, and where their cells."""
        if not len(self.lines):
            return
        firsts = np.flatnonzero(np.concatenate(([True], self.lines[1:] != self.lines[:-1]))).tolist()
        begins, ends = (self._ends - self._width).tolist(), self._ends.tolist()
        for first, after in zip(firsts, [*firsts[1:], len(self.lines)], strict=True):
            yield slice(first, after), slice(begins[first], ends[after - 1])

    def of_lines(self, name: str) -> npt.NDArray[Any]:
        """A column of the steps, a value for each round."""
        found = [getattr(one.step, name)[one.lines] for one in self._chosen]
        return np.concatenate(found)[self._order] if found else np.zeros(0, OF_LINES[name])

    def of_cells(self, name: str) -> Int64Array:
        """A column of the steps, a value for each rank of each round."""
        found = [getattr(one.step, name)[cells] for one, cells in zip(self._chosen, self._cells, strict=True)]
        values: Int64Array = joined(found, np.int64)[self._cell_order]
        return values

    def rates(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | tuple[None, None]:
        """Rates to send and to receive of each rank of each round, where a step has any."""
        if all(one.step.rates is None for one in self._chosen):
            return None, None
        found = [one.step.rates_of(cells) for one, cells in zip(self._chosen, self._cells, strict=True)]
        send_rate, recv_rate = np.concatenate(found, axis=1)[:, self._cell_order]
        return send_rate, recv_rate


def cells_of(lines: DigestLines, some: Int64Array) -> Int64Array:
    """The cells of some lines, one behind the other."""
    width = lines.width[some]
    ends = np.cumsum(width)
    cells: Int64Array = np.repeat(lines.first[some] - (ends - width), width) + np.arange(width.sum())
    return cells
