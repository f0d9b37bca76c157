"""Iterations from recurring calls, where no optimizer step is seen: the time between the same call in two periods."""

from __future__ import annotations

import statistics

import numpy as np

from pacehound.events import IterationSample
from pacehound.rounds import Rounds
from streams.period import PeriodTracker, token

MAX_WAITING = 4_096
"""Rounds that may wait for an earlier one before it is taken for lost."""


class RecurringIterations:
    """Follows the rounds of one communicator and ends an iteration where its period begins anew (Falcon 4.2).

    Rounds close out of order; they are followed in order of `seq`. A lost round is skipped when too many wait for
    it: the tracker re-aligns.
    """

    def __init__(self, job: str, attempt: int, communicator: str) -> None:
        self._job = job
        self._attempt = attempt
        self._communicator = communicator
        self._tracker = PeriodTracker()
        self._waiting: dict[int, tuple[int, np.ndarray]] = {}  # seq -> token and per-rank time
        self._next_seq: int | None = None
        self._times: dict[int, np.ndarray] = {}  # index in the tracker's stream -> per-rank time
        self._ranks: tuple[int, ...] = ()
        self._begun: np.ndarray | None = None
        self._step = -1

    def add(self, rounds: Rounds) -> list[IterationSample]:
        """Closed rounds; the iterations that they end, oldest first."""
        self._ranks = rounds.ranks
        tokens = token(rounds.op, rounds.size_bytes, -1)
        times_ns = np.where(rounds.end_ns > 0, rounds.end_ns, rounds.arrival_ns)
        for seq, code, per_rank in zip(rounds.seq.tolist(), tokens.tolist(), times_ns, strict=True):
            self._waiting[seq] = (code, per_rank)
        if self._next_seq is None or len(self._waiting) > MAX_WAITING:
            self._next_seq = min(self._waiting, default=0)
        ready: list[int] = []
        while self._next_seq in self._waiting:
            code, per_rank = self._waiting.pop(self._next_seq)
            self._times[self._tracker.calls_seen + len(ready)] = per_rank
            ready.append(code)
            self._next_seq += 1
        if not ready:
            return []
        self._tracker.extend(np.array(ready, np.int64))
        samples = [self._sample(index) for index in self._tracker.take_boundaries().tolist() if index in self._times]
        keep_from = self._tracker.calls_seen - 2 * (self._tracker.period or 0) - 64
        if self._tracker.period is not None:
            self._times = {index: t for index, t in self._times.items() if index >= keep_from}
        elif len(self._times) > MAX_WAITING:
            self._times = dict(list(self._times.items())[-MAX_WAITING // 2 :])
        return samples

    def _sample(self, index: int) -> IterationSample:
        self._step += 1
        ends = self._times[index]
        seen = ends > 0
        elapsed = (ends - self._begun)[seen & (self._begun > 0)] if self._begun is not None else np.zeros(0)
        self._begun = ends
        return IterationSample(
            job=self._job,
            attempt=self._attempt,
            time_ns=int(ends.max()),
            communicator=self._communicator,
            step=self._step,
            ranks=tuple(rank for rank, is_seen in zip(self._ranks, seen.tolist(), strict=True) if is_seen),
            ends_ns=tuple(ends[seen].tolist()),
            step_time_s=statistics.median(elapsed.tolist()) / 1e9 if len(elapsed) else 0.0,
            boundary="period",
        )
