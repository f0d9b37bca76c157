"""Rounds of pairs of ranks: a line for each round between a sender and a receiver, of many communicators at once.

A pipeline of thousands of ranks has tens of thousands of such pairs: as `Rounds` of their own they would cost their
readers more than all else that is said of an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidEvent
from pacehound.model.calls import Sees
from pacehound.model.digests import is_of_digests
from pacehound.model.identity import event_id
from pacehound.model.rounds import Lines, Rounds, check_columns, columns_at, joined_columns

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRounds:
    """Rounds of pairs, all of one source, those of a pair next to each other and in order of `seq`.

    Attributes
    ----------
    communicators, communicator
        Ids, and of each line the position of its own among them, shape `(n_lines,)`.
    ranks
        Sender and receiver, world ranks, shape `(n_lines, 2)`.
    seq, op, size_bytes, algorithm, arrival_ns, start_ns, end_ns, send_rate, recv_rate
        As in `Rounds` of a pair: the first ones have shape `(n_lines,)`, those of each rank `(n_lines, 2)`.

    """

    job: str
    attempt: int
    source: str
    sees: Sees
    communicators: tuple[str, ...]
    communicator: Int64Array = field(repr=False)
    ranks: Int64Array = field(repr=False)
    seq: Int64Array = field(repr=False)
    op: npt.NDArray[np.int8] = field(repr=False)
    size_bytes: Int64Array = field(repr=False)
    arrival_ns: Int64Array = field(repr=False)
    start_ns: Int64Array = field(repr=False)
    end_ns: Int64Array = field(repr=False)
    send_rate: Float64Array | None = field(default=None, repr=False)
    recv_rate: Float64Array | None = field(default=None, repr=False)
    algorithm: npt.NDArray[np.int8] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_columns(self, 2)
        n_lines = len(self.seq)
        shapes = (("communicator", self.communicator, (n_lines,)), ("ranks", self.ranks, (n_lines, 2)))
        for name, column, shape in shapes:
            if column.shape != shape:
                raise InvalidEvent(f"rounds column {name!r} has shape {column.shape}, not {shape}")
        if n_lines and not 0 <= self.communicator.min() <= self.communicator.max() < len(self.communicators):
            raise InvalidEvent(f"rounds of pairs are of other communicators than the {len(self.communicators)} named")

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def is_digest(self) -> bool:
        """Each line is all that a pair called in an iteration (`pacehound.model.digests`)."""
        return is_of_digests(self.source)

    @property
    def times_ns(self) -> Int64Array:
        """Event time of each line, shape `(n_lines,)`: its last end, else its last arrival."""
        last_end = np.maximum(self.end_ns[:, 0], self.end_ns[:, 1])
        if last_end.min(initial=1) > 0:  # as nearly always
            return last_end
        times_ns: Int64Array = np.where(last_end > 0, last_end, self.arrival_ns.max(axis=1, initial=0))
        return times_ns

    @property
    def time_ns(self) -> int:
        """Event time of the last of them."""
        return int(self.times_ns.max(initial=0))

    def identity(self) -> str:
        """Names (job, attempt, source, and of the first and the last line the communicator, pair and `seq`)."""
        edge = [
            (self.communicators[self.communicator[at]], *self.ranks[at].tolist(), int(self.seq[at]))
            for at in ((0, -1) if len(self) else ())
        ]
        return event_id("digested pairs", self.job, self.attempt, self.source, len(self), str(edge))

    def chosen(self, lines: Lines) -> PairRounds:
        """Some of the lines."""
        return replace(
            self,
            communicator=self.communicator[lines],
            ranks=self.ranks[lines],
            **columns_at(self, lines),
        )

    @property
    def begins(self) -> Int64Array:
        """The first line of each pair of each communicator, shape `(n_pairs,)`."""
        return np.flatnonzero(self.is_first)

    @property
    def is_first(self) -> BoolArray:
        """Whether each line is the first of a pair, shape `(n_lines,)`."""
        is_first = np.ones(len(self), np.bool_)
        is_first[1:] = self.communicator[1:] != self.communicator[:-1]
        for place in (0, 1):
            is_first[1:] |= self.ranks[1:, place] != self.ranks[:-1, place]
        return is_first

    def of_rank(self, rank: int) -> PairRounds:
        """Those that a rank sends or receives in."""
        is_in: BoolArray = (self.ranks == rank).any(axis=1)
        return self.chosen(is_in)

    def by_pair(self) -> Iterator[Rounds]:
        """The same as rounds, pair by pair: for who looks at few of them, or seldom."""
        begins = self.begins.tolist()
        for begin, after in zip(begins, [*begins[1:], len(self)], strict=False):
            own = slice(begin, after)
            sender, receiver = self.ranks[begin].tolist()
            yield Rounds(
                job=self.job,
                attempt=self.attempt,
                communicator=self.communicators[self.communicator[begin]],
                source=self.source,
                sees=self.sees,
                is_pair=True,
                ranks=(sender, receiver),
                **columns_at(self, own),
            )


def joined_pairs(parts: Sequence[PairRounds]) -> list[PairRounds]:
    """All lines of some rounds of pairs, in order of communicator, pair and `seq`, whatever parts they came in.

    Those of one source that have the same columns become one table, and where there are several of these, the one whose
    source comes first is the first.

    Parameters
    ----------
    parts
        All of one attempt of one job.

    """
    alike: dict[tuple[str, int, bool, bool, bool], list[PairRounds]] = {}
    for part in parts:
        has = (part.send_rate is not None, part.recv_rate is not None, part.algorithm is not None)
        alike.setdefault((part.source, part.sees.value, *has), []).append(part)
    return [_one_table(alike[key]) for key in sorted(alike)]


def _one_table(parts: Sequence[PairRounds]) -> PairRounds:
    """All lines of parts that have the same columns, in order."""
    if len(parts) == 1 and list(parts[0].communicators) == sorted(parts[0].communicators):
        order = _order_of(parts[0])
        return parts[0] if order is None else parts[0].chosen(order)
    parts = sorted(parts, key=lambda part: part.communicators)  # most are of one: then all lines are in order
    names = sorted({part.communicators[at] for part in parts for at in _named(part)})
    place = {name: at for at, name in enumerate(names)}
    of_part = [[place.get(name, -1) for name in part.communicators] for part in parts]  # -1: it has no line there
    columns = joined_columns(parts)
    columns["ranks"] = np.concatenate([part.ranks for part in parts])
    columns["communicator"] = np.concatenate(
        [np.array(places, np.int64)[part.communicator] for places, part in zip(of_part, parts, strict=True)]
    )
    whole = replace(parts[0], communicators=tuple(names), **columns)
    order = _order_of(whole)
    return whole if order is None else whole.chosen(order)


def _named(pairs: PairRounds) -> list[int]:
    """The places of the communicators that lines are of."""
    return np.flatnonzero(np.bincount(pairs.communicator)).tolist()


def _order_of(pairs: PairRounds) -> Int64Array | None:
    """The lines by communicator, pair and `seq`; `None` where they are so already.

    Whole stretches of a pair are put into order: there are many lines in each.
    """
    if not len(pairs):
        return None
    is_first = pairs.is_first
    begins = np.flatnonzero(is_first)
    whose = (pairs.ranks[begins, 1], pairs.ranks[begins, 0], pairs.communicator[begins])
    order = np.lexsort((pairs.seq[begins], *whose))
    ends = np.append(begins[1:], len(pairs))
    is_same = np.logical_and.reduce([of[order[1:]] == of[order[:-1]] for of in whose])
    falls = (pairs.seq[1:] < pairs.seq[:-1]) & ~is_first[1:]
    overlap = is_same & (pairs.seq[ends[order[:-1]] - 1] > pairs.seq[begins[order[1:]]])
    if overlap.any() or falls.any():  # of a pair, what came late stands between others
        return np.lexsort((pairs.seq, pairs.ranks[:, 1], pairs.ranks[:, 0], pairs.communicator))
    if (order[1:] > order[:-1]).all():
        return None
    lengths = (ends - begins)[order]
    lines: Int64Array = np.repeat(begins[order] - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(pairs))
    return lines
