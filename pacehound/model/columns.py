"""Arrow columns of NumPy arrays and of words, and back.

`pa.array` and `to_numpy` do the same and import pandas wherever that is installed and not left out
(`pacehound/cli/without_pandas.py`): 0.35 s and 54 MB, of which whoever imports us has nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_IN_NUMPY: Mapping[pa.DataType, type[np.generic]] = {
    pa.bool_(): np.bool_,
    **{pa.from_numpy_dtype(kind): kind for kind in (np.int8, np.int16, np.int32, np.int64)},
    **{pa.from_numpy_dtype(kind): kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64)},
    **{pa.from_numpy_dtype(kind): kind for kind in (np.float16, np.float32, np.float64)},
}


_BOOL = pa.bool_().id
_IDS = {kind.id for kind in _IN_NUMPY}
"""The same, as Arrow numbers its types: a type is hashed by its name."""


def numpy_type(kind: pa.DataType) -> type[np.generic]:
    """As NumPy has a type of numbers.

    Arrow's own `to_pandas_dtype` cannot be asked: up to Arrow 25 it imports pandas, and fails where there is none.

    Raises
    ------
    ValueError
        It is no type of numbers.

    Examples
    --------
    >>> numpy_type(pa.int8()).__name__
    'int8'

    """
    if kind not in _IN_NUMPY:
        raise ValueError(f"a column of {kind} holds no numbers")
    return _IN_NUMPY[kind]


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A column of numbers, without copying where `values` lie as Arrow wants them.

    Parameters
    ----------
    values
        Shape `(n_rows,)`; must not change as long as the column is used.
    kind
        The type of the column.

    Raises
    ------
    ValueError
        `values` has another number of dimensions, or a value does not fit into `kind`.

    Examples
    --------
    >>> numbers(np.array([1, 2, 3]), pa.int8()).to_pylist()
    [1, 2, 3]

    """
    if values.ndim != 1:
        raise ValueError(f"a column has one dimension, not {values.ndim}")
    if pa.types.is_integer(kind) and values.dtype.kind in "iu":
        wanted = numpy_type(kind)
        if not fits(values, wanted):
            raise ValueError(f"values of {values.min()} to {values.max()} do not fit into a column of {kind}")
        # Arrow's own cast loads all of its functions first, 0.15 s that an agent has no use for.
        values = values.astype(wanted, copy=False)
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    column = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(packed)])
    return column if column.type == kind else column.cast(kind)


def fits(values: npt.NDArray[Any], kind: type[np.generic]) -> bool:
    """Whether integers are all numbers of this type; they are not looked at where their own type says so.

    >>> fits(np.array([1, 300]), np.int8), fits(np.array([1, 3], np.int8), np.int64)
    (False, True)
    """
    if np.can_cast(values.dtype, kind) or not len(values):
        return True
    limits = np.iinfo(np.dtype(kind))
    return bool(limits.min <= int(values.min()) and int(values.max()) <= limits.max)


def words(values: Sequence[str]) -> pa.StringArray:
    """A column of strings.

    Examples
    --------
    >>> words(["ring", "", "bäume"]).to_pylist()
    ['ring', '', 'bäume']

    """
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def places_of(values: Sequence[str]) -> npt.NDArray[np.int32]:
    """Which of the different ones each string is, in the order in which they come first (`words_at` reads it).

    Examples
    --------
    >>> places_of(["b", "a", "b"]).tolist()
    [0, 1, 0]

    """
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], np.int32)


def words_at(places: npt.NDArray[np.int32], known: Iterable[str]) -> pa.DictionaryArray:
    """A column of strings by their places among the different ones of `known`.

    Examples
    --------
    >>> words_at(np.array([0, 1, 0], np.int32), ["b", "a"]).to_pylist()
    ['b', 'a', 'b']

    """
    return pa.DictionaryArray.from_arrays(numbers(places, pa.int32()), words(list(dict.fromkeys(known))))


def values_of(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column without nulls, read-only, shape `(n_rows,)`, without copying.

    Raises
    ------
    ValueError
        The column holds no numbers (a foreign producer may send anything), or a null.

    Examples
    --------
    >>> values_of(pa.array([1, 2, 3], pa.int8()))
    array([1, 2, 3], dtype=int8)

    """
    kind = column.type.id
    if kind not in _IDS:
        numpy_type(column.type)  # says so
    if column.null_count:
        raise ValueError(f"{column.null_count} of {len(column)} values are null")
    if kind == _BOOL:
        end = column.offset + len(column)
        buffer = column.buffers()[1] if len(column) else b""  # of no rows there may be none
        bits = np.unpackbits(np.frombuffer(buffer, np.uint8), count=end if len(column) else 0, bitorder="little")
        values: npt.NDArray[Any] = bits[column.offset :].astype(np.bool_)
    else:
        values = np.from_dlpack(column)  # a fifth of the time that it takes to put it together of its buffers
    values.flags.writeable = False
    return values
