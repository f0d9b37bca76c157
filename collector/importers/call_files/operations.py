"""What torch and NCCL call operations and element types, in our words."""

from __future__ import annotations

import re

_LETTERS = re.compile(r"[^a-z0-9]+")

# By the letters alone. Longer names first where one begins with another.
_OPS = (
    ("allreducebarrier", "barrier"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("alltoall", "all_to_all"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
    ("send", "send"),
    ("recv", "recv"),
)
_DTYPES = {
    "float": "float32", "float32": "float32", "half": "float16", "float16": "float16", "bfloat16": "bfloat16",
    "double": "float64", "float64": "float64", "long": "int64", "int64": "int64", "int": "int32", "int32": "int32",
    "short": "int16", "int16": "int16", "char": "int8", "int8": "int8", "byte": "uint8", "uint8": "uint8",
    "uint32": "uint32", "uint64": "uint64", "bool": "bool", "complexfloat": "complex64",
    "complexdouble": "complex128", "float8e4m3fn": "float8_e4m3", "float8e5m2": "float8_e5m2",
}  # fmt: skip
_NO_CALLS = ("split", "newwindow", "wait", "init", "shrink")


def operation(name: str) -> str:
    """The operation that a name stands for, `unknown` where it is none of ours.

    >>> operation("_all_gather_base"), operation("ReduceScatter"), operation("ALLGATHER_coalesced")
    ('all_gather', 'reduce_scatter', 'all_gather')
    >>> operation("all_reduce_barrier"), operation("coalesced")
    ('barrier', 'unknown')
    """
    letters = _LETTERS.sub("", name.lower())
    return next((op for prefix, op in _OPS if letters.startswith(prefix)), "unknown")


def is_call(name: str) -> bool:
    """Making a group, or waiting for a call, is no call of a communicator: not all of its members need take part."""
    return _LETTERS.sub("", name.lower()) not in _NO_CALLS


def element_type(name: str) -> str:
    """The element type, `unknown` where it is none of ours.

    >>> element_type("BFloat16"), element_type("Float"), element_type("Float8_e4m3fn"), element_type("QInt8")
    ('bfloat16', 'float32', 'float8_e4m3', 'unknown')
    """
    return _DTYPES.get(_LETTERS.sub("", name.lower()), "unknown")
