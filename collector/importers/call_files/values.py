"""Values of which nothing is known yet, taken for what they should be or refused with the place where they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from collector.importers.call_files.refusal import RefusedFile

MAX_RANK = (1 << 20) - 2
"""Ranks fit into 20 bits everywhere else."""

_MAX_WHOLE = 1 << 62
_WHOLE = re.compile(r"-?[0-9]{1,19}\Z")
_MAX_SHOWN = 40
MISSING = object()


def whole(value: object, where: str) -> int:
    """A whole number, or a string of digits (some writers put every number in quotes).

    >>> whole(7, "record_id"), whole("7", "record_id")
    (7, 7)
    """
    number: object = value
    if isinstance(value, str) and _WHOLE.match(value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise RefusedFile(f"{where} is {shown(value)}, not a whole number")
    if not -_MAX_WHOLE < number < _MAX_WHOLE:
        raise RefusedFile(f"{where} does not fit into 62 bits")
    return number


def number(value: object, where: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _MAX_WHOLE:
        raise RefusedFile(f"{where} is {shown(value)}, not a number")
    return float(value)


def truth(value: object, where: str) -> bool:
    """A yes or no."""
    if not isinstance(value, bool):
        raise RefusedFile(f"{where} is {shown(value)}, not true or false")
    return value


def text(value: object, where: str) -> str:
    """A string that can be printed."""
    if not isinstance(value, str):
        raise RefusedFile(f"{where} is {shown(value)}, not text")
    return printable(value)


def printable(said: str) -> str:
    r"""Text without what would steer a terminal or cannot be encoded: it stands in messages and on pages.

    >>> printable("DP\x1b[2J group"), printable("a\ud800b")
    ('DP?[2J group', 'a?b')
    """
    return said if said.isprintable() else "".join(one if one.isprintable() else "?" for one in said)


def items(value: object, where: str) -> Sequence[Any]:
    """A list."""
    if not isinstance(value, (list, tuple)):
        raise RefusedFile(f"{where} is {shown(value)}, not a list")
    return value


def table(value: object, where: str) -> Mapping[Any, Any]:
    """A table of names and values."""
    if not isinstance(value, dict):
        raise RefusedFile(f"{where} is {shown(value)}, not a table of names")
    return value


def entry(values: Mapping[Any, Any], name: str, where: str) -> Any:
    """What a table has under a name that must be there."""
    found = values.get(name, MISSING)
    if found is MISSING:
        raise RefusedFile(f"{where} has no {name!r}")
    return found


def ranks(value: object, where: str, max_ranks: int) -> tuple[int, ...]:
    """World ranks in the order of their places in a group: a list, or the text of one.

    >>> ranks("[0, 4, 8]", "ranks", 100), ranks([3], "ranks", 100), ranks("", "ranks", 100)
    ((0, 4, 8), (3,), ())
    """
    if isinstance(value, str):
        inside = value.strip().removeprefix("[").removesuffix("]").strip()
        parts: Sequence[Any] = inside.split(",", max_ranks) if inside else ()
        parts = [part.strip() for part in parts]
    else:
        parts = items(value, where)
    if len(parts) > max_ranks:
        raise RefusedFile(f"{where} has more than {max_ranks} ranks")
    found = tuple(whole(part, where) for part in parts)
    if any(not 0 <= rank <= MAX_RANK for rank in found):
        raise RefusedFile(f"{where} has a rank outside 0 to {MAX_RANK}")
    if len(set(found)) != len(found):
        raise RefusedFile(f"{where} has a rank twice")
    return found


def shown(value: object) -> str:
    """A value in a message: its type, and a little of what is in it; never a representation that could be endless."""
    if isinstance(value, str):
        return f"the text {value[:_MAX_SHOWN]!r}"
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= 64 else "a number of many digits"
    return f"a {type(value).__name__}"
