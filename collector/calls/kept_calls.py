"""The calls behind digests of iterations: kept for minutes, and told when somebody looks closer.

Digests go on meanwhile, and verdicts come of them alone (pacehound/model/digests.py): calls that are told late, or
lost, change none. So nothing of this is saved, and an agent that starts again has kept nothing.
"""

from __future__ import annotations

import zlib
from collections import deque

import numpy as np

from collector.calls import rows as call_rows
from collector.calls.rings import Int64Array, Records

KEPT_FOR_NS = 120_000_000_000
"""An incident is opened within thirty iterations; who is woken by it and asks has a minute more."""

MOST_KEPT = 1 << 18
"""Calls of a host, 32 MiB: of eight ranks that make 337 a second each, 97 s."""

CALLS_OF_A_JOB = 4_000_000
"""That a job tells in one look, over all of its hosts: four seconds of a writer. Of 16,384 ranks 244 calls each."""

MOST_AT_ONCE = 16_384
"""With one flush, so that they delay nothing else: 2 MB. When the job is over, all that are left."""


def is_one_of(job: str, one_in: int) -> bool:
    """Whether it is the one of so many jobs whose calls are told anyway; every agent of a job says the same.

    >>> [is_one_of("llama", one_in) for one_in in (0, 1)], sum(is_one_of(f"job-{n}", 10) for n in range(1_000))
    ([False, True], 91)
    """
    return one_in > 0 and zlib.crc32(job.encode()) % one_in == 0


class KeptCalls:
    """Of one host.

    Parameters
    ----------
    is_told
        All of them are told, beside the digests, whether somebody asks or not.

    """

    def __init__(self, *, is_told: bool = False) -> None:
        self._kept: deque[tuple[Records, Int64Array]] = deque()
        self._n_kept = 0
        self._leaving: deque[tuple[Records, Int64Array]] = deque()
        self._n_leaving = 0
        self._is_told = is_told
        self._until_ns = 0
        self._may_leave = 0

    def keep(self, rows: Records, numbers: Int64Array, now_ns: int) -> None:
        """Take in the calls of which digests have just been made, and the numbers of their communicators."""
        if self._is_told or now_ns < self._until_ns:
            n_told = len(rows) if self._is_told else min(len(rows), self._may_leave)
            self._may_leave -= n_told
            self._leave(rows[:n_told], numbers[:n_told])
            rows, numbers = rows[n_told:], numbers[n_told:]
        if len(rows):
            self._kept.append((rows, numbers))
            self._n_kept += len(rows)
        while self._kept and (self._n_kept > MOST_KEPT or self._is_old(self._kept[0][0], now_ns)):
            self._n_kept -= len(self._kept.popleft()[0])

    def ask(self, until_ns: int, now_ns: int, most: int) -> None:
        """Tell what was kept, the latest, and what comes until then: so many, at most half of them of before."""
        self._until_ns, self._may_leave = until_ns, most
        if until_ns <= now_ns or self._is_told or not self._kept:
            return
        rows, numbers = (np.concatenate(column) for column in zip(*self._kept, strict=True))
        n_earlier = len(rows) - min(most // 2, len(rows))
        latest = np.sort(np.argsort(rows["end_ns"], kind="stable")[n_earlier:])
        self._may_leave -= len(latest)
        self._leave(rows[latest], numbers[latest])
        stays = np.ones(len(rows), np.bool_)
        stays[latest] = False
        self._kept = deque([(rows[stays], numbers[stays])] if stays.any() else [])
        self._n_kept = int(stays.sum())

    def take(self, most: int) -> tuple[Records, Int64Array]:
        """What is told now, the oldest first, and the numbers of their communicators."""
        taken = [(call_rows.no_rows(), np.empty(0, np.int64))]
        while self._leaving and most > 0:
            rows, numbers = self._leaving.popleft()
            if len(rows) > most:
                self._leaving.appendleft((rows[most:], numbers[most:]))
                rows, numbers = rows[:most], numbers[:most]
            taken.append((rows, numbers))
            self._n_leaving -= len(rows)
            most -= len(rows)
        rows, numbers = (np.concatenate(column) for column in zip(*taken, strict=True))
        return rows, numbers

    def _leave(self, rows: Records, numbers: Int64Array) -> None:
        if len(rows):
            self._leaving.append((rows, numbers))
            self._n_leaving += len(rows)
        while self._n_leaving > MOST_KEPT:
            self._n_leaving -= len(self._leaving.popleft()[0])

    @staticmethod
    def _is_old(rows: Records, now_ns: int) -> bool:
        return int(rows["end_ns"].max()) < now_ns - KEPT_FOR_NS
