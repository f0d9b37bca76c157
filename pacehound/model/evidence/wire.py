"""Evidence as JSON: each piece is an object with its `kind`, its numbers, and `words`; and how it is read again.

What is read may be of another version: a kind that is not known here, one with other fields, or a plain sentence from
before evidence had kinds. Its words are kept (`OnlyWords`), so that an upgrade may go job by job and host by host.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Any, TypeVar

import msgspec

from pacehound.model.evidence import computing, leaving, levels, life, machines, straggling, transfers, waiting
from pacehound.model.evidence.piece import Evidence, OfRanks, OnlyWords, Piece
from pacehound.model.json_decoders import decoder_of

_FAMILIES = (levels, computing, transfers, machines, waiting, leaving, straggling, life)

KINDS: tuple[type[Piece], ...] = (
    OnlyWords,
    *(
        kind
        for family in _FAMILIES
        for kind in vars(family).values()
        if isinstance(kind, type) and issubclass(kind, Piece) and kind not in (Piece, OfRanks)
    ),
)
"""All of them."""

PARTS: tuple[type[msgspec.Struct], ...] = (waiting.Call, waiting.Side)
"""What some of them are made of."""

_ANY_KIND: Any = reduce(or_, KINDS)

_Read = TypeVar("_Read")


def read_json(content: bytes | str, kind: type[_Read]) -> _Read:
    """An event out of its JSON; errors are msgspec's.

    >>> read = read_json('["so it was", {"kind": "episode", "number": 2, "lost_before_s": 3}]', tuple[Evidence, ...])
    >>> [type(piece).__name__ for piece in read]
    ['OnlyWords', 'Episode']
    """
    read: _Read = decoder_of(kind, _piece).decode(content)
    return read


@cache
def _look_at_kinds() -> None:
    """`convert` would do it in any number of threads at once."""
    decoder_of(_ANY_KIND)


def _piece(kind: type, read: Any) -> Evidence:
    if kind is not Evidence:
        raise NotImplementedError(f"no reader for {kind}")
    if isinstance(read, str):
        return OnlyWords(words=read)
    _look_at_kinds()
    try:
        piece: Evidence = msgspec.convert(read, _ANY_KIND)
    except (msgspec.ValidationError, ArithmeticError, LookupError):
        words = read.get("words") if isinstance(read, dict) else None
        if not isinstance(words, str):
            raise ValueError("a piece of evidence without words") from None
        return OnlyWords(words=words)
    return piece
