"""How many parts a protobuf message has, seen before any of them is made.

An empty part takes two bytes on the wire and a hundred in memory, and a few kilobytes of gzip hold millions of them.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_PARTS = 1 << 20
"""Messages within a message: 100 MB. A request of our agents, 2 MiB, has a twentieth of that."""

_LEAST_BYTES = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def has_too_many_parts(message: bytes, kind: Descriptor, most: int = MAX_PARTS) -> bool:
    """Whether a message of this kind has more than `most` parts, at any depth; no work where it is too short for that.

    Bytes that are no such message have the parts up to where they stop being one.

    Examples
    --------
    >>> from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    >>> [has_too_many_parts(bytes([10, 0]) * n, LogsData.DESCRIPTOR, most=8) for n in (8, 9)]
    [False, True]

    """
    if len(message) <= _LEAST_BYTES * most:
        return False
    n_parts = 0
    waiting = [(0, len(message), kind)]
    while waiting:
        at, end, part = waiting.pop()
        parts = _parts_of(part)
        while at < end:
            tag, at = _varint(message, at, end)
            wire_type = tag & 7
            if wire_type == _VARINT:
                _, at = _varint(message, at, end)
            elif wire_type == _FIXED64:
                at += 8
            elif wire_type == _FIXED32:
                at += 4
            elif wire_type == _BYTES:
                n_bytes, at = _varint(message, at, end)
                inner = parts.get(tag >> 3)
                if inner is not None:
                    n_parts += 1
                    if n_parts > most:
                        return True
                    if n_bytes >= _LEAST_BYTES:
                        waiting.append((at, min(at + n_bytes, end), inner))
                at += n_bytes
    return False


def _parts_of(kind: Descriptor) -> dict[int, Descriptor]:
    known = _PARTS.get(kind.full_name)
    if known is None:
        known = {f.number: f.message_type for f in kind.fields if f.type == FieldDescriptor.TYPE_MESSAGE}
        _PARTS[kind.full_name] = known
    return known


_PARTS: dict[str, dict[int, Descriptor]] = {}


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends."""
    value = shift = 0
    while at < end:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            break
    return value, end
