"""The rounds of many blocks as arrays, one behind the other: what an index of a stretch of time is made from.

Blocks are looked at once, when their rounds have come; of what is kept for the iteration that goes on only the rounds
that it needs are left, however the blocks were cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.digested_pairs import DigestedPairs
from pacehound.model.rounds import Rounds
from streams.rounds.round_loops import times_of
from streams.rounds.round_table import TRANSFER, joined, sees

Int8Array = npt.NDArray[np.int8]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

TransferKey = str | tuple[int, int]
"""A communicator, or sender and receiver of a point-to-point pair."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A block, or digests of pairs, each line of which is a block by itself; and its number or theirs."""

    rounds: Rounds | DigestedPairs
    numbers: list[int]
    length: int
    width: int
    is_pair: bool
    is_digest: bool
    sees_transfer: bool

    @classmethod
    def of(cls, rounds: Rounds | DigestedPairs, number_of: dict[TransferKey, int]) -> _Piece:
        """Keys that have no number are given the next ones."""
        keys: Iterable[TransferKey]
        if isinstance(rounds, DigestedPairs):
            keys = zip(rounds.ranks[:, 0].tolist(), rounds.ranks[:, 1].tolist(), strict=True)
            shape = (1, 2, True, True)
        else:
            keys = [(rounds.ranks[0], rounds.ranks[1]) if rounds.is_pair else rounds.communicator]
            shape = (len(rounds), len(rounds.ranks), rounds.is_pair, rounds.is_digest)
        numbers = [number_of.setdefault(key, len(number_of)) for key in keys]
        return cls(rounds, numbers, *shape, sees(rounds, TRANSFER))

    @property
    def members(self) -> Iterable[int]:
        """Ranks of its blocks, one behind the other."""
        ranks = self.rounds.ranks
        return ranks if isinstance(ranks, tuple) else ranks.reshape(-1).tolist()


@dataclass(frozen=True, slots=True, eq=False)
class RoundColumns:
    """Rounds of blocks; a line of digests of pairs is a block of one round.

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
    def of(cls, blocks: Sequence[Rounds | DigestedPairs]) -> RoundColumns:
        """Those of blocks; where times are the same, rounds of blocks of one shape lie together."""
        number_of: dict[TransferKey, int] = {}
        by_shape: dict[tuple[int, bool], list[_Piece]] = {}
        for block in blocks:
            if len(block):
                piece = _Piece.of(block, number_of)
                by_shape.setdefault((piece.width, piece.sees_transfer), []).append(piece)
        pieces = [piece for some in by_shape.values() for piece in some]
        n_blocks = [len(piece.numbers) for piece in pieces]

        def of_blocks(name: str, kind: type[np.generic]) -> npt.NDArray[Any]:
            return np.repeat(np.array([getattr(piece, name) for piece in pieces], kind), n_blocks)

        def of_rounds(name: str, kind: type[np.generic]) -> npt.NDArray[Any]:
            return joined([getattr(piece.rounds, name) for piece in pieces], kind)

        return cls(
            keys=tuple(number_of),
            key=np.fromiter(chain.from_iterable(piece.numbers for piece in pieces), np.int64),
            lengths=of_blocks("length", np.int64),
            widths=of_blocks("width", np.int64),
            is_pair=of_blocks("is_pair", np.bool_),
            is_digest=of_blocks("is_digest", np.bool_),
            sees_transfer=of_blocks("sees_transfer", np.bool_),
            members=np.fromiter(chain.from_iterable(piece.members for piece in pieces), np.int64),
            op=of_rounds("op", np.int8),
            size_bytes=of_rounds("size_bytes", np.int64),
            arrival_ns=of_rounds("arrival_ns", np.int64),
            start_ns=of_rounds("start_ns", np.int64),
            end_ns=of_rounds("end_ns", np.int64),
        )

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
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
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


_COLUMNS = (
    "lengths", "widths", "is_pair", "is_digest", "sees_transfer", "members", "op", "size_bytes", "arrival_ns",
    "start_ns", "end_ns",
)  # fmt: skip
