"""What hosts say: processors, GPUs, network cards, kernels; where ranks run, and what their stacks show."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pacehound.model.evidence.phrases import first_frames
from pacehound.model.evidence.piece import Piece
from pacehound.model.int64 import Int64

MOST_FRAMES = 16
"""Of a stack, the innermost ones; sentences show six."""


class LacksProcessor(Piece, frozen=True, kw_only=True, tag="lacks_processor"):
    """A rank gets less of its host's processors than before.

    By `cause`: seconds of each second that it is throttled, the share that the hypervisor takes, or the share of the
    time in which it wants a processor and has one.
    """

    rank: Int64
    host: str
    cause: Literal["quota", "hypervisor", "other work"]
    now: float
    before: float

    ABOUT: ClassVar = ("rank", "host", "cause")

    @property
    def key(self) -> tuple[object, ...]:
        """What a hypervisor takes it takes from all ranks of the host."""
        of = None if self.cause == "hypervisor" else self.rank
        return ("lacks_processor", self.host, self.cause, of)

    def _sentence(self) -> str:
        if self.cause == "quota":
            return (
                f"rank {self.rank} on host {self.host} uses up the processor quota of its control group: throttled for "
                f"{self.now:.2f} s of each second, {self.before:.2f} s before"
            )
        if self.cause == "hypervisor":
            return (
                f"the hypervisor takes {self.now:.0%} of the processor time that host {self.host} wants, "
                f"{self.before:.0%} before"
            )
        return (
            f"rank {self.rank} has a processor for {self.now:.0%} of the time in which it wants one, "
            f"{self.before:.0%} before: other work runs on host {self.host}"
        )


class Crowded(Piece, frozen=True, kw_only=True, tag="crowded"):
    """The ranks of a host have a processor for so much of the time in which they want one, from least to most."""

    host: str
    least_share: float
    most_share: float

    ABOUT: ClassVar = ("host",)

    def _sentence(self) -> str:
        return (
            f"the ranks on host {self.host} have a processor for {self.least_share:.0%} to {self.most_share:.0%} of "
            "the time in which they want one: the machine is crowded"
        )


class More(Piece, frozen=True, kw_only=True, tag="more"):
    """Pieces that were left out for their number."""

    n: Int64
    are_alike: bool = False

    def _sentence(self) -> str:
        return f"and {self.n} more like these" if self.are_alike else f"and {self.n} more"


class Gpu(Piece, frozen=True, kw_only=True, tag="gpu"):
    """What is wrong with the GPU of a rank: `value` is its clock in MHz, new errors, the XID, or degrees C.

    `others` is the median clock of the other GPUs; `has_failed` where it ends the work on it.
    """

    rank: Int64
    name: str
    problem: Literal["throttles", "clock", "errors", "xid", "hot"]
    value: Int64 = 0
    others: float = 0.0
    reasons: tuple[str, ...] = ()
    has_failed: bool = False

    ABOUT: ClassVar = ("rank", "problem", "has_failed")

    def _sentence(self) -> str:
        gpu = (
            f"the GPU of rank {self.rank} ({self.name})" if self.has_failed else f"GPU {self.name} of rank {self.rank}"
        )
        what = {
            "throttles": f"throttles: {', '.join(self.reasons)}",
            "clock": f"runs at {self.value} MHz, the others at {self.others:.0f}",
            "errors": f"has {self.value} new uncorrected memory errors",
            "xid": f"has reported XID {self.value}",
            "hot": f"is at {self.value} C",
        }[self.problem]
        return f"{gpu} {what}"


class Where(Piece, frozen=True, kw_only=True, tag="where"):
    """Where a rank runs: its host, process and GPU, and what the GPU says of itself; what is not known is `None`."""

    rank: Int64
    host: str | None = None
    pid: Int64 | None = None
    gpu_index: Int64 | None = None
    gpu_uuid: str = ""
    throttle_reasons: tuple[str, ...] = ()
    sm_clock_mhz: Int64 = 0
    temperature_c: Int64 = 0
    xid: Int64 = 0

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        parts = [f"host {self.host}"] if self.host else []
        parts += [f"pid {self.pid}"] if self.pid is not None else []
        if self.gpu_index is not None:
            parts.append(f"GPU {self.gpu_index} ({self.gpu_uuid})")
            if self.throttle_reasons:
                reasons = ", ".join(self.throttle_reasons)
                parts.append(f"throttled: {reasons} at {self.sm_clock_mhz} MHz, {self.temperature_c} C")
            if self.xid:
                parts.append(f"XID {self.xid}")
        return f"rank {self.rank}: {', '.join(parts)}"


class Measured(Piece, frozen=True, kw_only=True, tag="measured"):
    """What a validation has measured of a rank, or of the link between two, while the job was held.

    `ratio` is its time to that of its peers for what says most of it; `None` where that cannot be told.
    """

    ranks: tuple[Int64, ...]
    verdict: Literal["culprit", "cleared", "unclear"]
    measured: str
    ratio: float | None

    ABOUT: ClassVar = ("ranks",)

    def _sentence(self) -> str:
        who = f"{'rank' if len(self.ranks) == 1 else 'the link'} {' -> '.join(map(str, self.ranks))}"
        if self.verdict == "cleared" or self.ratio is None:
            return f"measured while the job was held, {who} is as fast as its peers"
        return f"measured while the job was held, {who} takes {self.ratio:.2f} times its peers' time ({self.measured})"


class NobodySlow(Piece, frozen=True, kw_only=True, tag="nobody_slow"):
    """A validation measured so many ranks and links, and has proven nothing slow."""

    n_measured: Int64
    n_cleared: Int64

    def _sentence(self) -> str:
        return (
            f"{self.n_measured} ranks and links were measured while the job was held: none is proven slow, and "
            f"{self.n_cleared} ranks are as fast as their peers"
        )


ShownAs = Literal["outside", "busy", "named", "healthy"]


class Stack(Piece, frozen=True, kw_only=True, tag="stack"):
    """What the stack of a rank shows, the innermost frames first.

    `shown_as`: it is outside of any call, busy with something for all, named by the finding, or healthy.
    """

    rank: Int64
    doing: str
    taken_by: str
    frames: tuple[str, ...]
    shown_as: ShownAs

    ABOUT: ClassVar = ("rank", "shown_as")

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "frames", self.frames[:MOST_FRAMES])
        super().__post_init__()

    def _sentence(self) -> str:
        if self.shown_as == "healthy":
            return f"a healthy rank, {self.rank}, for comparison: {first_frames(self.frames, 6)}"
        if self.shown_as == "named":
            return f"stack of rank {self.rank} ({self.taken_by}): {first_frames(self.frames, 6)}"
        where = f": {first_frames(self.frames, 3)}" if self.frames else ""
        if self.shown_as == "busy":
            return f"rank {self.rank} is busy: it {BUSY.get(self.doing, self.doing)} ({self.taken_by}){where}"
        return f"rank {self.rank} {OUTSIDE.get(self.doing, self.doing)} ({self.taken_by}){where}"


OUTSIDE = {"data_loading": "loads data", "storage": "is in storage", "computing": "computes"}
"""What a rank that waits in no call does, by what its stack shows."""

BUSY = {"storage": "reads or writes storage", "data_loading": "loads data"}
"""What it may do for all."""


class KilledForMemory(Piece, frozen=True, kw_only=True, tag="killed_for_memory"):
    """Processes that the kernel of a host has killed for want of memory."""

    host: str
    n: Int64

    ABOUT: ClassVar = ("host",)

    def _sentence(self) -> str:
        return f"{self.n} processes on {self.host} were killed for memory"


class NetworkCard(Piece, frozen=True, kw_only=True, tag="network_card"):
    """A network card that is not up, or that counts errors: the most frequent ones by name."""

    host: str
    name: str
    state: str
    errors: tuple[tuple[str, Int64], ...] = ()

    ABOUT: ClassVar = ("host", "name")

    def _sentence(self) -> str:
        if not self.errors:
            return f"{self.name} of {self.host} is {self.state}"
        return f"{self.name} of {self.host} counts " + ", ".join(f"{count} {name}" for name, count in self.errors)


class KernelLog(Piece, frozen=True, kw_only=True, tag="kernel_log"):
    """A line of a host's kernel log that names an error."""

    host: str
    line: str

    ABOUT: ClassVar = ("host", "line")

    def _sentence(self) -> str:
        return f"kernel log of {self.host}: {self.line}"


