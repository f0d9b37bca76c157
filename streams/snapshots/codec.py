"""Graphs of objects to bytes and back, for a closed set of classes: what is read makes nothing else.

A snapshot is a line that names the schema version, then MessagePack: a table of the classes that occur, each with the
names of its fields, the values of each class of values, and the root. Scalars stand as they are; everything else is an
array that begins with a tag. What is reached twice is written once and pointed at from then on: operators share arrays
and rounds, and some of them tell rounds apart by identity. Values (`streams.snapshots.values`) are written and read by
msgspec, all of a class at once, and the root points at them; what one of them holds is its own when it is read.

Reading gives back what was written or raises `MalformedState`: classes come from the table of this process by their
name (nothing is imported), a plain object gets exactly its declared fields, a dataclass is made by its constructor, so
that what it checks of an event is checked again, a value has the types that its class declares, and an array has a
known type and as many bytes as its shape says. Nothing that is read is larger than a small multiple of the bytes it
stands in.

Both ways make hundreds of thousands of objects, none of which is part of a cycle of ours. Python would look for cycles
among them again and again, and now and then among all that the process holds: that waits until they are done.
"""

from __future__ import annotations

import gc
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from pacehound.errors import PacehoundError
from pacehound.model import codec as events
from pacehound.model.made_of_fields import fields_of
from pacehound.model.routing import Event
from streams.snapshots.values import Remembered, ValueCodec

MAX_STATE_BYTES = 256 * 1024 * 1024
"""Of one key: more than ten times what a job of 4,096 ranks has."""

_MAGIC = b"pacehound state "
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_REF, _SHORT, _TUPLE, _LIST, _SET, _FROZEN, _DEQUE, _DICT, _COUNTER, _ARRAY, _ENUM, _OBJECT, _EVENT, _GIVEN, _VALUE = (
    range(15)
)
_STANDING = _SCALARS | {list}
"""What a snapshot consists of."""
_SHORT_LENGTH = 8
"""Tuples of so few scalars are not looked for again: a pointer is no shorter."""

_ARRAY_TYPES = tuple(
    np.dtype(name)
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")  # no objects, no text
)


class MalformedState(PacehoundError):
    """The bytes are no snapshot that this version can read; nothing was made of them."""


class UnknownState(PacehoundError):
    """An object has a class, or a field, that the schema does not name: a fault of ours, seen when it is written."""


class TooLarge(UnknownState):
    """A state is larger than one may be: it holds what waits for something, mostly, and will be smaller."""


