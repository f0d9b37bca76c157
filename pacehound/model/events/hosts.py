"""What the agent of a host says besides calls: processes, hardware, and evidence when its ranks do not go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pacehound.errors import InvalidEvent
from pacehound.model.events.control import JudgedRanks
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64

MAX_QUIET_NS = 600_000_000_000
"""Ten minutes: beyond that a host is silent, whatever it has said."""

SWITCHED_OFF = "switched off"
"""In place of a library in `ProcessState.unseen`: an error of ours has ended what sees the calls of this process."""

RunState = Literal["running", "stopped", "exited", "unknown"]
StackState = Literal["in_call", "storage", "data_loading", "lock", "computing", "stopped", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """One training process as its host's agent sees it.

    Attributes
    ----------
    state
        `stopped` is a SIGSTOP or a debugger; `exited` means that the process is gone.
    exit_code, signal
        How it left, where that could be learnt.
    since_ns
        When it was first seen in this state.
    detail
        The exception that ended it, as far as the process itself could say.
    unseen
        Communication libraries that are at work in it and none of whose calls has been seen for a while; or
        `SWITCHED_OFF`, alone.
    has_left
        It has destroyed the communicator of all ranks by itself: what it does then is none of the job's.

    """

    rank: Int64
    pid: Int64
    state: RunState
    since_ns: Int64
    exit_code: Int64 | None = None
    signal: Int64 | None = None
    detail: str = ""
    unseen: tuple[str, ...] = ()
    has_left: bool = False


def check_quiet(quiet_ns: int) -> None:
    """For so long a host may say that it says nothing.

    Raises
    ------
    InvalidEvent
        It would be waited for without end.

    """
    if not 0 <= quiet_ns <= MAX_QUIET_NS:
        raise InvalidEvent(f"a host says that it may be quiet for {quiet_ns} ns; it may for 0 to {MAX_QUIET_NS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The training processes of one host, once or twice a minute and at once when one changes.

    `closed` says that the job has ended on this host, and `closed_why` how (`pacehound.model.job_end`). For `quiet_ns`
    there may be no other sample, because heartbeats say that nothing has changed (`pacehound.model.flushes`); whoever
    sends none says it once a second. `is_later_launch`: the command had started ranks before these, which have left.
    """

    job: str
    attempt: Int64
    time_ns: Int64
    host: str
    processes: tuple[ProcessState, ...]
    closed: bool = False
    closed_why: str = ""
    quiet_ns: Int64 = 0
    is_later_launch: bool = False

    def __post_init__(self) -> None:
        check_quiet(self.quiet_ns)

    def identity(self) -> str:
        """Names (job, attempt, host, time)."""
        return event_id("host", self.job, self.attempt, self.host, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU, as NVML reads it.

    Attributes
    ----------
    uuid, index
        Its name on this host.
    model
        What it is, in NVML's words; empty where it does not say.
    ranks
        World ranks whose processes use it.
    throttle_reasons
        Why its clocks are below what was asked for, in NVML's words (`hw_thermal_slowdown`, `sw_power_cap`, …).
    sm_clock_mhz, max_sm_clock_mhz, temperature_c, power_w
        0 where it does not say.
    ecc_uncorrected
        Uncorrected memory errors since the driver was loaded.
    xid
        The last XID error of it that the kernel has logged since the job began; 0 for none.

    """

    uuid: str
    index: Int64
    model: str = ""
    ranks: tuple[Int64, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    sm_clock_mhz: Int64 = 0
    max_sm_clock_mhz: Int64 = 0
    temperature_c: Int64 = 0
    power_w: float = 0.0
    ecc_uncorrected: Int64 = 0
    xid: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NicReading:
    """One network interface or InfiniBand port: whether it is up, and its error counters by the kernel's names.

    A counter tells how far it has grown since the agent began to look; one that has not is left out.
    """

    name: str
    state: str
    errors: dict[str, Int64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketReading:
    """One TCP connection of a rank, as the kernel counts it (TCP_INFO).

    The same connection read on the other host has `local` and `remote` the other way round: that names the peer.

    Attributes
    ----------
    local, remote
        `address:port`.
    acked_bytes, received_bytes, retransmitted_bytes
        Since it was opened.
    busy_us
        How long it has had data on its way or waiting to be sent, since it was opened.
    unsent_bytes
        Waiting in its queue now.
    rtt_us, min_rtt_us
        Smoothed and smallest round trip.
    delivery_bytes_per_s
        The rate at which the peer last acknowledged data.

    """

    rank: Int64
    pid: Int64
    local: str
    remote: str
    acked_bytes: Int64 = 0
    received_bytes: Int64 = 0
    retransmitted_bytes: Int64 = 0
    busy_us: Int64 = 0
    unsent_bytes: Int64 = 0
    rtt_us: Int64 = 0
    min_rtt_us: Int64 = 0
    delivery_bytes_per_s: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcessors:
    """How a rank's process got the host's processors, as the kernel counts it; every figure only grows.

    Attributes
    ----------
    ran_ns
        How long its threads have run, together.
    waited_ns
        How long they were ready to run while no processor was free, together.
    throttled_ns
        How long its control group had used up its quota of processor time, since the agent began to look.

    """

    rank: Int64
    pid: Int64
    ran_ns: Int64 = 0
    waited_ns: Int64 = 0
    throttled_ns: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcessors:
    """What the `count` processors of a host have done, together, since the agent began to look.

    Attributes
    ----------
    busy_ns
        How long they ran anything at all.
    stolen_ns
        How long they were ready to run while the hypervisor ran something else.

    """

    count: Int64
    busy_ns: Int64 = 0
    stolen_ns: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCost:
    """What the agent of a host takes of it.

    Attributes
    ----------
    cpu_cores
        Over the last ten seconds; 0 before they are over.
    resident_bytes
        Its memory.
    flush_s
        How often it flushes: more seldom than it was told to (`agent.flush_s`) where it took more than its budget.
    dropped_calls
        Calls that it had to drop since it began, for the receiver was away too long.
    told_by_others
        Calls in which another rank of the host stood for theirs (representative.py) since it began: flushing less
        often was not enough.
    shim_ns_per_call
        What the NCCL shim takes of the calling thread for a call, measured at every 256th; 0 where there is no shim.

    """

    cpu_cores: float = 0.0
    resident_bytes: Int64 = 0
    flush_s: float = 0.0
    dropped_calls: Int64 = 0
    told_by_others: Int64 = 0
    shim_ns_per_call: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVitals:
    """What the hardware of a host says of itself, every few seconds: it raises or lowers a hypothesis.

    `oom_kills` counts processes of the job that the kernel has killed for memory; `agent` is what we ourselves take.
    """

    job: str
    attempt: Int64
    time_ns: Int64
    host: str
    gpus: tuple[GpuReading, ...] = ()
    nics: tuple[NicReading, ...] = ()
    sockets: tuple[SocketReading, ...] = ()
    processors: HostProcessors | None = None
    rank_processors: tuple[RankProcessors, ...] = ()
    oom_kills: Int64 = 0
    agent: AgentCost | None = None

    def identity(self) -> str:
        """Names (job, attempt, host, time)."""
        return event_id("vitals", self.job, self.attempt, self.host, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStack:
    """What one rank's process was doing when it was asked.

    Attributes
    ----------
    taken_by
        `py-spy` (Python and native frames), or `proc` (the kernel's view: system call and wait channel).
    frames
        The main thread's, innermost first.
    doing
        What the frames say it waits in: a call on a communicator, storage, data loading, a lock, or nothing
        (`computing`); `stopped` is a SIGSTOP or debugger, `unknown` where the frames do not tell.
    libraries
        Communication libraries loaded in it whose calls are not seen.

    """

    rank: Int64
    pid: Int64
    taken_by: Literal["py-spy", "proc"]
    frames: tuple[str, ...] = ()
    doing: StackState = "unknown"
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvidence:
    """What an agent collected because calls of its own ranks stayed open, or nothing moved, for too long.

    Attributes
    ----------
    reason
        Why it looked, in words.
    stacks
        Of its ranks, those that wait and one that does not.
    kernel_log
        Lines of the kernel's log since the job began that name a GPU error (XID), a lack of memory or a link.
    judged
        What a validation has measured, said by the host of rank 0.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    host: str
    reason: str
    stacks: tuple[RankStack, ...] = ()
    kernel_log: tuple[str, ...] = ()
    judged: tuple[JudgedRanks, ...] = ()

    def identity(self) -> str:
        """Names (job, attempt, host, time)."""
        return event_id("evidence", self.job, self.attempt, self.host, self.time_ns)
