"""Pickles of plain values (numbers, text, lists, tuples and tables), which is all that a Flight Recorder dump holds.

A pickle is a program. `pickletools.genops` only splits it into instructions, and those that import a name, make an
object of a class, call something or ask for something outside are not carried out here: a pickle that has one is
refused where it stands, before anything it names is looked for.

Why not `pickle.Unpickler` with a `find_class` that refuses: its other instructions still let a file of a few bytes
ask for gigabytes (a memo entry with a number of its own choosing, a byte array of a promised length), and tuples
nested in keys end the process when they are hashed. Here nothing is longer than the file, keys are text or whole
numbers, and so many values and no more are made.
"""

from __future__ import annotations

import io
import pickletools
from typing import Any

from collector.importers.call_files.refusal import RefusedFile

MAX_INSTRUCTIONS = 10_000_000
"""So long may a pickle be: a dump of the largest rings in use (20,000 calls with their stacks) has about 3 million."""

_MAX_NUMBER_BITS = 128
_MAX_SHOWN = 60

_CARRIED_BY_INSTRUCTION = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_REMEMBERS, _RECALLS = ("BINPUT", "LONG_BINPUT", "PUT"), ("BINGET", "LONG_BINGET", "GET")


def plain_value(content: bytes) -> Any:
    r"""The value that a pickle makes.

    Parameters
    ----------
    content
        Protocols 0 to 5. What follows the pickle's end is not looked at.

    Raises
    ------
    RefusedFile
        It is cut, contradicts itself, or wants more than plain values.

    Examples
    --------
    >>> import pickle
    >>> plain_value(pickle.dumps({"entries": [(1, "a"), None, 2.5]}))
    {'entries': [(1, 'a'), None, 2.5]}
    >>> plain_value(b"cos\nexit\n(S'true'\ntR.")
    Traceback (most recent call last):
    ...
    collector.importers.call_files.refusal.RefusedFile: the pickle is more than data: at byte 0 it has GLOBAL 'os exit'
    """
    machine = _Machine(len(content))
    at: int | None = 0
    try:
        for number, (opcode, argument, at) in enumerate(pickletools.genops(io.BytesIO(content))):
            if number >= MAX_INSTRUCTIONS:
                raise RefusedFile(f"the pickle has more than {MAX_INSTRUCTIONS} instructions")
            if not machine.take(opcode.name, argument, at or 0):
                what = f" {str(argument)[:_MAX_SHOWN]!r}" if opcode.name in ("GLOBAL", "INST") else ""
                raise RefusedFile(f"the pickle is more than data: at byte {at} it has {opcode.name}{what}")
        return machine.value()
    except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise RefusedFile(f"the pickle contradicts itself at or behind byte {at} ({said[:_MAX_SHOWN]})") from error


class _Machine:
    """A stack of values, cut by marks, and a memo of those that are used again."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks below the marks
        self._memo: dict[int, Any] = {}

    def take(self, name: str, argument: Any, at: int) -> bool:
        """Carry out an instruction; `False` for one that no plain value needs."""
        stack, memo = self._stack, self._memo
        if name in _REMEMBERS:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _RECALLS:
            stack.append(memo[argument])
        elif name in _CARRIED_BY_INSTRUCTION:
            if isinstance(argument, int) and argument.bit_length() > _MAX_NUMBER_BITS:
                raise ValueError("a number of too many digits")
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            stack.append(tuple(self._last(_TUPLES[name])))
        elif name == "MARK":
            self._below.append(stack)
            self._stack = []
        elif name in ("LIST", "TUPLE", "DICT"):
            above = self._above_mark()
            self._stack.append(above if name == "LIST" else tuple(above) if name == "TUPLE" else _put({}, above))
        elif name in ("APPENDS", "SETITEMS"):
            self._add(self._above_mark(), to=list if name == "APPENDS" else dict)
        elif name in ("APPEND", "SETITEM"):
            self._add(self._last(1 if name == "APPEND" else 2), to=list if name == "APPEND" else dict)
        elif name == "FRAME":
            if argument > self._length - at:
                raise ValueError(f"it promises a frame of {argument} bytes")
        elif name == "PROTO":
            if argument > 5:
                raise ValueError(f"protocol {argument}")
        else:
            return name == "STOP"
        return True

    def value(self) -> Any:
        """What is left at the end."""
        if len(self._stack) != 1 or self._below:
            raise ValueError(f"{len(self._stack)} values are left at its end")
        return self._stack[0]

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError("too few values")
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _above_mark(self) -> list[Any]:
        above, self._stack = self._stack, self._below.pop()
        return above

    def _add(self, values: list[Any], to: type) -> None:
        top: Any = self._stack[-1]
        if type(top) is not to:
            raise ValueError(f"a {type(top).__name__} where a {to.__name__} is due")
        if isinstance(top, list):
            top.extend(values)
        elif isinstance(top, dict):
            _put(top, values)


def _put(table: dict[Any, Any], pairs: list[Any]) -> dict[Any, Any]:
    if len(pairs) % 2:
        raise ValueError("a key without a value")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if type(key) is not str and type(key) is not int:
            raise ValueError(f"a key that is a {type(key).__name__}")
        table[key] = value
    return table
