"""Calls as codes of two bytes, so that a long stretch of them fits into an operator's state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.uint16]

MAX_TOKENS = 4_096
_REST = 255
"""Number of what came when all others were taken."""


class CallCodes:
    """Numbers kinds of calls, and the calls of each kind, as they come: kind in the high byte, call in the low one.

    A hash of two bytes would do for telling calls apart, but not for dropping the bytes of a kind alone; and numbers
    cannot collide. The 256th size of a kind and all that follow share a number, which is right where so many
    occur: they vary. The 256th kind likewise.

    Examples
    --------
    >>> CallCodes().encode(np.array([70, 71, 90, 70]), np.array([7, 7, 9, 7])).tolist()
    [0, 1, 256, 0]
    """

    def __init__(self) -> None:
        self._tokens: Int64Array = np.zeros(0, np.int64)  # sorted
        self._codes: CodeArray = np.zeros(0, np.uint16)
        self._kinds: dict[int, int] = {}
        self._sizes: dict[int, int] = {}  # number of a kind -> calls of it that have a number

    def __len__(self) -> int:
        return len(self._tokens)

    def number_of(self, kind: int) -> int:
        """The high byte of a kind's codes; it gets one now if it has none."""
        if kind not in self._kinds:
            if len(self._kinds) >= _REST:
                return _REST
            self._kinds[kind] = len(self._kinds)
        return self._kinds[kind]

    def encode(self, tokens: Int64Array, kinds: Int64Array) -> CodeArray:
        """Codes of calls, shape `(n,)`."""
        if not len(tokens):
            return np.zeros(0, np.uint16)
        if not len(self._tokens):
            self._learn(tokens, kinds)
        place = np.minimum(self._tokens.searchsorted(tokens), len(self._tokens) - 1)
        is_unknown = self._tokens[place] != tokens
        if not is_unknown.any():
            return self._codes[place]
        self._learn(tokens[is_unknown], kinds[is_unknown])
        place = np.minimum(self._tokens.searchsorted(tokens), len(self._tokens) - 1)
        codes = self._codes[place]
        for index in np.flatnonzero(self._tokens[place] != tokens).tolist():  # the book is full
            codes[index] = self.number_of(int(kinds[index])) << 8 | _REST
        return codes

    def _learn(self, tokens: Int64Array, kinds: Int64Array) -> None:
        fresh, first = np.unique(tokens, return_index=True)
        order = np.argsort(first, kind="stable")[: MAX_TOKENS - len(self._tokens)]
        codes = []
        for kind in kinds[first[order]].tolist():
            number = self.number_of(kind)
            size = self._sizes.get(number, 0)
            self._sizes[number] = size + 1
            codes.append(number << 8 | min(size, _REST))
        tokens = np.concatenate([self._tokens, fresh[order]])
        every_code = np.concatenate([self._codes, np.array(codes, np.uint16)])
        order = np.argsort(tokens, kind="stable")
        self._tokens, self._codes = tokens[order], every_code[order]


def token(op: npt.ArrayLike, size_bytes: npt.ArrayLike, peer: npt.ArrayLike) -> Int64Array:
    """One number for each (operation, bytes, peer), shape `(n,)`; equal calls have equal tokens.

    With 0 bytes it names the kind of a call, which is what remains of it where the bytes vary.

    Examples
    --------
    >>> a, b, c = token([1, 1, 2], [1024, 1024, 1024], [-1, -1, -1])
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column, np.int64)) for column in (op, size_bytes, peer)))
    numbers: npt.NDArray[np.uint64] = np.zeros(columns[0].shape, np.uint64)
    for column in columns:
        numbers = mixed(numbers ^ column.astype(np.uint64))
    return numbers.astype(np.int64)


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the input moves every bit of the output."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return out
