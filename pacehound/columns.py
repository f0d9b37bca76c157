"""Arrow columns of NumPy arrays and of words.

`pa.array` does the same and imports pandas wherever that is installed: 0.4 s and 45 MiB, of which a training host that
runs an agent has nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


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
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    column = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(packed)])
    return column if column.type == kind else column.cast(kind)


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
