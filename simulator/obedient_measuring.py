"""Processes beside the ranks of a simulated job, and what they measure: what is true of the ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pacehound.model.events import JudgedRanks
from pacehound.model.orders import Prepare
from simulator.running_job import RunningJob

STARTS_NS, MEASURES_NS = 3_000_000_000, 4_000_000_000
"""They load torch, and measure."""

SLOW_RATIO = 1.25
"""As in actuators/validation/thresholds.py."""


@dataclass(frozen=True, slots=True)
class Found:
    """What has come of the validation `trap`: those beside these ranks are ready, or this was measured."""

    trap: int
    ready: tuple[int, ...] = ()
    judged: tuple[JudgedRanks, ...] = ()


class ObedientMeasuring:
    """Of one validation at a time."""

    def __init__(self, job: RunningJob, hosts: Sequence[Sequence[int]]) -> None:
        self._job, self._hosts = job, hosts
        self._prepared: Prepare | None = None
        self._is_ready = False
        self._ready_ns = self._judged_ns = 0

    def prepare(self, what: Prepare, now_ns: int) -> str:
        """Begin to start; why it cannot be, else nothing."""
        if self._prepared is not None and self._prepared.trap != what.trap:
            return "another validation is under way here"
        if self._prepared is None:
            self._prepared, self._is_ready = what, False
            self._ready_ns, self._judged_ns = now_ns + STARTS_NS, 0
        return ""

    def go(self, now_ns: int) -> None:
        """The ranks stand still."""
        self._judged_ns = now_ns + MEASURES_NS

    def dismiss(self) -> None:
        """End them."""
        self._prepared = None

    def look(self, now_ns: int) -> Found | None:
        """What is new, else nothing."""
        if self._prepared is None:
            return None
        trap, ranks = self._prepared.trap, self._prepared.ranks or tuple(range(len(self._job.slowness)))
        if not self._is_ready and now_ns >= self._ready_ns:
            self._is_ready = True
            return Found(trap, ready=ranks)
        if self._judged_ns and now_ns >= self._judged_ns:
            self._prepared = None
            return Found(trap, judged=tuple(self._judged(rank, ranks) for rank in ranks))
        return None

    def _judged(self, rank: int, measured: Sequence[int]) -> JudgedRanks:
        peers = statistics.median([self._job.slowness[one] for one in measured if one != rank] or [1.0])
        ratio = self._job.slowness[rank] / peers
        return JudgedRanks(
            ranks=(rank,),
            hosts=(next(f"h{number}" for number, ranks in enumerate(self._hosts) if rank in ranks),),
            verdict="culprit" if ratio >= SLOW_RATIO else "cleared",
            measured="gemm float32",
            ratio=round(ratio, 3),
            reason=f"{ratio:.2f} times the peers' time",
        )
