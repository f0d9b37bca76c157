"""What an agent sees besides calls: the hardware's vitals every few seconds, and evidence when its ranks do not go on.

All looking happens in threads of its own. What they found is handed to the agent when it next saves, and goes out in
the host's stream; its time is that of the look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from collector.agent.background import TaskRunner, ThreadTaskRunner
from collector.agent.run_folder import Job
from collector.host.evidence import pyspy
from collector.host.evidence.collect import EvidenceCollector
from collector.host.evidence.stall import MAX_STACKS, Stall, StallWatch
from collector.host.kernel_log import KernelLog
from collector.host.rank_process import RankProcess
from collector.host.vitals.look import VitalsReader
from pacehound.model.events import HostEvidence, HostVitals, Progress

CLOSELY_EVERY_NS = 1_000_000_000
"""While somebody has ordered a closer look."""

VITALS_EVERY_NS = 5_000_000_000
"""A slow link or a hot GPU stays so for minutes. A look takes about ten milliseconds of CPU with 8 ranks and 450
connections between them, and 14 more with 400 threads in each: five thousandths of a core."""


ReadVitals = Callable[[int, Sequence[RankProcess], int], HostVitals]
"""As `VitalsReader.look`: attempt, its ranks, Unix time."""
CollectEvidence = Callable[[Stall, Sequence[RankProcess], int], HostEvidence]
"""As `EvidenceCollector.collect`: a stall, the ranks, Unix time."""


class HostWatch:
    """Decides when to look and takes what was seen; time is an argument.

    Parameters
    ----------
    read_vitals, collect_evidence
        Do the looking.
    vitals_tasks, evidence_tasks
        Where they do it: apart, so that a driver that hangs does not keep the stacks from being read.
    suspect_after_s
        `hang.suspect_after_s`.
    clock_ns
        Unix time, asked for at the moment of a look.

    """

    def __init__(
        self,
        read_vitals: ReadVitals,
        collect_evidence: CollectEvidence,
        *,
        vitals_tasks: TaskRunner[HostVitals],
        evidence_tasks: TaskRunner[HostEvidence],
        suspect_after_s: float,
        clock_ns: Callable[[], int],
    ) -> None:
        self._read_vitals, self._collect_evidence = read_vitals, collect_evidence
        self._vitals_tasks, self._evidence_tasks = vitals_tasks, evidence_tasks
        self._stall = StallWatch(round(suspect_after_s * 1e9))
        self._clock_ns = clock_ns
        self._next_vitals_ns = 0
        self._looked_at: frozenset[RankProcess] = frozenset()
        self._closely_until_ns = 0
        self._wanted: Stall | None = None

    def look_closely(self, attempt: int, ranks: Sequence[int], why: str, until_ns: int) -> None:
        """Look each second for a while, and once at what these ranks do.

        Parameters
        ----------
        attempt, ranks
            Whose stacks are wanted.
        why
            Told with them.
        until_ns
            Monotonic time; one that is over ends it.

        """
        self._closely_until_ns, self._next_vitals_ns = until_ns, 0
        in_call: frozenset[int] = frozenset()
        self._wanted = Stall(attempt=attempt, reason=why, ranks=tuple(ranks[:MAX_STACKS]), in_call=in_call)

    def look_at_hardware(self, alive: Sequence[RankProcess], now_ns: int, *, may_wait: bool = False) -> None:
        """Where it is time to; never waits.

        Ranks that have come since the last look are looked at at once: what a rank has lacked is told by two looks at
        it, and a job that has just begun, or begun anew, is not to wait for a third.

        Parameters
        ----------
        alive
            The ranks' processes that are there.
        now_ns
            Monotonic time.
        may_wait
            There is a better moment to come (`FlushTimes.awaits_heartbeat`): for as long again as between two looks it
            is waited for, unless somebody looks closely.

        """
        if not alive:
            return
        attempt = max(process.attempt for process in alive)
        ranks = [process for process in alive if process.attempt == attempt]
        is_close = now_ns < self._closely_until_ns
        due_ns = self._next_vitals_ns + (VITALS_EVERY_NS if may_wait and not is_close else 0)
        is_time = now_ns >= due_ns or not self._looked_at.issuperset(ranks)
        if is_time and self._vitals_tasks.is_idle():
            self._next_vitals_ns = now_ns + (CLOSELY_EVERY_NS if is_close else VITALS_EVERY_NS)
            self._looked_at = frozenset(ranks)
            self._vitals_tasks.run(lambda: self._read_vitals(attempt, ranks, self._clock_ns()))

    def consider(self, progress: Sequence[Progress], alive: Sequence[RankProcess], now_ns: int, unix_ns: int) -> None:
        """Collect evidence where ranks do not go on; never waits.

        Parameters
        ----------
        progress
            What the agent has just promised.
        alive
            The ranks' processes that are there.
        now_ns, unix_ns
            Monotonic time, and the same moment in Unix time.

        """
        if not alive or not self._evidence_tasks.is_idle():
            return
        stall = self._stall.look(progress, {(process.attempt, process.rank) for process in alive}, unix_ns)
        if stall is None and now_ns < self._closely_until_ns:
            stall, self._wanted = self._wanted, None
        if stall is not None:
            processes = list(alive)
            self._evidence_tasks.run(lambda: self._collect_evidence(stall, processes, self._clock_ns()))

    @property
    def is_looking(self) -> bool:
        """A look is under way, or what it has found was not taken yet."""
        return not (self._vitals_tasks.is_idle() and self._evidence_tasks.is_idle())

    def seen(self) -> list[HostVitals | HostEvidence]:
        """What was seen since the last time, in order of time."""
        events: list[HostVitals | HostEvidence] = [*self._vitals_tasks.results(), *self._evidence_tasks.results()]
        return sorted(events, key=lambda event: event.time_ns)

    def close(self) -> None:
        """Look no more."""
        self._vitals_tasks.close()
        self._evidence_tasks.close()


def open_host_watch(job: Job, suspect_after_s: float) -> HostWatch:
    """The real one, for the host it runs on."""
    kernel_log = KernelLog(job.clock.monotonic_ns)
    return HostWatch(
        VitalsReader(job.job, job.host, kernel_log).look,
        EvidenceCollector(job.job, job.host, kernel_log, py_spy=pyspy.find()).collect,
        vitals_tasks=ThreadTaskRunner("vitals"),
        evidence_tasks=ThreadTaskRunner("evidence"),
        suspect_after_s=suspect_after_s,
        clock_ns=lambda: job.clock.to_unix_ns(time.monotonic_ns()),
    )
