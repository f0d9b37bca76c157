"""Dataclasses and structs that are nothing but what they hold, written and read by msgspec, in a hundredth of the time.

MessagePack has them as arrays in the order of their fields: as maps, which msgspec makes of dataclasses, they would be
three times as long. So each class has a twin, a struct of the same fields that msgspec writes as an array, and all
values of a class are turned into twins, or from them, in one call. Reading checks each field's type; what the class
itself checks of its fields when it is made, is checked as well.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from pacehound.model.made_of_fields import fields_of, is_frozen

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})


class Remembered:
    """The bytes of values that nobody changes, as the last snapshot of a state had them.

    Most of what hosts have said stands in many snapshots. What the next one does not hold is forgotten with it. The
    values themselves are not kept for it: of a job of 16,384 ranks they take 50 MB without their numbers.
    """

    def __init__(self) -> None:
        self.of: dict[type, dict[int, _Written]] = {}
        """By class, and by the identity of the value, which is another one's when that is gone."""


class _Written(NamedTuple):
    value: weakref.ref[object]
    content: bytes


class ValueCodec:
    """Writes and reads all values of a class at once.

    Attributes
    ----------
    fields
        Of each class, in the order in which they are written.
    parts
        The classes that values of a class may hold, and what these may, without the class itself.
    lasting
        Classes whose values nobody changes, nor what they hold.

    Raises
    ------
    ValueError
        A class holds what is no value, or one that lasts what may change.

    Examples
    --------
    >>> from pacehound.model.events import PairProgress
    >>> codec = ValueCodec([PairProgress])
    >>> content = codec.encode(PairProgress, [PairProgress(peer=1, direction="send")])
    >>> codec.decode(PairProgress, codec.fields, content)
    [PairProgress(peer=1, direction='send', last_launched=-1, last_completed=-1)]

    """

    def __init__(self, classes: Iterable[type], lasting: Iterable[type] = ()) -> None:
        known = list(classes)
        self.lasting = frozenset(lasting)
        self.fields = {cls: _names_of(cls) for cls in known}
        self._hints = {cls: get_type_hints(cls) for cls in known}
        self._twins = _Twins(self.fields, self._hints)
        self._lists = {cls: list[cls] for cls in known}  # type: ignore[valid-type]
        for cls in known:
            self._twins.decoder(cls)
        self.parts = {cls: self._parts(cls) for cls in known}
        for cls in self.lasting:
            if changing := [part.__name__ for part in (cls, *self.parts[cls]) if self._may_change(part)]:
                raise ValueError(f"a {cls.__name__} lasts, and what it holds may change: {', '.join(changing)}")
            if not hasattr(cls, "__weakref__"):
                raise ValueError(f"a {cls.__name__} lasts, and nobody sees when it is gone: it has no weak references")
        self._left_out = {cls: _left_out(cls) for cls in known}
        self._holding = {cls: self._fields_with_defaults(cls) for cls in known}

    def encode(self, cls: type, values: Sequence[object], remembered: Remembered | None = None) -> bytes:
        """Some values of a class, and of no other; those of a lasting one that are remembered are not written again.

        Raises
        ------
        msgspec.ValidationError
            A field holds what it must not.

        """
        if remembered is None or cls not in self.lasting:
            return msgspec.msgpack.encode(self._as_twins(cls, values))
        before = remembered.of.get(cls, {})
        known = {id(value): found for value in values if (found := before.get(id(value))) and found.value() is value}
        new = [value for value in values if id(value) not in known]
        for value, twin in zip(new, self._as_twins(cls, new), strict=True):
            known[id(value)] = _Written(weakref.ref(value), msgspec.msgpack.encode(twin))
        remembered.of[cls] = known
        return msgspec.msgpack.encode([msgspec.Raw(known[id(value)].content) for value in values])

    def _as_twins(self, cls: type, values: Sequence[object]) -> list[Any]:
        twins: list[Any] = msgspec.convert(values, self._twins.all_of(cls), from_attributes=True)
        return twins

    def decode(self, cls: type, written: Mapping[type, tuple[str, ...]], content: bytes) -> list[Any]:
        """The values of a class, where `written` says which fields it and its parts had.

        A field that is not among them gets its default.

        Raises
        ------
        ValueError, KeyError
            The bytes are none of them.

        """
        is_as_here = all(written.get(one) == self.fields[one] for one in (cls, *self.parts[cls]))
        twins = self._twins if is_as_here else _Twins(written, self._hints)
        twin_values = twins.decoder(cls).decode(content)
        values: list[Any] = msgspec.convert(twin_values, self._lists[cls], from_attributes=True)
        if self._left_out[cls] or self._holding[cls]:
            for value in values:
                self._give_defaults(value)
        return values

    def _may_change(self, cls: type) -> bool:
        return not is_frozen(cls) or any(map(_holds_a_dict, self._hints[cls].values()))

    def _fields_with_defaults(self, cls: type) -> tuple[str, ...]:
        """Those that may hold a struct which leaves out its defaults."""
        return tuple(
            name
            for name, hint in self._hints[cls].items()
            if any(self._left_out[one] for part in _classes_in(hint) for one in (part, *self.parts[part]))
        )

    def _give_defaults(self, value: object) -> None:
        """What is equal to a default is that default.

        A struct leaves a default out where it has that very object. Text that was read is another one: what follows
        from a state that was read would be written longer than what follows from the state that was written.
        """
        if type(value) is tuple:
            for one in value:
                self._give_defaults(one)
            return
        for name, default in self._left_out.get(type(value), {}).items():
            if getattr(value, name) == default:
                msgspec.structs.force_setattr(value, name, default)  # type: ignore[arg-type]
        for name in self._holding.get(type(value), ()):
            self._give_defaults(getattr(value, name))

    def _parts(self, cls: type) -> tuple[type, ...]:
        found: dict[type, None] = {cls: None}
        waiting = [cls]
        while waiting:
            for hint in self._hints[waiting.pop()].values():
                new = [part for part in _classes_in(hint) if part not in found]
                found |= dict.fromkeys(new)
                waiting += new
        return tuple(found)[1:]


