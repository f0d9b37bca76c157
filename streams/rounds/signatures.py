"""Whether ranks that meet in one round call the same thing: only what an operation requires to be equal is compared.

NCCL and gloo match calls by their order alone. Two ranks that meet with different operations, or with an all_reduce
of different sizes, hang, abort, or corrupt each other's data (CCL-D 4.2.2, H2). So do those whose NCCL has chosen
another algorithm or protocol: each rank chooses by itself, from its own settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pacehound.model.codes import ALGORITHMS, DTYPES, OPS, PROTOCOLS, REDOPS
from pacehound.model.events import CallSignature, OpenCall

Int64Array = npt.NDArray[np.int64]

# gather and scatter have variants with a size of their own on each rank, all_to_all too.
EQUAL_COUNTS = frozenset({"all_reduce", "broadcast", "reduce"})
# Most calls of these are as large on every rank, and must be; some are meant to differ, and end all the same.
USUALLY_EQUAL = frozenset({"all_gather", "reduce_scatter"})
COMPARED_COUNTS = EQUAL_COUNTS | USUALLY_EQUAL
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})

# A packed signature, from the lowest bit: operation, dtype, reduction, algorithm, protocol, root + 1, count + 1. 0 is
# "not known".
_OP_BITS, _DTYPE_BITS, _REDOP_BITS, _ALGORITHM_BITS, _PROTOCOL_BITS, _ROOT_BITS, _COUNT_BITS = 4, 5, 4, 3, 2, 18, 27
DTYPE_AT = _OP_BITS
REDOP_AT = DTYPE_AT + _DTYPE_BITS
ALGORITHM_AT = REDOP_AT + _REDOP_BITS
PROTOCOL_AT = ALGORITHM_AT + _ALGORITHM_BITS
ROOT_AT = PROTOCOL_AT + _PROTOCOL_BITS
COUNT_AT = ROOT_AT + _ROOT_BITS
_SIZE = ((1 << _DTYPE_BITS) - 1) << DTYPE_AT | ((1 << _COUNT_BITS) - 1) << COUNT_AT
N_COUNTS = (1 << _COUNT_BITS) - 1
"""Counts are kept modulo this, so that two that differ by a multiple of it look alike."""

KNOWN_SIGNATURES = 1_024
"""A job calls the same few things again and again, and each promise of each host names what its ranks are in."""

_OP_CODE, _DTYPE_CODE, _REDOP_CODE, _ALGORITHM_CODE, _PROTOCOL_CODE = (
    {name: code for code, name in enumerate(names)} for names in (OPS, DTYPES, REDOPS, ALGORITHMS, PROTOCOLS)
)


@lru_cache(KNOWN_SIGNATURES)
def packed(signature: CallSignature) -> int:
    """The number of one signature.

    >>> unpacked(packed(CallSignature("all_reduce", 8, "float32", "sum")))
    CallSignature(op='all_reduce', count=8, dtype='float32', redop='sum', root=-1, algorithm='', protocol='')
    """
    return (
        _OP_CODE.get(signature.op, 0)
        | _DTYPE_CODE.get(signature.dtype, 0) << DTYPE_AT
        | _REDOP_CODE.get(signature.redop, 0) << REDOP_AT
        | _ALGORITHM_CODE.get(signature.algorithm, 0) << ALGORITHM_AT
        | _PROTOCOL_CODE.get(signature.protocol, 0) << PROTOCOL_AT
        | (signature.root + 1) << ROOT_AT
        | (signature.count % N_COUNTS + 1 if signature.count >= 0 else 0) << COUNT_AT
    )


@lru_cache(KNOWN_SIGNATURES)
def unpacked(number: int) -> CallSignature:
    """The signature behind a number."""
    dtype = (number >> DTYPE_AT) & ((1 << _DTYPE_BITS) - 1)
    redop = (number >> REDOP_AT) & ((1 << _REDOP_BITS) - 1)
    return CallSignature(
        OPS[number & ((1 << _OP_BITS) - 1)],
        count=((number >> COUNT_AT) & ((1 << _COUNT_BITS) - 1)) - 1,
        dtype=DTYPES[dtype] if dtype else "",
        redop=REDOPS[redop] if redop else "",
        root=((number >> ROOT_AT) & ((1 << _ROOT_BITS) - 1)) - 1,
        algorithm=ALGORITHMS[(number >> ALGORITHM_AT) & ((1 << _ALGORITHM_BITS) - 1)],
        protocol=PROTOCOLS[(number >> PROTOCOL_AT) & ((1 << _PROTOCOL_BITS) - 1)],
    )


def signature_of(call: OpenCall) -> CallSignature:
    """The signature of a call.

    >>> signature_of(OpenCall(seq=0, op="all_to_all", count=77, dtype="float32", launch_ns=0)).count
    -1
    """
    return _signature(call.op, call.count, call.dtype, call.redop, call.peer, call.algorithm, call.protocol)


def compared_signature_of(call: OpenCall) -> CallSignature:
    """The same, with the size also where it is usually equal: as rows have it.

    >>> compared_signature_of(OpenCall(seq=0, op="all_gather", count=77, dtype="float32", launch_ns=0)).count
    77
    """
    return _signature(
        call.op, call.count, call.dtype, call.redop, call.peer, call.algorithm, call.protocol, COMPARED_COUNTS
    )


@lru_cache(KNOWN_SIGNATURES, typed=True)
def _signature(
    op: str,
    count: int,
    dtype: str,
    redop: str,
    peer: int,
    algorithm: str,
    protocol: str,
    counted: frozenset[str] = EQUAL_COUNTS,
) -> CallSignature:
    if op in ("send", "recv"):
        return CallSignature("send/recv")
    has_count = op in counted
    return CallSignature(
        op,
        count=count if has_count else -1,
        dtype=dtype if has_count and dtype != "unknown" else "",
        redop=redop if op in REDUCING and redop != "unknown" else "",
        root=peer if op in ROOTED else -1,
        algorithm=algorithm,
        protocol=protocol,
    )


def packed_signature_of(call: OpenCall) -> int:
    """The number of the signature of a call.

    >>> unpacked(packed_signature_of(OpenCall(seq=0, op="all_to_all", count=77, dtype="int8", launch_ns=0)))
    CallSignature(op='all_to_all', count=-1, dtype='', redop='', root=-1, algorithm='', protocol='')
    """
    return _packed(call.op, call.count, call.dtype, call.redop, call.peer, call.algorithm, call.protocol)


@lru_cache(KNOWN_SIGNATURES)
def _packed(op: str, count: int, dtype: str, redop: str, peer: int, algorithm: str, protocol: str) -> int:
    return packed(_signature(op, count, dtype, redop, peer, algorithm, protocol))


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Ranks that met in one round with different calls, by what they called; the largest side first."""

    sides: tuple[tuple[CallSignature, tuple[int, ...]], ...]

    @property
    def minority(self) -> tuple[int, ...]:
        """Everybody but the majority; nobody where no side has more than half."""
        everyone = sum(len(ranks) for _, ranks in self.sides)
        if 2 * len(self.sides[0][1]) <= everyone:
            return ()
        return tuple(sorted(rank for _, ranks in self.sides[1:] for rank in ranks))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Everybody."""
        return tuple(sorted(rank for _, ranks in self.sides for rank in ranks))


def disagreement(signatures: Mapping[int, CallSignature]) -> Disagreement | None:
    """Where ranks differ in a field that both know, `None` where all agree.

    >>> calls = {rank: CallSignature("all_reduce", count) for rank, count in enumerate((8, 8, 16))}
    >>> disagreement(calls).minority
    (2,)
    """
    sides: dict[CallSignature, list[int]] = {}
    for rank in sorted(signatures):
        mine = signatures[rank]
        twin = next((known for known in sides if agree(known, mine)), None)
        sides.setdefault(mine if twin is None else twin, []).append(rank)
    if len(sides) < 2:
        return None
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    return Disagreement(sides=tuple((signature, tuple(ranks)) for signature, ranks in ordered))


def usually_equal_op(packed: Int64Array) -> str:
    """The operation of calls that differ in nothing but a size which may differ; empty where they do in more.

    `packed` are their numbers.

    >>> some = [CallSignature("all_gather", 8, "int8"), CallSignature("all_gather", 4, "int8")]
    >>> usually_equal_op(np.array(list(map(packed, some))))
    'all_gather'
    >>> usually_equal_op(np.array(list(map(packed, [some[0], CallSignature("all_gather", 4, root=1)]))))
    ''
    """
    rest = packed & ~_SIZE
    op = OPS[int(rest[0]) & ((1 << _OP_BITS) - 1)]
    return op if op in USUALLY_EQUAL and bool((rest == rest[0]).all()) else ""


def usually_equal_op_of(signatures: Iterable[CallSignature]) -> str:
    """The same of calls that are not packed."""
    return usually_equal_op(np.array([packed(signature) for signature in signatures], np.int64))


def agree(a: CallSignature, b: CallSignature) -> bool:
    """Whether two calls may meet in one round: fields that both know are equal.

    >>> agree(CallSignature("all_reduce", 8), CallSignature("all_reduce", 8, "float32"))
    True
    """
    if "unknown" in (a.op, b.op):
        return True
    return (
        a.op == b.op
        and (a.count == b.count or min(a.count, b.count) < 0)
        and (a.dtype == b.dtype or not (a.dtype and b.dtype))
        and (a.redop == b.redop or not (a.redop and b.redop))
        and (a.root == b.root or min(a.root, b.root) < 0)
        and (a.algorithm == b.algorithm or not (a.algorithm and b.algorithm))
        and (a.protocol == b.protocol or not (a.protocol and b.protocol))
    )
