"""Which ranks play the same part in a job: the same stage, and communicators of the same sizes.

Stages are told by who sends to whom: two ranks of one pipeline are never peers, and a communicator that holds two of
them (the world, a model's replica, tied embeddings) tells nothing. What the other communicators tie together is one
stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams.rounds.round_columns import TransferKey

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that ranks play; all numbers are places in the list of ranks."""

    ranks: tuple[int, ...]
    pipeline: Int64Array  # of each rank: those that pass on data to each other have the same number
    part: Int64Array  # of each rank
    communicators: tuple[Int64Array, ...]  # those that lie within one stage, the places of their members

    def of_part(self, number: int) -> Int64Array:
        """The places of the ranks that play it."""
        return np.flatnonzero(self.part == number)


def parts_of(ranks: Iterable[int], members: Mapping[TransferKey, tuple[int, ...]]) -> Parts:
    """Tell them by the communicators and pairs that were used.

    >>> pipelines = {(0, 2): (0, 2), (1, 3): (1, 3)}
    >>> parts = parts_of(range(4), {**pipelines, "dp0": (0, 1), "dp1": (2, 3), "world": (0, 1, 2, 3)})
    >>> parts.part.tolist(), [group.tolist() for group in parts.communicators]
    ([0, 0, 1, 1], [[0, 1], [2, 3]])
    """
    listed = tuple(ranks)
    place = {rank: number for number, rank in enumerate(listed)}
    pipelines, groups = _Tied(len(listed)), []
    for key, of in members.items():
        places = [place[rank] for rank in of if rank in place]
        if isinstance(key, tuple):
            pipelines.tie(places)
        elif len(places) > 1:
            groups.append((key, places))
    pipeline = pipelines.numbers()
    stages, sizes = _Tied(len(listed)), [[0] * 0 for _ in listed]
    within = []
    for _, places in sorted(groups):
        for at in places:
            sizes[at].append(len(places))
        if len({pipeline[at] for at in places}) == len(places):
            within.append(np.array(places, np.int64))
            stages.tie(places)
    same: dict[tuple[int, ...], int] = {}
    numbered = zip(stages.numbers(), sizes, strict=True)
    part = [same.setdefault((stage, *sorted(of_rank)), len(same)) for stage, of_rank in numbered]
    return Parts(listed, np.array(pipeline, np.int64), np.array(part, np.int64), tuple(within))


class _Tied:
    """Numbers that belong together."""

    def __init__(self, n: int) -> None:
        self._above = list(range(n))

    def tie(self, some: list[int]) -> None:
        for one in some[1:]:
            self._above[self._top(one)] = self._top(some[0])

    def _top(self, one: int) -> int:
        while self._above[one] != one:
            self._above[one] = self._above[self._above[one]]
            one = self._above[one]
        return one

    def numbers(self) -> list[int]:
        return [self._top(one) for one in range(len(self._above))]
