"""Collects the evidence of a stall: a stack of each rank that matters, and the kernel's log.

Nothing of it touches the training processes: py-spy reads their memory while they go on, /proc is text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from collector.host.evidence import kernel_view, pyspy
from collector.host.evidence.doing import doing
from collector.host.evidence.kernel_view import KernelView
from collector.host.evidence.libraries import unseen_libraries
from collector.host.evidence.stall import Stall
from collector.host.kernel_log import KernelLog
from collector.host.processes import PROC
from collector.host.rank_process import RankProcess
from pacehound.errors import Unavailable
from pacehound.model.events import HostEvidence, RankStack

WINDOW_S = 0.3
"""Between two readings of CPU time, which the kernel counts in steps of 10 ms."""
TIME_LIMIT_S = 20.0
"""For all stacks; what is not read by then is told from /proc alone."""


class EvidenceCollector:
    """Collects on one host; `collect` takes up to half a minute and is called away from the agent's loop.

    Parameters
    ----------
    job, host
        As in the events.
    kernel_log
        Since the job began.
    proc
        Where /proc is.
    py_spy
        The program; `None`: /proc has to do.

    """

    def __init__(
        self, job: str, host: str, kernel_log: KernelLog, proc: Path = PROC, py_spy: str | None = None
    ) -> None:
        self._job, self._host = job, host
        self._kernel_log = kernel_log
        self._proc = proc
        self._py_spy = py_spy

    def collect(self, stall: Stall, processes: Sequence[RankProcess], now_unix_ns: int) -> HostEvidence:
        """The evidence of a stall, with stacks in the order in which it names the ranks."""
        by_rank = {process.rank: process for process in processes if process.attempt == stall.attempt}
        chosen = [by_rank[rank] for rank in stall.ranks if rank in by_rank]
        views = self._views([process.pid for process in chosen])
        deadline_s = time.monotonic() + TIME_LIMIT_S
        stacks = tuple(
            self.stack(process, views[process.pid], has_open_call=process.rank in stall.in_call, deadline_s=deadline_s)
            for process in chosen
        )
        return HostEvidence(
            job=self._job,
            attempt=stall.attempt,
            time_ns=now_unix_ns,
            host=self._host,
            reason=stall.reason,
            stacks=stacks,
            kernel_log=self._kernel_log.lines(),
        )

    def stack(self, process: RankProcess, view: KernelView, *, has_open_call: bool, deadline_s: float) -> RankStack:
        """What one rank is doing; until `deadline_s` (monotonic) py-spy is asked."""
        frames: tuple[str, ...] = ()
        left_s = deadline_s - time.monotonic()
        if self._py_spy is not None and left_s > 0:
            try:
                frames = pyspy.main_thread(self._py_spy, process.pid, min(left_s, pyspy.TIME_LIMIT_S))
            except Unavailable:
                frames = ()
        word = doing(frames, view, has_open_call=has_open_call, uses_gpu=kernel_view.uses_gpu(process.pid, self._proc))
        kernel_frame = (view.frame(),) if view.frame() else ()
        return RankStack(
            rank=process.rank,
            pid=process.pid,
            taken_by="py-spy" if frames else "proc",
            frames=(*kernel_frame, *frames),
            doing=word,
            libraries=unseen_libraries(process.pid, self._proc),
        )

    def _views(self, pids: Sequence[int]) -> dict[int, KernelView]:
        """All of them over the same window."""
        began_s = time.monotonic()
        first = {pid: kernel_view.read(pid, self._proc) for pid in pids}
        time.sleep(WINDOW_S)
        window_s = time.monotonic() - began_s
        return {
            pid: kernel_view.put_together(reading, kernel_view.read(pid, self._proc), window_s)
            for pid, reading in first.items()
        }