class StateCodec:
    """Writes and reads the state of operators.

    Parameters
    ----------
    version
        Of the schema. Bytes of another one are refused.
    plain
        Classes and their fields, which are set one by one. One that has `__getstate__` and `__setstate__` is asked:
        it leaves out what can be made again, and checks what compiled loops will rely on.
    made
        Dataclasses and structs, made by their constructors, and enums.
    values
        Dataclasses of scalars, tuples and each other, which nobody tells apart by identity.
    lasting
        Those of them whose values stay as they are, and for long: each is written once (`Remembered`).
    encoded
        Events that have columns: they travel as they do on the bus.
    records
        Array types besides the plain ones, by name.
    given
        What is not part of the state and comes from whoever reads: the settings of its own process.

    Examples
    --------
    >>> codec = StateCodec(version=1, plain={Counter: ()}, made=())
    >>> codec.decode(codec.encode({("a", 1): [2.5, {3}]}))
    {('a', 1): [2.5, {3}]}
    >>> codec.decode(b"anything")
    Traceback (most recent call last):
    streams.snapshots.codec.MalformedState: no snapshot: it begins with b'anything'

    """

    def __init__(
        self,
        *,
        version: int,
        plain: Mapping[type, Iterable[str]],
        made: Iterable[type],
        values: Iterable[type] = (),
        lasting: Iterable[type] = (),
        encoded: Iterable[type] = (),
        records: Mapping[str, np.dtype[Any]] | None = None,
        given: Iterable[object] = (),
    ) -> None:
        self.version = version
        self._head = _MAGIC + f"{version}\n".encode()
        self._fields: dict[type, tuple[str, ...]] = {cls: tuple(names) for cls, names in plain.items()}
        self._plain = frozenset(self._fields)
        for cls in made:
            self._fields[cls] = tuple(name for name, _ in fields_of(cls) or ())
        self._values = ValueCodec(values, lasting)
        self._fields |= self._values.fields
        self._classes = {cls.__name__: cls for cls in self._fields}
        if len(self._classes) < len(self._fields):
            raise ValueError("two classes of the schema have one name: a snapshot names them without their modules")
        self._encoded = frozenset(encoded)
        self._array_types = {dtype.str: dtype for dtype in _ARRAY_TYPES}
        self._array_names = {dtype: name for name, dtype in self._array_types.items()}
        for name, dtype in (records or {}).items():
            # A record whose fields have moved is another one, also where it is as long as before.
            full = f"{name} {zlib.crc32(repr(dtype.descr).encode()):08x}"
            self._array_types[full], self._array_names[dtype] = dtype, full
        self._given = {type(value).__name__: value for value in given}
        self._writers = dict(_WRITERS)
        for kinds, write in (
            (self._fields, _Packer.made),
            (self._plain, _Packer.plain),
            ([cls for cls in self._fields if issubclass(cls, Enum)], _Packer.enum),
            (self._values.fields, _Packer.value),
            (self._encoded, _Packer.event),
            (map(type, self._given.values()), _Packer.given),
        ):
            self._writers |= dict.fromkeys(kinds, write)

    def encode(self, state: object, remembered: Remembered | None = None) -> bytes:
        """The bytes of a state, the same whether or not something of it is remembered from its last snapshot.

        Raises
        ------
        UnknownState
            There is something in it that the schema does not name; `TooLarge`: it has too many bytes.

        """
        try:
            with _no_looking_for_cycles():
                content = self._head + self._body(state, remembered)
        except (RecursionError, OverflowError, TypeError, UnicodeEncodeError, msgspec.ValidationError) as error:
            raise UnknownState(f"the state of a {type(state).__name__} cannot be written: {error}") from error
        if len(content) > MAX_STATE_BYTES:
            raise TooLarge(f"the state of a {type(state).__name__} has {len(content)} bytes; at most {MAX_STATE_BYTES}")
        return content

    def _body(self, state: object, remembered: Remembered | None) -> bytes:
        packer = _Packer(self)
        root = packer.pack(state)
        values = packer.values(remembered)
        return msgspec.msgpack.encode([packer.table, values, root])

    def decode(self, content: bytes) -> Any:
        """The state that the bytes hold.

        Raises
        ------
        MalformedState
            They hold none, or one of another schema version.

        """
        if len(content) > MAX_STATE_BYTES:
            raise MalformedState(f"{len(content)} bytes; a state has at most {MAX_STATE_BYTES}")
        if not content.startswith(self._head):
            begin = content[: len(_MAGIC) + 8].partition(b"\n")[0]
            if begin.startswith(_MAGIC):
                raise MalformedState(
                    f"schema version {begin[len(_MAGIC) :]!r}; this reads {self._head[len(_MAGIC) : -1]!r}"
                )
            raise MalformedState(f"no snapshot: it begins with {begin!r}")
        try:
            with _no_looking_for_cycles():
                return self._state(memoryview(content)[len(self._head) :])
        except MalformedState:
            raise
        except Exception as error:  # whatever is wrong with the bytes shows in what is made of them
            raise MalformedState(f"a damaged snapshot: {type(error).__name__}: {str(error)[:200]}") from error

    def _state(self, body: memoryview) -> Any:
        table, values, root = msgspec.msgpack.decode(body)
        return _Unpacker(self, table, values).unpack(root)


