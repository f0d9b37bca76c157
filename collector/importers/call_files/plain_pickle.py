"""Pickles of plain values, read by a machine that has no instruction for anything else.

A pickle is a program. The instructions that import a name, make an object of a class, call something or ask for
something outside are not here: a pickle that has one is refused where it stands, before anything it names is looked
for. What is left are numbers, text, lists, tuples and tables, which is all that a Flight Recorder dump is made of.

Why not `pickle.Unpickler` with a `find_class` that refuses: its other instructions still let a file of a few bytes
ask for gigabytes (a memo entry with a number of its own choosing, a byte array of a promised length), and tuples
nested in keys end the process when they are hashed. Here every length is held against what is left of the file, keys
are text or whole numbers, and so many values and no more are made.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Any

from collector.importers.call_files.refusal import RefusedFile

MAX_INSTRUCTIONS = 10_000_000
"""So long may a pickle be: a dump of the largest rings in use (20,000 calls with their stacks) has about 3 million."""

_MAX_LONG_BYTES = 16
_MAX_LINE_BYTES = 64
_MAX_SHOWN = 60


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
    return _Machine(content).run()


class _Machine:
    """A stack of values and a memo of those that are used again."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        content, stack = self._content, self._stack
        instructions = {opcode: getattr(self, f"_{name}") for opcode, name in _INSTRUCTIONS.items()}
        for _ in range(MAX_INSTRUCTIONS):
            if self._at >= len(content):
                raise RefusedFile(f"the pickle ends early, at byte {len(content)}")
            last = self._at
            opcode = content[last]
            self._at += 1
            if opcode == _STOP:
                if len(stack) != 1 or self._marks:
                    raise RefusedFile(f"the pickle leaves {len(stack)} values at its end, at byte {last}")
                return stack[0]
            instruction = instructions.get(opcode)
            if instruction is None:
                raise RefusedFile(_beyond(content, last))
            try:
                instruction()
            except (IndexError, KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
                said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise RefusedFile(f"the pickle contradicts itself at byte {last} ({said[:_MAX_SHOWN]})") from error
        raise RefusedFile(f"the pickle has more than {MAX_INSTRUCTIONS} instructions")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._content):
            raise RefusedFile(f"the pickle promises {length} bytes at byte {self._at} and has fewer")
        taken = self._content[self._at : end]
        self._at = end
        return taken

    def _line(self) -> str:
        end = self._content.find(b"\n", self._at, self._at + _MAX_LINE_BYTES + 1)
        if end < 0:
            raise ValueError("a number without an end")
        line = self._content[self._at : end]
        self._at = end + 1
        return line.decode("ascii")

    def _unsigned(self, length: int) -> int:
        return int.from_bytes(self._take(length), "little")

    def _above_mark(self) -> list[Any]:
        mark = self._marks.pop()
        values = self._stack[mark:]
        del self._stack[mark:]
        return values

    def _top(self, kind: type) -> Any:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise ValueError("a value below its mark")
        top = self._stack[-1]
        if type(top) is not kind:
            raise ValueError(f"a {type(top).__name__} where a {kind.__name__} is due")
        return top

    # Numbers, text and the like.
    def _none(self) -> None:
        self._push(None)

    def _true(self) -> None:
        self._push(True)

    def _false(self) -> None:
        self._push(False)

    def _int_line(self) -> None:
        line = self._line()
        self._push({"00": False, "01": True}[line] if line in ("00", "01") else int(line))

    def _long_line(self) -> None:
        self._push(int(self._line().rstrip("L")))

    def _float_line(self) -> None:
        self._push(float(self._line()))

    def _int4(self) -> None:
        self._push(int.from_bytes(self._take(4), "little", signed=True))

    def _int1(self) -> None:
        self._push(self._unsigned(1))

    def _int2(self) -> None:
        self._push(self._unsigned(2))

    def _long1(self) -> None:
        self._long(self._unsigned(1))

    def _long4(self) -> None:
        self._long(self._unsigned(4))

    def _long(self, length: int) -> None:
        if length > _MAX_LONG_BYTES:
            raise ValueError(f"a number of {length} bytes")
        self._push(int.from_bytes(self._take(length), "little", signed=True))

    def _float8(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0])

    def _text1(self) -> None:
        self._text(self._unsigned(1))

    def _text4(self) -> None:
        self._text(self._unsigned(4))

    def _text8(self) -> None:
        self._text(self._unsigned(8))

    def _text(self, length: int) -> None:
        self._push(self._take(length).decode("utf-8"))

    def _text_line(self) -> None:
        end = self._content.find(b"\n", self._at)
        if end < 0:
            raise ValueError("text without an end")
        line = self._content[self._at : end]
        self._at = end + 1
        self._push(line.decode("raw-unicode-escape"))

    # Lists, tuples and tables.
    def _mark(self) -> None:
        self._marks.append(len(self._stack))

    def _new_list(self) -> None:
        self._push([])

    def _new_table(self) -> None:
        self._push({})

    def _new_tuple(self) -> None:
        self._push(())

    def _list(self) -> None:
        self._push(self._above_mark())

    def _tuple(self) -> None:
        self._push(tuple(self._above_mark()))

    def _table(self) -> None:
        made: dict[Any, Any] = {}
        _put(made, self._above_mark())
        self._push(made)

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) - (self._marks[-1] if self._marks else 0) < count:
            raise ValueError("too few values")
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _tuple1(self) -> None:
        self._push(tuple(self._last(1)))

    def _tuple2(self) -> None:
        self._push(tuple(self._last(2)))

    def _tuple3(self) -> None:
        self._push(tuple(self._last(3)))

    def _append(self) -> None:
        (value,) = self._last(1)
        self._top(list).append(value)

    def _extend(self) -> None:
        values = self._above_mark()
        self._top(list).extend(values)

    def _put_one(self) -> None:
        pair = self._last(2)
        _put(self._top(dict), pair)

    def _put_all(self) -> None:
        pairs = self._above_mark()
        _put(self._top(dict), pairs)

    # Values that are used again.
    def _remember1(self) -> None:
        self._memo[self._unsigned(1)] = self._stack[-1]

    def _remember4(self) -> None:
        self._memo[self._unsigned(4)] = self._stack[-1]

    def _remember_line(self) -> None:
        self._memo[int(self._line())] = self._stack[-1]

    def _remember_next(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _recall1(self) -> None:
        self._stack.append(self._memo[self._unsigned(1)])

    def _recall4(self) -> None:
        self._stack.append(self._memo[self._unsigned(4)])

    def _recall_line(self) -> None:
        self._stack.append(self._memo[int(self._line())])

    # The frame of the program itself.
    def _protocol(self) -> None:
        protocol = self._unsigned(1)
        if protocol > 5:
            raise ValueError(f"protocol {protocol}")

    def _frame(self) -> None:
        length = self._unsigned(8)
        if length > len(self._content) - self._at:
            raise RefusedFile(f"the pickle promises a frame of {length} bytes at byte {self._at} and has fewer")


def _put(table: dict[Any, Any], pairs: list[Any]) -> None:
    if len(pairs) % 2:
        raise ValueError("a key without a value")
    for place in range(0, len(pairs), 2):
        key = pairs[place]
        if type(key) is not str and type(key) is not int:
            raise ValueError(f"a key that is a {type(key).__name__}")
        table[key] = pairs[place + 1]


def _beyond(content: bytes, at: int) -> str:
    """What a pickle wants that no plain value needs."""
    opcode = next((one for one in pickletools.opcodes if one.code == chr(content[at])), None)
    if opcode is None:
        return f"no pickle: byte {at} is {content[at]:#04x}, which is no instruction"
    what = opcode.name
    if what in ("GLOBAL", "INST"):
        names = content[at + 1 : at + 1 + 2 * _MAX_SHOWN].split(b"\n")[:2]
        what += " " + repr(" ".join(name.decode("ascii", "replace") for name in names)[:_MAX_SHOWN])
    return f"the pickle is more than data: at byte {at} it has {what}"


_STOP = ord(".")
_INSTRUCTIONS: dict[int, str] = {
    ord(opcode): name
    for opcode, name in {
        "N": "none",
        "\x88": "true",
        "\x89": "false",
        "I": "int_line",
        "L": "long_line",
        "F": "float_line",
        "J": "int4",
        "K": "int1",
        "M": "int2",
        "\x8a": "long1",
        "\x8b": "long4",
        "G": "float8",
        "\x8c": "text1",
        "X": "text4",
        "\x8d": "text8",
        "V": "text_line",
        "(": "mark",
        "]": "new_list",
        "}": "new_table",
        ")": "new_tuple",
        "l": "list",
        "t": "tuple",
        "d": "table",
        "\x85": "tuple1",
        "\x86": "tuple2",
        "\x87": "tuple3",
        "a": "append",
        "e": "extend",
        "s": "put_one",
        "u": "put_all",
        "q": "remember1",
        "r": "remember4",
        "p": "remember_line",
        "\x94": "remember_next",
        "h": "recall1",
        "j": "recall4",
        "g": "recall_line",
        "\x80": "protocol",
        "\x95": "frame",
    }.items()
}
