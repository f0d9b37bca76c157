"""Finds the number of an event that JSON cannot carry.

JSON has no NaN and no infinity; written as null they would be refused by whoever reads the event. So the producer
asks here first. Which fields hold floats is worked out once per type: an event without any costs nothing.
"""

from __future__ import annotations

import functools
import math
import typing
from typing import Any

from pacehound.model.made_of_fields import fields_of


def unfit_field(value: Any) -> str:
    """The path of the first field of a dataclass or struct that is NaN or infinite; empty where all are finite.

    >>> from pacehound.model.events import Cost
    >>> unfit_field(Cost(gpu_hours=float("inf"))), unfit_field(Cost())
    ('gpu_hours', '')
    """
    kind: type = type(value)
    for name in _fields_with_floats(kind):
        found = _unfit(getattr(value, name))
        if found is not None:
            return name + found
    return ""


def _unfit(value: Any) -> str | None:
    """The rest of the path, where something in `value` is not finite."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            found = _unfit(item)
            if found is not None:
                return f"[{index}]{found}"
        return None
    kind: type = type(value)
    if fields_of(kind) is not None:
        return f".{found}" if (found := unfit_field(value)) else None
    return None


@functools.cache
def _fields_with_floats(kind: type) -> tuple[str, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(name for name, _ in fields_of(kind) or () if _holds_floats(hints[name]))


def _holds_floats(hint: Any) -> bool:
    if isinstance(hint, type) and fields_of(hint) is not None:
        return bool(_fields_with_floats(hint))
    return hint is float or any(_holds_floats(part) for part in typing.get_args(hint))