@contextmanager
def _no_looking_for_cycles() -> Iterator[None]:
    """Where two threads are here at once, the first to leave lets Python look again: that costs time, nothing else."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Packer:
    """Writes one state."""

    def __init__(self, codec: StateCodec) -> None:
        self.table: list[tuple[str, tuple[str, ...]]] = []
        self._codec = codec
        self._writers = codec._writers
        self._numbers: dict[type, int] = {}
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # an id means something only as long as its object lives
        self._values: dict[type, list[object]] = {}
        self._value_at: dict[int, list[Any]] = {}  # what points at it, by its id

    def pack(self, value: Any) -> Any:
        cls = type(value)
        if cls in _SCALARS:
            return value
        if cls is tuple and len(value) <= _SHORT_LENGTH and _SCALARS.issuperset(map(type, value)):
            return [_SHORT, *value]
        write = self._writers.get(cls)
        if write is _Packer.value:
            return write(self, value)
        seen, key = self._seen, id(value)
        at = seen.get(key)
        if at is not None:
            return [_REF, at]
        seen[key] = len(seen)
        self._kept.append(value)
        if write is not None:
            return write(self, value)
        raise UnknownState(f"a state holds a {cls.__module__}.{cls.__qualname__}, which the schema does not name")

    def items(self, values: Iterable[Any]) -> list[Any]:
        known, pack = list(values), self.pack
        kinds = set(map(type, known))
        if kinds <= _SCALARS:
            return known
        if len(kinds) == 1 and (cls := kinds.pop()) in self._codec._values.fields:
            return self.values_of(cls, known)
        return [value if type(value) in _SCALARS else pack(value) for value in known]

    def array(self, value: np.ndarray) -> list[Any]:
        name = self._codec._array_names.get(value.dtype)
        if name is None:
            raise UnknownState(f"a state holds an array of {value.dtype}, which the schema does not name")
        return [_ARRAY, name, value.shape, value.tobytes()]

    def enum(self, value: Enum) -> list[Any]:
        return [_ENUM, self._number(type(value)), value.value]

    def made(self, value: Any) -> list[Any]:
        cls = type(value)
        names = self._codec._fields[cls]
        return [_OBJECT, self._number(cls), *self.items([getattr(value, name) for name in names])]

    def plain(self, value: Any) -> list[Any]:
        cls = type(value)
        names = self._codec._fields[cls]
        state = value.__getstate__()
        if state.keys() != set(names):
            odd = ", ".join(sorted(state.keys() ^ set(names)))
            raise UnknownState(f"{cls.__name__}: the schema and the object differ in the fields {odd}")
        self._kept.append(state)  # it may have made arrays for us alone
        return [_OBJECT, self._number(cls), *self.items([state[name] for name in names])]

    def value(self, value: Any) -> list[Any]:
        (known,) = self.values_of(type(value), [value])
        return known

    def values_of(self, cls: type, values: list[Any]) -> list[list[Any]]:
        """Some values of a class, each as what points at it."""
        number, at = self._number(cls), self._value_at
        others = self._values.setdefault(cls, [])
        for value in values:
            if id(value) not in at:
                at[id(value)] = [_VALUE, number, len(others)]
                others.append(value)
        return [at[id(value)] for value in values]

    def values(self, remembered: Remembered | None) -> list[tuple[int, bytes]]:
        """Of each class that occurred, its number in the table and its values; the table gets their parts, too."""
        if remembered is not None:
            remembered.of = {cls: of for cls, of in remembered.of.items() if cls in self._values}
        of_classes = list(self._values.items())
        for cls, _ in of_classes:
            for part in self._codec._values.parts[cls]:
                self._number(part)
        encode = self._codec._values.encode
        return [(self._number(cls), encode(cls, values, remembered)) for cls, values in of_classes]

    def event(self, value: Event) -> list[Any]:
        return [_EVENT, events.encode(value)]

    def given(self, value: Any) -> list[Any]:
        return [_GIVEN, type(value).__name__]

    def _number(self, cls: type) -> int:
        number = self._numbers.get(cls)
        if number is None:
            number = self._numbers[cls] = len(self.table)
            self.table.append((cls.__name__, self._codec._fields[cls]))
        return number


def _write_dict(packer: _Packer, value: dict[Any, Any]) -> list[Any]:
    return [_DICT, packer.items(value), packer.items(value.values())]


_WRITERS: dict[type, Callable[[_Packer, Any], list[Any]]] = {
    tuple: lambda packer, value: [_TUPLE, *packer.items(value)],
    list: lambda packer, value: [_LIST, *packer.items(value)],
    # In an order that depends on what is in it alone: all who have the same state write the same bytes.
    set: lambda packer, value: [_SET, *packer.items(sorted(value))],
    frozenset: lambda packer, value: [_FROZEN, *packer.items(sorted(value))],
    deque: lambda packer, value: [_DEQUE, value.maxlen, *packer.items(value)],
    dict: _write_dict,
    Counter: lambda packer, value: [_COUNTER, *_write_dict(packer, value)[1:]],
    np.ndarray: _Packer.array,
}


_PENDING = object()


class _Unpacker:
    """Reads one state."""

    def __init__(self, codec: StateCodec, table: list[Any], values: list[Any]) -> None:
        self._codec = codec
        self._known: list[Any] = []  # in the order in which they were begun, as the writer counted them
        self._table = [_declared(codec, name, names) for name, names in table]
        written = dict(self._table)
        self._values = {number: codec._values.decode(self._table[number][0], written, of) for number, of in values}

    def unpack(self, value: Any) -> Any:
        if type(value) is list:
            return _READERS[value[0]](self, value)
        if type(value) not in _SCALARS:
            raise MalformedState(f"it holds a bare {type(value).__name__}")
        return value

    def items(self, values: list[Any]) -> list[Any]:
        kinds = set(map(type, values))
        if kinds <= _SCALARS:
            return values
        if not kinds <= _STANDING:
            raise MalformedState(f"it holds a bare {next(iter(kinds - _STANDING)).__name__}")
        return [_READERS[value[0]](self, value) if type(value) is list else value for value in values]

    def kept(self, made: Any) -> Any:
        self._known.append(made)
        return made

    def later(self, make: Callable[[], Any]) -> Any:
        """What must be whole before it can be made: nothing in it may point at it."""
        at = len(self._known)
        self._known.append(_PENDING)
        made = self._known[at] = make()
        return made

    def pointed_at(self, value: list[Any]) -> Any:
        at = value[1]
        found = self._known[at] if at >= 0 else _PENDING
        if found is _PENDING:
            raise MalformedState("it points at something that is not there yet")
        return found

    def short(self, value: list[Any]) -> tuple[Any, ...]:
        if not _SCALARS.issuperset(map(type, value)):
            raise MalformedState("a short tuple holds more than scalars")
        return tuple(value[1:])

    def filled_list(self, value: list[Any]) -> list[Any]:
        made: list[Any] = self.kept([])
        made.extend(self.items(value[1:]))
        return made

    def filled_set(self, value: list[Any]) -> set[Any]:
        made: set[Any] = self.kept(set())
        made.update(self.items(value[1:]))
        return made

    def filled_deque(self, value: list[Any]) -> deque[Any]:
        made: deque[Any] = self.kept(deque(maxlen=value[1]))
        made.extend(self.items(value[2:]))
        return made

    def filled_dict(self, value: list[Any], empty: dict[Any, Any]) -> dict[Any, Any]:
        _, keys, values = value
        made: dict[Any, Any] = self.kept(empty)
        dict.update(made, zip(self.items(keys), self.items(values), strict=True))
        return made

    def array(self, value: list[Any]) -> np.ndarray:
        _, name, shape, content = value
        dtype = self._codec._array_types[name]
        made = np.ndarray(shape, dtype, bytearray(content))  # what has too few bytes, or cannot be a shape, it refuses
        if made.nbytes != len(content):
            raise MalformedState(f"an array of {name} has the shape {shape} and {len(content)} bytes")
        self._known.append(made)
        return made

    def enum(self, value: list[Any]) -> Any:
        _, number, member = value
        return self.kept(self._table[number][0](member))

    def value(self, value: list[Any]) -> Any:
        _, number, at = value
        if at < 0:
            raise MalformedState("it points at a value that is not there")
        return self._values[number][at]

    def object(self, value: list[Any]) -> Any:
        cls, names = self._table[value[1]]
        if cls not in self._codec._plain:
            if cls in self._codec._values.fields:
                raise MalformedState(f"it holds a {cls.__name__} that is not among the values")
            return self.later(lambda: cls(**dict(zip(names, self.items(value[2:]), strict=True))))
        made = self.kept(object.__new__(cls))
        state = dict(zip(names, self.items(value[2:]), strict=True))
        if hasattr(cls, "__setstate__"):
            made.__setstate__(state)
        else:
            made.__dict__.update(state)
        return made

    def event(self, value: list[Any]) -> Event:
        (event,) = events.decode(value[1])
        if type(event) not in self._codec._encoded:
            raise MalformedState(f"it holds a {type(event).__name__} as it travels on the bus")
        self.kept(event)
        return event

    def given(self, value: list[Any]) -> Any:
        return self.kept(self._codec._given[value[1]])


_READERS: dict[int, Callable[[_Unpacker, list[Any]], Any]] = {
    _REF: _Unpacker.pointed_at,
    _SHORT: _Unpacker.short,
    _TUPLE: lambda unpacker, value: unpacker.later(lambda: tuple(unpacker.items(value[1:]))),
    _LIST: _Unpacker.filled_list,
    _SET: _Unpacker.filled_set,
    _FROZEN: lambda unpacker, value: unpacker.later(lambda: frozenset(unpacker.items(value[1:]))),
    _DEQUE: _Unpacker.filled_deque,
    _DICT: lambda unpacker, value: unpacker.filled_dict(value, {}),
    _COUNTER: lambda unpacker, value: unpacker.filled_dict(value, Counter()),
    _ARRAY: _Unpacker.array,
    _ENUM: _Unpacker.enum,
    _OBJECT: _Unpacker.object,
    _EVENT: _Unpacker.event,
    _GIVEN: _Unpacker.given,
    _VALUE: _Unpacker.value,
}


def _declared(codec: StateCodec, name: str, names: list[str]) -> tuple[type, tuple[str, ...]]:
    """A class of the schema and the fields of it that were written.

    A dataclass may have got further fields since, with defaults; a plain class has exactly the ones that it has now.
    """
    cls: Any = codec._classes.get(name)
    if cls is None:
        raise MalformedState(f"it holds a {str(name)[:60]!r}, which the schema does not name")
    declared, written = set(codec._fields[cls]), set(names)
    absent = declared - written
    if cls not in codec._plain and not issubclass(cls, Enum):
        absent = {name for name, is_required in fields_of(cls) or () if name in absent and is_required}
    if absent or written - declared:
        odd = ", ".join(sorted(absent | written - declared))
        raise MalformedState(f"it holds a {name} of other fields than here: {odd[:120]}")
    return cls, tuple(names)
