"""The rounds of many blocks as arrays, one behind the other: what an index of a stretch of time is made from.

They are those of the tables in which the rounds came (`round_table.py`), so that no block is looked at again; of what
is kept for the iteration that goes on only the rounds that it needs are left, however the blocks were cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.rounds.round_loops import in_order_of_blocks, times_of
from streams.rounds.round_table import TRANSFER, RoundTable, joined, sees

Int8Array = npt.NDArray[np.int8]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

TransferKey = str | tuple[int, int]
"""A communicator, or sender and receiver of a point-to-point pair."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundColumns:
    """Rounds of blocks; of rounds of pairs those of each pair are a block.

    Attributes
    ----------
    keys
        Whose the blocks are, each once, in the order in which they came.
    key, lengths, widths, is_pair, is_digest, sees_transfer
        Of each block, shape `(n_blocks,)`: its place in `keys`, its rounds and its ranks, and whether it is a pair, its
        rounds are digests, and starts and ends are seen.
    members
        Ranks of all blocks, shape `(sum(widths),)`.
    op, size_bytes
        Of each round, shape `(sum(lengths),)`.
    arrival_ns, start_ns, end_ns
        Of each rank in each round, shape `(sum(lengths * widths),)`.

    """

    keys: tuple[TransferKey, ...]
    key: Int64Array
    lengths: Int64Array
    widths: Int64Array
    is_pair: BoolArray
    is_digest: BoolArray
    sees_transfer: BoolArray
    members: Int64Array
    op: Int8Array
    size_bytes: Int64Array
    arrival_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.op)

    @classmethod
    def of(cls, blocks: Sequence[Rounds | PairRounds]) -> RoundColumns:
        """Those of blocks; where times are the same, rounds of blocks of one shape lie together."""
        runs = groupby(blocks, key=lambda block: isinstance(block, PairRounds))
        return cls.of_tables([RoundTable(list(run)) for _, run in runs])

    @classmethod
    def of_tables(cls, tables: Sequence[RoundTable]) -> RoundColumns:
        """The same of all blocks and rounds of pairs of some tables, one table behind the other."""
        number_of: dict[TransferKey, int] = {}
        parts = []
        for table in tables:
            parts += [_of_blocks(table, number_of)] if table.blocks else []
            parts += [_of_pairs(*pairs, number_of) for pairs in zip(table.pairs, table.begins_of_pairs, strict=True)]
        columns: dict[str, npt.NDArray[Any]] = {
            name: parts[0][name] if len(parts) == 1 else joined([part[name] for part in parts], kind)
            for name, kind in _KINDS.items()
        }
        return cls(keys=tuple(number_of), **columns)._by_shape()

    def _by_shape(self) -> RoundColumns:
        """With blocks of one shape together, in the order in which there was a first one of each."""
        shape = 2 * self.widths + self.sees_transfer
        _, first, of_block = np.unique(shape, return_index=True, return_inverse=True)
        of_block = first[of_block]
        if (of_block[1:] >= of_block[:-1]).all():
            return self
        order = np.argsort(of_block, kind="stable")
        columns: dict[str, npt.NDArray[Any]] = {name: getattr(self, name)[order] for name in _OF_BLOCK}
        for names, n_of_block in (
            (("members",), self.widths),
            (("op", "size_bytes"), self.lengths),
            (("arrival_ns", "start_ns", "end_ns"), self.lengths * self.widths),
        ):
            found = in_order_of_blocks(order, n_of_block, [getattr(self, name) for name in names])
            columns.update(zip(names, found, strict=True))
        return RoundColumns(keys=self.keys, **columns)

    @classmethod
    def together(cls, parts: Sequence[RoundColumns]) -> RoundColumns:
        """The rounds of all parts, of which there is one at least, in their order."""
        parts = [part for part in parts if len(part)] or list(parts)
        if len(parts) == 1:
            return parts[0]
        number_of: dict[TransferKey, int] = {}
        key = [
            np.array([number_of.setdefault(key, len(number_of)) for key in part.keys], np.int64)[part.key]
            for part in parts
        ]
        columns: dict[str, npt.NDArray[Any]] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _KINDS if name != "key"
        }
        return cls(keys=tuple(number_of), key=np.concatenate(key), **columns)

    def after(self, time_ns: int) -> RoundColumns:
        """Without the rounds that were over by then: all that is known of them lies no later.

        >>> RoundColumns.of([]).after(5).keys
        ()
        """
        is_left = times_of(self.lengths, self.widths, self.arrival_ns, self.end_ns) > time_ns
        if is_left.all():
            return self
        of_block = np.repeat(np.arange(len(self.lengths)), self.lengths)
        lengths = np.bincount(of_block[is_left], minlength=len(self.lengths))
        has_some = lengths > 0
        of_cells = np.repeat(is_left, np.repeat(self.widths, self.lengths))
        of_members = np.repeat(has_some, self.widths)
        chosen = {
            **dict.fromkeys(("widths", "is_pair", "is_digest", "sees_transfer"), has_some),
            **dict.fromkeys(("op", "size_bytes"), is_left),
            **dict.fromkeys(("arrival_ns", "start_ns", "end_ns"), of_cells),
            "members": of_members,
        }
        columns: dict[str, npt.NDArray[Any]] = {name: getattr(self, name)[lines] for name, lines in chosen.items()}
        key = self.key[has_some]
        named = np.unique(key)
        keys = tuple([self.keys[number] for number in named.tolist()])
        return RoundColumns(keys=keys, key=np.searchsorted(named, key), lengths=lengths[has_some], **columns)


def _of_blocks(table: RoundTable, number_of: dict[TransferKey, int]) -> dict[str, npt.NDArray[Any]]:
    """Columns of the blocks of a table; keys that have no number are given the next ones."""
    keys: Iterable[TransferKey] = (
        (block.ranks[0], block.ranks[1]) if block.is_pair else block.communicator for block in table.blocks
    )
    members = chain.from_iterable(block.ranks for block in table.blocks)
    return {
        "key": np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.int64),
        "members": np.fromiter(members, np.int64, int(table.widths.sum())),
    } | {name: getattr(table, name) for name in _KINDS if name not in ("key", "members")}


def _of_pairs(pairs: PairRounds, begins: Int64Array, number_of: dict[TransferKey, int]) -> dict[str, npt.NDArray[Any]]:
    """The same of rounds of pairs, those of each pair a block."""
    n = len(begins)
    ranks = pairs.ranks[begins]
    keys: Iterable[TransferKey] = zip(ranks[:, 0].tolist(), ranks[:, 1].tolist(), strict=True)
    columns = ("op", "size_bytes", "arrival_ns", "start_ns", "end_ns")
    return {
        "key": np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.int64),
        "lengths": np.diff(begins, append=len(pairs)),
        "widths": np.full(n, 2),
        "is_pair": np.ones(n, np.bool_),
        "is_digest": np.full(n, pairs.is_digest),
        "sees_transfer": np.full(n, sees(pairs, TRANSFER)),
        "members": ranks.reshape(-1),
    } | {name: getattr(pairs, name).reshape(-1) for name in columns}


_OF_BLOCK = ("key", "lengths", "widths", "is_pair", "is_digest", "sees_transfer")
_KINDS: dict[str, type[np.generic]] = {
    **dict.fromkeys(("key", "lengths", "widths"), np.int64),
    **dict.fromkeys(("is_pair", "is_digest", "sees_transfer"), np.bool_),
    "op": np.int8,
    **dict.fromkeys(("members", "size_bytes", "arrival_ns", "start_ns", "end_ns"), np.int64),
}
"""By name, what values a column has."""
