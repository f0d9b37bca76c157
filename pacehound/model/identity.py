"""Ids that every producer computes alike, without any coordination.

An id is a hash of identity fields alone (integers and strings), never of a float or of encoded bytes, so that
a replay on another machine or version writes the same id and every store and notifier can drop the duplicate.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Literal

_DIGEST_BYTES = 16  # the size of an OpenTelemetry trace id, so that a round's id can be one
_FRAME_ID_BYTES, _FRAME_SEQ_BITS = 8, 40  # collector/native/frame.h


def digest(*parts: str | int | Sequence[int] | None) -> bytes:
    """16 bytes that name `parts`, in order.

    >>> digest("finding", "job-1", 0).hex() == digest("finding", "job-1", 0).hex()
    True
    >>> digest("a", "bc") == digest("ab", "c")
    False
    """
    for part in parts:
        if isinstance(part, float):
            raise TypeError(f"a float ({part!r}) must not take part in an id: its last bits differ between machines")
    return hashlib.blake2b(_canonical(parts).encode(), digest_size=_DIGEST_BYTES).digest()


def _canonical(part: object) -> str:
    """What `json.dumps` writes without spaces, in a third of the time: that makes itself an encoder for each call."""
    if isinstance(part, str):
        return encode_basestring_ascii(part)
    if isinstance(part, (tuple, list)):
        return f"[{','.join(map(_canonical, part))}]"
    return int.__repr__(part) if type(part) is int else json.dumps(part)


def event_id(kind: str, *parts: str | int | Sequence[int] | None) -> str:
    """The id of an event, as 32 hexadecimal digits."""
    return digest(kind, *parts).hex()


def attempt_mark(attempt: int) -> int:
    """64 bits by which the communicators of an attempt differ from those of attempt 0, which has none.

    They are laid over the first half of an id (exclusive or): a rank counts attempts as its own launcher does, and
    launchers of one job may not agree (of two hosts of torchrun's, one counts a restart of which the other one only
    hears). An agent that knows better takes one mark off and lays the other on, without knowing what the id is made of.

    >>> attempt_mark(0), attempt_mark(1) == attempt_mark(2)
    (0, False)
    """
    if attempt == 0:
        return 0
    return int.from_bytes(hashlib.blake2b(b"attempt %d" % attempt, digest_size=8).digest(), "little")


def _of_attempt(communicator: bytes, attempt: int) -> bytes:
    """The id of a communicator with the mark of its attempt, or without it where that is on it."""
    first = int.from_bytes(communicator[:8], "little") ^ attempt_mark(attempt)
    return first.to_bytes(8, "little") + communicator[8:]


def communicator_id(job: str, attempt: int, name: str, ranks: Sequence[int], generation: int) -> str:
    """The id of a communicator that c10d made: all members know every one of these fields.

    Parameters
    ----------
    job, attempt
        The job, and which elastic restart of it.
    name
        The process group's name, the same on all members.
    ranks
        World ranks of the members.
    generation
        How often this process had initialised torch.distributed before: re-initialising reuses names.

    """
    return _of_attempt(digest("communicator", job, 0, name, sorted(ranks), generation), attempt).hex()


def round_trace_id(communicator: str, seq: int, source: int = -1, destination: int = -1) -> bytes:
    """The Trace ID of CCL-D section 5.1, as an OpenTelemetry trace id.

    All ranks compute the same 16 bytes for one round. Of a collective they are those that stand in a rank's probing
    frame (collector/native/frame.h) while it runs: the first 8 bytes of the communicator's id, then the operation
    counter, as little-endian numbers. The calls of a point-to-point pair are counted apart from the collectives, and in
    each direction: there the id is a hash of all that, with the two world ranks, for both sides.

    >>> round_trace_id("00112233445566778899aabbccddeeff", 5).hex()
    '00112233445566770500000000000000'
    """
    if (source, destination) != (-1, -1):
        return digest("round", communicator, seq, source, destination)
    try:
        first = bytes.fromhex(communicator)[:_FRAME_ID_BYTES]
    except ValueError:
        first = b""
    if len(first) < _FRAME_ID_BYTES:  # another producer's name, which no frame has
        first = digest("communicator", communicator)[:_FRAME_ID_BYTES]
    return first + struct.pack("<Q", seq & ((1 << _FRAME_SEQ_BITS) - 1))


def nccl_communicator_id(job: str, attempt: int, unique_id: bytes) -> bytes:
    """The id of a communicator that NCCL made from a unique id, which all of its ranks are given.

    The NCCL shim computes the same 16 bytes in C (collector/native/shim_comms.c).

    Parameters
    ----------
    job, attempt
        As in `communicator_id`.
    unique_id
        The 128 bytes of `ncclUniqueId`; the first, where there are several.

    """
    return _of_attempt(_nccl_digest("nccl init", job, unique_id), attempt)


def nccl_child_id(
    job: str, attempt: int, parent: bytes, kind: Literal["split", "shrink"], ordinal: int, what: Sequence[int]
) -> bytes:
    """The id of a communicator that was made of another one; nobody but its parent's members has to agree.

    Parameters
    ----------
    job, attempt
        As in `communicator_id`.
    parent
        The parent's id.
    kind
        How it was made.
    ordinal
        How many splits (or shrinks) of the parent came before, those with no colour too.
    what
        The colour, or the ranks that are left out, in order.

    """
    packed = struct.pack(f"<I{len(what)}i", ordinal, *(sorted(what) if kind == "shrink" else what))
    return _of_attempt(_nccl_digest(f"nccl {kind}", job, _of_attempt(parent, attempt) + packed), attempt)


def _nccl_digest(kind: str, job: str, rest: bytes) -> bytes:
    head = kind.encode() + b"\0" + job.encode()[:255] + b"\0" + bytes(4)
    return hashlib.blake2b(head + rest, digest_size=_DIGEST_BYTES).digest()
