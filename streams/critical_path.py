"""Whose delay it is: the critical path of one iteration over all communicators of a job.

Walk back from the iteration's last end. On a rank, the time since its last round ended is that rank's own: it is
charged to the rank. Inside a round, the time from the latest start to the end is charged to the transfer, and the
walk goes on at the rank that started last, for everybody else waited for it. The charges of one iteration add up
to its duration, so their growth over a quiet baseline says who made it longer (DESIGN section 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.calls import Sees
from pacehound.rounds import Rounds

Int64Array = npt.NDArray[np.int64]

TransferKey = str | tuple[int, int]
"""A communicator, or the two ranks of a point-to-point pair, the smaller first: both directions are one link."""


@dataclass(frozen=True, slots=True)
class Charges:
    """What one iteration's time went to, in nanoseconds.

    `ranks` holds the ranks' own time on the path, `transfers` the time of the rounds on it.
    """

    ranks: dict[int, int]
    transfers: dict[TransferKey, int]

    @property
    def total_ns(self) -> int:
        """The length of the path."""
        return sum(self.ranks.values()) + sum(self.transfers.values())


class RoundIndex:
    """The rounds of a stretch of time, arranged so that a walk can go back along any rank.

    Building is O(R log R) array work for R (round, rank) pairs; each step of a walk is one binary search.
    """

    def __init__(self, blocks: Sequence[Rounds]) -> None:
        ranks, ends, arrivals, rounds = [], [], [], []
        start_max, start_rank = [], []
        self._keys: list[TransferKey] = []
        key_index, times, sizes = [], [], []
        n_rounds = 0
        for block in blocks:
            if len(block) == 0 or Sees.END not in block.sees:
                continue  # without ends it is not known when anybody stopped waiting
            start = np.where(block.start_ns > 0, block.start_ns, block.arrival_ns)
            end = block.end_ns
            members = np.array(block.ranks, np.int64)
            seen = end > 0
            line, column = np.nonzero(seen)
            ranks.append(members[column])
            ends.append(end[line, column])
            arrivals.append(block.arrival_ns[line, column])
            rounds.append(line + n_rounds)
            start_max.append(start.max(axis=1))
            start_rank.append(members[start.argmax(axis=1)])
            self._keys.append((min(block.ranks), max(block.ranks)) if block.is_pair else block.communicator)
            key_index.append(np.full(len(block), len(self._keys) - 1))
            times.append(block.times_ns)
            sizes.append(block.size_bytes)
            n_rounds += len(block)
        empty = np.zeros(0, np.int64)
        rank = np.concatenate([empty, *ranks])
        end_ns = np.concatenate([empty, *ends])
        round_of = np.concatenate([empty, *rounds])
        order = np.lexsort((round_of, end_ns, rank))
        self._rank, self._end_ns, self._round = rank[order], end_ns[order], round_of[order]
        self._arrival_ns = np.concatenate([empty, *arrivals])[order]
        self._start_ns = np.concatenate([empty, *start_max])
        self._start_rank = np.concatenate([empty, *start_rank])
        self._key_index = np.concatenate([empty, *key_index])
        times_ns = np.concatenate([empty, *times])
        by_time = np.argsort(times_ns, kind="stable")
        self._times_ns = times_ns[by_time]
        self._sizes = np.concatenate([[0], np.cumsum(np.concatenate([empty, *sizes])[by_time])])

    def walk(self, ends_ns: Mapping[int, int], begins_ns: Mapping[int, int]) -> Charges:
        """The charges of the iteration in which rank r worked from `begins_ns[r]` to `ends_ns[r]`."""
        charged_ranks: dict[int, int] = {}
        charged_transfers: dict[TransferKey, int] = {}
        rank = max(ends_ns, key=lambda r: (ends_ns[r], -r))
        now_ns = ends_ns[rank]
        while True:
            begin_ns = begins_ns.get(rank, now_ns)
            found = self._last_round(rank, now_ns, begin_ns)
            if found is None:
                _charge(charged_ranks, rank, now_ns - begin_ns)
                break
            end_ns, round_index = found
            _charge(charged_ranks, rank, now_ns - end_ns)
            start_ns = int(self._start_ns[round_index])
            key = self._keys[int(self._key_index[round_index])]
            _charge(charged_transfers, key, end_ns - start_ns)
            rank = int(self._start_rank[round_index])
            # Strictly earlier at every step, also past a round without duration: the walk always ends.
            now_ns = min(start_ns, now_ns - 1)
        return Charges(charged_ranks, charged_transfers)

    def work(self, after_ns: int, until_ns: int) -> tuple[int, int]:
        """How many rounds ended in a stretch of time, and how many bytes a rank gave to them."""
        first, last = (int(np.searchsorted(self._times_ns, t, "right")) for t in (after_ns, until_ns))
        return last - first, int(self._sizes[last] - self._sizes[first])

    def own_time_ns(self, ends_ns: Mapping[int, int], begins_ns: Mapping[int, int]) -> dict[int, int]:
        """Per rank, the part of its iteration that it spent in no call: its own work, waiting left out.

        A rank that is only waited with keeps its own time when somebody else becomes slow, so its growth tells a
        culprit from a victim even where the path wanders.
        """
        own: dict[int, int] = {}
        for rank, end_ns in ends_ns.items():
            begin_ns = begins_ns.get(rank)
            if begin_ns is None:
                continue
            low, high = self._of(rank)
            first = low + int(np.searchsorted(self._end_ns[low:high], begin_ns, "right"))
            last = low + int(np.searchsorted(self._end_ns[low:high], end_ns, "right"))
            entered = np.maximum(self._arrival_ns[first:last], begin_ns)
            order = np.argsort(entered, kind="stable")
            entered, left = entered[order], self._end_ns[first:last][order]
            covered_until = np.maximum.accumulate(np.concatenate([[begin_ns], left]))[:-1]
            in_calls = np.maximum(left - np.maximum(entered, covered_until), 0).sum()
            own[rank] = end_ns - begin_ns - int(in_calls)
        return own

    def _of(self, rank: int) -> tuple[int, int]:
        """Where the entries of a rank begin and end."""
        return int(np.searchsorted(self._rank, rank, "left")), int(np.searchsorted(self._rank, rank, "right"))

    def _last_round(self, rank: int, until_ns: int, after_ns: int) -> tuple[int, int] | None:
        low, high = self._of(rank)
        position = low + int(np.searchsorted(self._end_ns[low:high], until_ns, "right")) - 1
        if position < low or self._end_ns[position] <= after_ns:
            return None
        return int(self._end_ns[position]), int(self._round[position])


def _charge(charges: dict[int, int] | dict[TransferKey, int], key: int | TransferKey, duration_ns: int) -> None:
    if duration_ns > 0:
        charges[key] = charges.get(key, 0) + duration_ns  # type: ignore[index, arg-type]
