"""What the hosts of a job say about their ranks besides calls: processes, stacks, hardware, and their own silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pacehound.model.events import GpuReading, HostEvidence, HostSample, HostVitals, ProcessState, RankStack
from pacehound.model.evidence.leaving import Process
from pacehound.model.evidence.machines import OUTSIDE, Gpu, ShownAs, Stack
from streams.hang.last_words import has_left_for_others

_FATAL_XIDS = frozenset({31, 43, 46, 48, 61, 62, 63, 64, 69, 74, 79, 92, 94, 95, 109, 119, 120, 136, 140, 143})
"""XIDs after which the application has lost its GPU or channel (NVIDIA's XID catalogue).

13 may be its own bug too, and 45 is what remains of a process that somebody else has ended.
"""


@dataclass(slots=True)
class HostReports:
    """The latest word of every host."""

    # by world rank
    processes: dict[int, ProcessState] = field(default_factory=dict)
    stacks: dict[int, RankStack] = field(default_factory=dict)
    vitals: dict[str, HostVitals] = field(default_factory=dict)  # by host
    host_of: dict[int, str] = field(default_factory=dict)  # by world rank
    silent: frozenset[str] = frozenset()  # hosts that have not been heard of for longer than is usual
    kernel_log: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by host, lines that name an error
    dropped: dict[str, int] = field(default_factory=dict)  # by host, calls that were lost before they could be read
    _halted: dict[int, str] = field(default_factory=dict)
    _first_ecc: dict[str, int] = field(default_factory=dict)

    def on_dropped(self, host: str, n_calls: int) -> None:
        """So many calls of a host were lost before they could be read, as it now says."""
        if n_calls > self.dropped.setdefault(host, 0):
            self.dropped[host] = n_calls

    def on_sample(self, sample: HostSample) -> None:
        """The processes of a host."""
        for process in sample.processes:
            self.processes[process.rank] = process
            if process.state in ("stopped", "exited"):
                self._halted[process.rank] = process.state
            else:
                self._halted.pop(process.rank, None)
            self.host_of.setdefault(process.rank, sample.host)

    def on_vitals(self, vitals: HostVitals) -> None:
        """The hardware of a host; memory errors that its GPUs had before are nobody's fault now."""
        self.vitals[vitals.host] = vitals
        for gpu in vitals.gpus:
            self._first_ecc.setdefault(gpu.uuid, gpu.ecc_uncorrected)

    def on_evidence(self, evidence: HostEvidence, has_moved: Callable[[int], bool]) -> None:
        """What a host's agent found when it looked closer; of who has moved since then it says nothing any more."""
        for stack in evidence.stacks:
            if not has_moved(stack.rank):
                self.stacks[stack.rank] = stack
        if evidence.kernel_log:
            self.kernel_log[evidence.host] = evidence.kernel_log

    def forget_stacks(self, ranks: Iterable[int]) -> None:
        """They have moved: what they did before says nothing about where they stand now."""
        if self.stacks:
            for rank in self.stacks.keys() & set(ranks):
                del self.stacks[rank]

    def forget_all_stacks(self) -> None:
        """What ranks did in an earlier stall says nothing about the next one."""
        self.stacks.clear()

    def stopped(self, frozen_ns: int | None) -> frozenset[int]:
        """Ranks whose process was stopped before a time (SIGSTOP): who attaches a debugger to a hang comes later."""
        return self._halted_before("stopped", frozen_ns)

    def exited(self, frozen_ns: int | None) -> frozenset[int]:
        """Ranks whose process left before a time: whoever leaves a job that hangs already is not guilty of it."""
        return self._halted_before("exited", frozen_ns)

    def is_done(self, rank: int) -> bool:
        """Its process has left with exit code 0."""
        process = self.processes.get(rank)
        return process is not None and process.state == "exited" and process.exit_code == 0

    def have_left_for_others(self) -> frozenset[int]:
        """Ranks that were waiting when they left, by their last words."""
        exited = (rank for rank, halted in self._halted.items() if halted == "exited")
        return frozenset(rank for rank in exited if has_left_for_others(self.processes[rank]))

    def _halted_before(self, state: str, frozen_ns: int | None) -> frozenset[int]:
        return frozenset(
            rank
            for rank, halted in self._halted.items()
            if halted == state and (frozen_ns is None or self.processes[rank].since_ns <= frozen_ns)
        )

    def failed_hardware(self) -> dict[int, Gpu]:
        """Ranks whose GPU has failed, and how."""
        return {
            rank: failure
            for vitals in self.vitals.values()
            for gpu in vitals.gpus
            for rank in gpu.ranks
            if (failure := _failure(gpu, rank, gpu.ecc_uncorrected - self._first_ecc[gpu.uuid])) is not None
        }

    def gpu_of(self, rank: int) -> GpuReading | None:
        """The GPU that a rank uses, where its host has read it."""
        vitals = self.vitals.get(self.host_of.get(rank, ""))
        return next((gpu for gpu in vitals.gpus if rank in gpu.ranks), None) if vitals else None

    def outside_of_calls(self, rank: int) -> Stack | None:
        """The stack of a rank where it shows that the rank waits in no call."""
        stack = self.stacks.get(rank)
        return None if stack is None or stack.doing not in OUTSIDE else shown_stack(stack, "outside")

    def is_in_unseen_call(self, rank: int) -> bool:
        """Its stack shows a wait for others in a call that nobody has recorded."""
        stack = self.stacks.get(rank)
        return stack is not None and stack.doing == "in_call"

    def unseen_libraries(self, rank: int) -> tuple[str, ...]:
        """Communication libraries loaded there whose calls are not seen."""
        stack = self.stacks.get(rank)
        return stack.libraries if stack is not None else ()

    def unheard(self) -> frozenset[int]:
        """Ranks of the hosts that are silent."""
        if not self.silent:
            return frozenset()
        return frozenset(rank for rank, host in self.host_of.items() if host in self.silent)

    def unfollowed(self) -> frozenset[int]:
        """Ranks of which nobody tells where they are: of silent hosts, and those whose calls are not seen."""
        return self.unheard() | {rank for rank, process in self.processes.items() if process.unseen}

    def is_unseen(self, rank: int) -> bool:
        """Its calls are not seen, or no longer."""
        process = self.processes.get(rank)
        return process is not None and bool(process.unseen)

    def is_silent(self, rank: int) -> bool:
        """Its host has not been heard of."""
        return self.host_of.get(rank, "") in self.silent

    def has_lost_calls(self, rank: int) -> bool:
        """Calls of its host were lost, or its own are not seen: what it seems not to have done it may have."""
        return self.dropped.get(self.host_of.get(rank, ""), 0) > 0 or self.is_unseen(rank)

    def process(self, rank: int) -> Process:
        """How the process of a rank is, whose host has said it."""
        process = self.processes[rank]
        return Process(
            rank=rank,
            pid=process.pid,
            state=process.state,
            exit_code=process.exit_code,
            signal=process.signal,
            detail=process.detail,
        )


def shown_stack(stack: RankStack, shown_as: ShownAs) -> Stack:
    """A stack as evidence."""
    return Stack(rank=stack.rank, doing=stack.doing, taken_by=stack.taken_by, frames=stack.frames, shown_as=shown_as)


def _failure(gpu: GpuReading, rank: int, new_errors: int) -> Gpu | None:
    if gpu.xid in _FATAL_XIDS:
        return Gpu(rank=rank, name=gpu.uuid, problem="xid", value=gpu.xid, has_failed=True)
    if new_errors > 0:
        return Gpu(rank=rank, name=gpu.uuid, problem="errors", value=new_errors, has_failed=True)
    return None