class _Twins:
    """A struct for each class, with the fields that are written of it."""

    def __init__(self, written: Mapping[type, tuple[str, ...]], hints: Mapping[type, Mapping[str, Any]]) -> None:
        self._written, self._hints = written, hints
        self._made: dict[type, Any] = {}
        self._decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}

    def all_of(self, cls: type) -> Any:
        """The type of a list of a class's twins."""
        return self.decoder(cls).type

    def decoder(self, cls: type) -> msgspec.msgpack.Decoder[Any]:
        """Reads such a list."""
        decoder = self._decoders.get(cls)
        if decoder is None:
            decoder = self._decoders[cls] = msgspec.msgpack.Decoder(list[self._twin_of(cls)])  # type: ignore[misc]
        return decoder

    def _twin_of(self, cls: type) -> Any:
        twin = self._made.get(cls)
        if twin is None:
            hints = self._hints[cls]
            # Each field must be there, and nothing else: as many are written as the snapshot's own table says.
            members = [(name, self._in_twins(hints[name])) for name in self._written[cls]]
            twin = self._made[cls] = msgspec.defstruct(
                cls.__name__, members, array_like=True, forbid_unknown_fields=True, gc=False
            )
        return twin

    def _in_twins(self, hint: Any) -> Any:
        """The type of a field, with the twins of classes in their place."""
        if hint in _SCALARS or get_origin(hint) is Literal:
            return hint
        parts = tuple(part if part is ... else self._in_twins(part) for part in get_args(hint))
        if (origin := get_origin(hint)) in (tuple, dict):
            return types.GenericAlias(origin, parts)
        if get_origin(hint) in (Union, types.UnionType):
            return Union[parts]  # noqa: UP007 - they are not known before
        if hint in self._hints:
            return self._twin_of(hint)
        raise ValueError(f"{hint} is no value")


def _names_of(cls: type) -> tuple[str, ...]:
    known = fields_of(cls)
    if known is None:
        raise ValueError(f"{cls} is neither a dataclass nor a struct")
    return tuple(name for name, _ in known)


def _left_out(cls: type) -> dict[str, str | float]:
    """Text and fractions that a struct leaves out, by field; other defaults are the same object wherever they occur."""
    if not issubclass(cls, msgspec.Struct) or not cls.__struct_config__.omit_defaults:
        return {}
    defaults = ((field.name, field.default) for field in msgspec.structs.fields(cls))
    return {name: default for name, default in defaults if isinstance(default, (str, float))}


def _holds_a_dict(hint: Any) -> bool:
    return get_origin(hint) is dict or any(map(_holds_a_dict, get_args(hint)))


def _classes_in(hint: Any) -> list[type]:
    if isinstance(hint, type) and fields_of(hint) is not None:
        return [hint]
    return [] if get_origin(hint) is Literal else [cls for part in get_args(hint) for cls in _classes_in(part)]
