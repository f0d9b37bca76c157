"""Arrays that grow, and that come back from a snapshot."""

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


def from_snapshot(
    column: npt.NDArray[Any], kind: npt.DTypeLike, shape: tuple[int | None, ...], what: str
) -> npt.NDArray[Any]:
    """The array as C takes it and as it is written to: what it lies in may be read alone.

    Parameters
    ----------
    column
        As it was read.
    kind, shape
        What it must be; `None` stands for any length.
    what
        Whose it is, for the error.

    Raises
    ------
    ValueError
        It is of another type or shape: compiled loops would read what is not there. Or a truth value is neither true
        nor false: what they would make of that is not defined.

    """
    is_fitting = len(column.shape) == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, column.shape, strict=True)
    )
    if column.dtype != kind or not is_fitting:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{what} is {column.dtype} {column.shape} in a snapshot, not {np.dtype(kind)} ({wanted})")
    if column.dtype == np.bool_ and column.view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"{what} holds {column.view(np.uint8).max()} in a snapshot, which is no truth value")
    return np.require(column, requirements=["C", "A", "W"])
