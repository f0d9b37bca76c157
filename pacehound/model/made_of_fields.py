"""The fields of dataclasses and structs alike: events are the one, what they hold by the hundred is the other."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache

import msgspec


@cache
def fields_of(cls: type) -> tuple[tuple[str, bool], ...] | None:
    """Each field of a class that its constructor takes, and whether it needs it; `None`: it is neither of the two.

    Every object that is read asks, and msgspec evaluates the annotations of a struct anew whenever it is asked.

    >>> from pacehound.model.events import PairProgress
    >>> fields_of(PairProgress)[:3], fields_of(int)
    ((('peer', True), ('direction', True), ('last_launched', False)), None)
    """
    if is_dataclass(cls):
        return tuple((field.name, field.default is field.default_factory is MISSING) for field in fields(cls))
    if issubclass(cls, msgspec.Struct):
        return tuple((field.name, field.required) for field in msgspec.structs.fields(cls))
    return None


def is_frozen(cls: type) -> bool:
    """Whether nobody sets the fields of a dataclass or struct.

    >>> from pacehound.model.events import PairProgress, Progress
    >>> is_frozen(PairProgress), is_frozen(Progress), is_frozen(int)
    (True, True, False)
    """
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_config__.frozen
    return is_dataclass(cls) and bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
