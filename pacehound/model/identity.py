"""Ids that every producer computes alike, without any coordination.

An id is a hash of identity fields alone (integers and strings), never of a float or of encoded bytes, so that
a replay on another machine or version writes the same id and every store and notifier can drop the duplicate.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as _quoted
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
    canonical = f"[{','.join(map(_json, parts))}]"
    return hashlib.blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).digest()


def _json(part: str | int | Sequence[int] | None) -> str:
    """A part as `json.dumps` writes it, which makes an encoder for each id: several times as long as all of this."""
    if isinstance(part, str):
        return _quoted(part)
    if type(part) is int:  # a truth value is a number, too, and has a name
        return repr(part)
    if isinstance(part, float):
        raise TypeError(f"a float ({part!r}) must not take part in an id: its last bits differ between machines")
    return json.dumps(list(part) if isinstance(part, (tuple, list)) else part, separators=(",", ":"))


def event_id(kind: str, *parts: str | int | Sequence[int] | None) -> str:
    """The id of an event, as 32 hexadecimal digits."""
    return digest(kind, *parts).hex()


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
    return digest("communicator", job, attempt, name, sorted(ranks), generation).hex()


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
    return _nccl_digest("nccl init", job, attempt, unique_id)


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
    return _nccl_digest(f"nccl {kind}", job, attempt, parent + packed)


def _nccl_digest(kind: str, job: str, attempt: int, rest: bytes) -> bytes:
    head = kind.encode() + b"\0" + job.encode()[:255] + b"\0" + struct.pack("<I", attempt)
    return hashlib.blake2b(head + rest, digest_size=_DIGEST_BYTES).digest()
