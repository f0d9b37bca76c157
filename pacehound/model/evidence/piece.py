"""What one piece of evidence is: a kind, what it is about, its numbers, and the sentence that says them.

The sentence is made of the fields alone, when the piece is: every place that writes a piece as JSON then has its
`words` without asking for them, and none can forget to. Programs go by kinds and numbers; nobody compares sentences.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar

import msgspec

from pacehound.model.int64 import Int64

MOST_RANKS = 64
"""Ranks that a piece lists; it counts the others. Sentences show eight, pictures some dozens."""


class Evidence:
    """A piece of evidence of any kind.

    Attributes
    ----------
    words
        Its sentence.

    """

    __slots__ = ()
    words: str

    @property
    def key(self) -> Hashable:
        """Its kind and what it is about: of two pieces with one key the later one says it better."""
        raise NotImplementedError


class Piece(Evidence, msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A kind of evidence: the fields are its numbers, `ABOUT` names those that tell whom or what it is about."""

    words: str = ""

    ABOUT: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "words", self._sentence())

    @property
    def key(self) -> Hashable:
        """Its kind and what it is about."""
        return (self.__struct_config__.tag, *(getattr(self, name) for name in self.ABOUT))

    def _sentence(self) -> str:
        """What a person reads."""
        raise NotImplementedError


class OfRanks(Piece, frozen=True, kw_only=True):
    """A kind that is about ranks; of many it lists the first ones, and `n_ranks` counts them all."""

    ranks: tuple[Int64, ...]
    n_ranks: Int64 = 0

    ABOUT: ClassVar[tuple[str, ...]] = ("ranks",)

    def __post_init__(self) -> None:
        if not self.n_ranks:
            msgspec.structs.force_setattr(self, "n_ranks", len(self.ranks))
            msgspec.structs.force_setattr(self, "ranks", self.ranks[:MOST_RANKS])
        super().__post_init__()


class OnlyWords(Piece, frozen=True, kw_only=True, tag="said"):
    """A sentence of a version before, or a kind that this version does not know: only its words are left.

    Nothing here makes one but the reader of what others wrote.
    """

    ABOUT: ClassVar[tuple[str, ...]] = ("words",)

    def _sentence(self) -> str:
        return self.words


def merged(earlier: Iterable[Evidence], later: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Both in order: a later piece takes the place of an earlier one that is about the same.

    >>> one, other, third = (OnlyWords(words=words) for words in "abc")
    >>> merged([one, other], [one, third]) == (one, other, third)
    True
    """
    return tuple({piece.key: piece for piece in (*earlier, *later)}.values())


def not_about(pieces: Iterable[Evidence], others: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Of some pieces those that are about nothing that `others` are about."""
    keys = {piece.key for piece in others}
    return tuple(piece for piece in pieces if piece.key not in keys)
