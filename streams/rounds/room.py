"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def with_room(column: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """The array with room for `n` items or more: where it has to grow it doubles, and what is new is zero.

    >>> with_room(np.array([7, 8, 9]), 4).tolist(), len(with_room(np.zeros(2), 1))
    ([7, 8, 9, 0, 0, 0], 2)
    """
    if n <= len(column):
        return column
    more = np.zeros((max(n, 2 * len(column)) - len(column), *column.shape[1:]), column.dtype)
    return np.concatenate((column, more))
