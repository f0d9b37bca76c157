"""Random damage to bytes: cut, flipped, repeated, grown, joined with others, and numbers that are too large."""

from __future__ import annotations

import copy
import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFFFF, 1 << 31, (1 << 32) - 1, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_GROWN_BYTES = 4_096


def _cut(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    del whole[rng.randrange(len(whole) + 1) :]


def _flip(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)


def _overwrite(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(whole))
    whole[at : at + rng.randrange(1, 32)] = rng.randbytes(rng.randrange(32))


def _repeat(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(whole))
    part = whole[at : at + rng.randrange(1, 64)]
    whole[at:at] = part * min(rng.choice((1, 2, 50)), 1 + _GROWN_BYTES // len(part))


def _number(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """Eight, four or two bytes become an odd number; text digits become many."""
    form, n_bytes = rng.choice((("<Q", 8), ("<I", 4), ("<H", 2)))
    at = rng.randrange(len(whole))
    whole[at : at + n_bytes] = struct.pack(form, rng.choice(_NUMBERS) % (1 << 8 * n_bytes))


def _digits(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    places = [found.start() for found in re.finditer(rb"[0-9]", whole)]
    at = rng.choice(places) if places else rng.randrange(len(whole))
    whole[at : at + 1] = rng.choice((b"-1", b"1e999", b"NaN", b"null", b'"x"', b"[]", b"{}", b"9" * 40))


def _join(whole: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    at, end = rng.randrange(len(whole)), rng.randrange(len(whole) + 1)
    whole[at:end] = other[rng.randrange(len(other)) :][: rng.choice((8, 64, len(other)))]


DAMAGES: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (
    _cut,
    _flip,
    _flip,
    _overwrite,
    _repeat,
    _number,
    _digits,
    _join,
)


def damaged(good: Sequence[bytes], rng: random.Random) -> bytes:
    """One of the good inputs after one to four damages.

    >>> damaged([b"a good input"], random.Random(0)) != b"a good input"
    True
    """
    whole = bytearray(rng.choice(good))
    for _ in range(rng.choice((1, 1, 2, 4))):
        if whole:
            rng.choice(DAMAGES)(whole, rng, good)
    return bytes(whole)


STRANGE = (
    None,
    True,
    -1,
    0,
    1 << 62,
    1 << 70,
    -(1 << 63),
    1.5,
    1e308,
    "",
    "x" * 300,
    "\u0000",
    [],
    {},
    [[0]],
    ["a", 1],
)


def strangely(value: Any, rng: random.Random) -> Any:
    """A value as JSON has it, of which one place has become something else, is missing, or stands there twice."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
        places: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        at, changed = rng.choice(places), copy.copy(value)
        match rng.randrange(8):
            case 0:
                del changed[at]
            case 1 if isinstance(changed, list):
                changed[at:at] = [changed[at]] * rng.choice((1, 100))
            case _:
                changed[at] = strangely(value[at], rng)
        return changed
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, -(10**9), 10**9, 1 << 40))
    return rng.choice(STRANGE)


def damaged_message(good: Sequence[bytes], rng: random.Random) -> bytes:
    """A message of which the envelope is whole, and an attribute or what is in it is not."""
    data = LogsData.FromString(rng.choice(good))
    resource = data.resource_logs[0]
    record = resource.scope_logs[0].log_records[0]
    attributes = [*resource.resource.attributes, *record.attributes]
    if rng.random() < 0.3:
        value = rng.choice(attributes).value
        if value.HasField("int_value"):
            value.int_value = rng.choice((-1, 0, 7, 1 << 31, (1 << 63) - 1, -(1 << 63)))
        else:
            value.string_value = rng.choice(("", "x", "j" * 5_000, "\u0000", "ä" * 100))
    elif record.body.HasField("string_value"):
        record.body.string_value = json.dumps(strangely(json.loads(record.body.string_value), rng))
    else:
        body = record.body.bytes_value
        try:
            record.body.bytes_value = json.dumps(strangely(json.loads(body), rng)).encode()
        except ValueError:  # columns
            record.body.bytes_value = damaged([body], rng)
    return data.SerializeToString()