class CheckpointAge(Piece, frozen=True, kw_only=True, tag="checkpoint_age"):
    """How long ago the last checkpoint ended: what a restart would lose."""

    age_s: float

    def _sentence(self) -> str:
        return f"the last checkpoint is {self.age_s:.0f} s old"


class ToDrain(Piece, frozen=True, kw_only=True, tag="to_drain"):
    """Hosts to take out of service."""

    hosts: tuple[str, ...]

    def _sentence(self) -> str:
        return f"to drain: {', '.join(self.hosts)}"


class HostSilent(Piece, frozen=True, kw_only=True, tag="host_silent"):
    """Hosts of which nothing has been heard; for how long, where one is a finding of its own."""

    hosts: tuple[str, ...]
    for_s: float | None = None

    ABOUT: ClassVar = ("hosts",)

    def _sentence(self) -> str:
        words = f"nothing has been heard from {', '.join(self.hosts)}"
        return f"{words}: its agent or the machine is gone" if self.for_s is None else f"{words} for {self.for_s:.0f} s"


class UnseenLibrary(Piece, frozen=True, kw_only=True, tag="unseen_library"):
    """Libraries that communicate on a host without their calls being seen, or processes that are switched off."""

    host: str
    libraries: tuple[str, ...]
    is_off: bool = False

    ABOUT: ClassVar = ("host",)

    def _sentence(self) -> str:
        if self.is_off:
            return f"Pacehound has switched itself off in processes of {self.host}: their calls are not seen any more"
        libraries = ", ".join(self.libraries)
        return f"{libraries} is at work in processes of {self.host}, and none of its calls has been seen"


class TwoProcesses(Piece, frozen=True, kw_only=True, tag="two_processes"):
    """A rank that is several processes at once: the pid and host of the first two, and how long both are alive."""

    rank: Int64
    processes: tuple[tuple[Int64, str], ...]
    both_alive_s: float

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        shown = " and ".join(f"process {pid} of {host}" for pid, host in self.processes)
        return f"rank {self.rank} is {shown}, both alive for {self.both_alive_s:.0f} s"
