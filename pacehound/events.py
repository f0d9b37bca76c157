"""The events of the pipeline, besides CallBatch (calls.py) and Rounds (rounds.py).

Every event carries its job, its attempt (an elastic restart is a new attempt) and an event time; `identity()` is
the id that a replay writes again. Time is the time on the event, never that of arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from pacehound.errors import InvalidEvent
from pacehound.identity import event_id

NEVER = -1
"""The sequence number of a rank that has launched, or completed, nothing yet."""

MAX_WORLD_RANKS = 1 << 20
"""No job has more; what is kept about a communicator grows with its largest rank."""

UNKNOWN_MEMBER = -1
"""Stands among the members of a communicator where its host does not know whose place it is."""

UNTOLD = -2
"""Stands where the source does not say how far a rank is: no number, and no less than any other."""

OPTIMIZER_STEP = "optimizer_step"
CHECKPOINT_BEGIN, CHECKPOINT_END = "checkpoint_begin", "checkpoint_end"
EVALUATION_BEGIN, EVALUATION_END = "evaluation_begin", "evaluation_end"
MARKER_NAMES = (OPTIMIZER_STEP, CHECKPOINT_BEGIN, CHECKPOINT_END, EVALUATION_BEGIN, EVALUATION_END)

FindingKind = Literal["slow", "hang", "exit", "intermittent", "change", "planned", "blind"]
VerdictWord = Literal["culprit", "suspected", "unknown"]
Cause = Literal["H1", "H2", "H3", "S1", "S2", "S3"]
IncidentState = Literal["open", "relieved", "closed"]
RunState = Literal["running", "stopped", "exited", "unknown"]
StackState = Literal["in_call", "storage", "data_loading", "lock", "computing", "stopped", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A host says who is in a communicator and which of its own ranks are.

    It stands in `calls` before the first call of that host on the communicator, and in `topology` (compacted).

    Attributes
    ----------
    members
        World ranks in the order of the communicator. NCCL tells a rank its own place and nobody else's: where a source
        knows no more, the places of other hosts' ranks hold `UNKNOWN_MEMBER`, and all hosts together say who is in it.

    """

    job: str
    attempt: int
    time_ns: int
    host: str
    communicator: str
    name: str
    is_world: bool
    members: tuple[int, ...]
    host_ranks: tuple[int, ...]
    world_size: int
    generation: int = 0
    backend: str = ""
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.world_size > MAX_WORLD_RANKS:
            raise InvalidEvent(f"a world of {self.world_size} ranks; at most {MAX_WORLD_RANKS} can be watched")
        if not self.members:
            raise InvalidEvent(f"communicator {self.name!r} has no members")
        known = tuple(rank for rank in self.members if rank != UNKNOWN_MEMBER)
        _check_ranks("members", known, self.world_size)
        if len(self.members) > self.world_size:
            raise InvalidEvent(
                f"communicator {self.name!r} has {len(self.members)} members in a world of {self.world_size} ranks"
            )
        strangers = sorted(set(self.host_ranks) - set(known))
        if strangers:
            raise InvalidEvent(f"host {self.host!r} announces ranks {strangers} that are no members of {self.name!r}")

    @property
    def is_partial(self) -> bool:
        """The host does not know all members."""
        return UNKNOWN_MEMBER in self.members

    def identity(self) -> str:
        """Names (job, attempt, communicator, host, its ranks)."""
        return event_id("topology", self.job, self.attempt, self.communicator, self.host, self.host_ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTransfers:
    """How far one channel of a running call is, as its host's agent has sampled it (CCL-D 4.1.2).

    Attributes
    ----------
    channel
        Its number modulo 8: of more channels, those that are equal so are added up.
    send_count, recv_count
        Network chunks sent and received so far; -1 where there are none to be sent or received.
    send_total, recv_total
        How many there are to be, as far as was announced.
    send_rate, recv_rate
        Chunks per millisecond in the last tenth of a second; `None` where it is not known.
    still_since_ns
        When the counts were first seen as they are: later, by up to a look of the agent, than the last chunk.

    """

    channel: int
    send_count: int = -1
    recv_count: int = -1
    send_total: int = -1
    recv_total: int = -1
    send_rate: float | None = None
    recv_rate: float | None = None
    still_since_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call that was launched and has not completed.

    Attributes
    ----------
    peer
        World rank of the peer (point-to-point) or root (rooted operations), else -1.
    redop
        The reduction, where the source knows it, else `unknown`.
    algorithm
        `ring` or `tree`, where the source knows it: only ranks with the same part in it can be compared.
    has_started
        Whether the device has begun it; `None` where the source cannot see that.
    send_count, recv_count
        Network chunks sent and received for it so far (CCL-D 4.1.2); -1 where the source cannot see them.
    channels
        The same by channel, with rates, for a call that has been running for a second.

    """

    seq: int
    op: str
    count: int
    dtype: str
    launch_ns: int
    peer: int = -1
    direction: str = "none"
    redop: str = "unknown"
    algorithm: str = ""
    has_started: bool | None = None
    send_count: int = -1
    recv_count: int = -1
    channels: tuple[ChannelTransfers, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairProgress:
    """How far one rank is with its calls to (`send`) or from (`recv`) one peer, which are numbered apart."""

    peer: int
    direction: str
    last_launched: int = NEVER
    last_completed: int = NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgress:
    """How far one rank is on one communicator: sequence numbers of its collectives, and what it waits in.

    The numbers may be `NEVER`, or `UNTOLD` from files that leave them open (live sources always count).
    `open` holds the oldest calls alone; `pairs` may be empty where the source does not count point-to-point calls.
    """

    rank: int
    last_launched: int = NEVER
    last_completed: int = NEVER
    open: tuple[OpenCall, ...] = ()
    pairs: tuple[PairProgress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A host's promise: every row of mine on this communicator that ended by `time_ns` has been sent.

    Sent once a second, idle or not, in `calls`, in order with the rows it speaks of.

    Attributes
    ----------
    announced
        On the world communicator only: every communicator that a rank of this host had joined by `time_ns`, so
        that whoever merges the streams of a job knows which ones to wait for.
    marks_iterations
        The optimizer steps of this host's ranks are seen: nobody needs to look for a period in their calls.
    sees_completion
        `last_completed` and the open calls mean something. A source that sees launches alone cannot tell a call that
        is open from one that has ended.
    captured_total
        Calls of this host's ranks on this communicator that went into a CUDA graph; their replays are not seen.
    closed
        Nothing more will come from this host on this communicator.

    """

    job: str
    attempt: int
    time_ns: int
    host: str
    communicator: str
    ranks: tuple[RankProgress, ...]
    announced: tuple[str, ...] = ()
    dropped_total: int = 0
    marks_iterations: bool = False
    sees_completion: bool = True
    captured_total: int = 0
    closed: bool = False

    def identity(self) -> str:
        """Names (job, attempt, communicator, host, time)."""
        return event_id("progress", self.job, self.attempt, self.communicator, self.host, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """What a host's ranks said about their own life: optimizer steps, checkpoints, evaluations.

    Columns of equal length; `steps` counts the optimizer steps of that rank from 0. Travels on the world
    communicator, before the progress that covers its times.
    """

    job: str
    attempt: int
    host: str
    communicator: str
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    steps: tuple[int, ...]
    times_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.ranks), len(self.names), len(self.steps), len(self.times_ns)}
        if len(lengths) != 1:
            raise InvalidEvent(f"marker columns have different lengths: {sorted(lengths)}")
        unknown = sorted(set(self.names) - set(MARKER_NAMES))
        if unknown:
            raise InvalidEvent(f"unknown markers {unknown}; known are {list(MARKER_NAMES)}")

    @property
    def time_ns(self) -> int:
        """The time of its last marker."""
        return max(self.times_ns, default=0)

    def identity(self) -> str:
        """Names (job, attempt, host, first and last marker)."""
        edge = (self.ranks[0], self.steps[0], self.ranks[-1], self.steps[-1]) if self.ranks else ()
        return event_id("markers", self.job, self.attempt, self.host, edge, len(self.ranks), self.time_ns)


@dataclass(frozen=True, slots=True, order=True)
class CallSignature:
    """What a rank calls, as far as its peers must call the same; fields that may differ, or are unknown, are empty.

    `count` and `root` are -1 there.
    """

    op: str
    count: int = -1
    dtype: str = ""
    redop: str = ""
    root: int = -1

    def __str__(self) -> str:
        size = f" of {self.count} {self.dtype}".rstrip() if self.count >= 0 else ""
        redop = f" ({self.redop})" if self.redop else ""
        root = f" with root {self.root}" if self.root >= 0 else ""
        return f"{self.op}{size}{redop}{root}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureMismatch:
    """Ranks have met in one round of a communicator with different calls.

    `called` holds what each rank called, in order of ranks; `time_ns` is when the last of them entered.
    """

    job: str
    attempt: int
    time_ns: int
    communicator: str
    seq: int
    called: tuple[tuple[int, CallSignature], ...]

    def identity(self) -> str:
        """Names (job, attempt, communicator, seq, who is in it)."""
        return event_id(
            "mismatch", self.job, self.attempt, self.communicator, self.seq, [rank for rank, _ in self.called]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has reached `time_ns` and the stream was silent: only what stands in the log may close a silence."""

    job: str
    attempt: int
    time_ns: int
    stream: str

    def identity(self) -> str:
        """Names (job, attempt, stream, time)."""
        return event_id("tick", self.job, self.attempt, self.stream, self.time_ns)


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
        Communication libraries that are at work in it and none of whose calls has been seen for a while.

    """

    rank: int
    pid: int
    state: RunState
    since_ns: int
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The training processes of one host, once a second and at once when one changes.

    `closed` says that the job has ended on this host, and `closed_why` how (`job ended`, `job killed`).
    """

    job: str
    attempt: int
    time_ns: int
    host: str
    processes: tuple[ProcessState, ...]
    closed: bool = False
    closed_why: str = ""

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
    index: int
    ranks: tuple[int, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    sm_clock_mhz: int = 0
    max_sm_clock_mhz: int = 0
    temperature_c: int = 0
    power_w: float = 0.0
    ecc_uncorrected: int = 0
    xid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NicReading:
    """One network interface or InfiniBand port: whether it is up, and its error counters by the kernel's names.

    A counter tells how far it has grown since the agent began to look; one that has not is left out.
    """

    name: str
    state: str
    errors: dict[str, int] = field(default_factory=dict)


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

    rank: int
    pid: int
    local: str
    remote: str
    acked_bytes: int = 0
    received_bytes: int = 0
    retransmitted_bytes: int = 0
    busy_us: int = 0
    unsent_bytes: int = 0
    rtt_us: int = 0
    min_rtt_us: int = 0
    delivery_bytes_per_s: int = 0


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

    rank: int
    pid: int
    ran_ns: int = 0
    waited_ns: int = 0
    throttled_ns: int = 0


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

    count: int
    busy_ns: int = 0
    stolen_ns: int = 0


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
        Calls that another rank of the host told of (pacehound/alike.py) since it began: flushing less often was not
        enough.
    shim_ns_per_call
        What the NCCL shim takes of the calling thread for a call, measured at every 256th; 0 where there is no shim.

    """

    cpu_cores: float = 0.0
    resident_bytes: int = 0
    flush_s: float = 0.0
    dropped_calls: int = 0
    told_by_others: int = 0
    shim_ns_per_call: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVitals:
    """What the hardware of a host says of itself, every few seconds: it raises or lowers a hypothesis.

    `oom_kills` counts processes of the job that the kernel has killed for memory; `agent` is what we ourselves take.
    """

    job: str
    attempt: int
    time_ns: int
    host: str
    gpus: tuple[GpuReading, ...] = ()
    nics: tuple[NicReading, ...] = ()
    sockets: tuple[SocketReading, ...] = ()
    processors: HostProcessors | None = None
    rank_processors: tuple[RankProcessors, ...] = ()
    oom_kills: int = 0
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

    rank: int
    pid: int
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

    """

    job: str
    attempt: int
    time_ns: int
    host: str
    reason: str
    stacks: tuple[RankStack, ...] = ()
    kernel_log: tuple[str, ...] = ()

    def identity(self) -> str:
        """Names (job, attempt, host, time)."""
        return event_id("evidence", self.job, self.attempt, self.host, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """The level of the iteration time changed at `step` by `log_ratio` (0.18 is 20 % slower)."""

    step: int
    log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The changes of level of an earlier run of a job, and how far it got.

    Attributes
    ----------
    name
        What to call it: the path of its log, or its attempt.
    last_step
        The last step it did.
    changes
        In order of their steps.

    """

    name: str
    last_step: int
    changes: tuple[LevelChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """What earlier runs of a job did, as the store remembers it; said once, when a run begins."""

    job: str
    attempt: int
    time_ns: int
    runs: tuple[EarlierRun, ...]

    def identity(self) -> str:
        """Names (job, attempt): it is said once."""
        return event_id("history", self.job, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Stage one to stage two: nothing earlier than `time_ns` will come from this stream any more."""

    job: str
    attempt: int
    time_ns: int
    stream: str

    def identity(self) -> str:
        """Names (job, attempt, stream, time)."""
        return event_id("watermark", self.job, self.attempt, self.stream, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSample:
    """One iteration of a job: when each rank ended it and how long it took.

    Attributes
    ----------
    step
        Optimizer steps of the job before this one; for recurring periods, periods since the first one seen.
    ranks, ends_ns
        World ranks that reported and when each ended the iteration; equal lengths.
    step_time_s
        Median over the ranks of the time since the iteration before; 0 for the first one.
    boundary
        What marks an iteration: `optimizer_step` (the instrument saw it) or `period` (the calls recur).
    planned
        A checkpoint or an evaluation fell into it, by the job's own markers.

    """

    job: str
    attempt: int
    time_ns: int
    communicator: str
    step: int
    ranks: tuple[int, ...]
    ends_ns: tuple[int, ...]
    step_time_s: float
    boundary: Literal["optimizer_step", "period"]
    planned: str = ""

    def identity(self) -> str:
        """Names (job, attempt, communicator, step)."""
        return event_id("iteration", self.job, self.attempt, self.communicator, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A moment of a job: its iteration, where one is known, and its event time."""

    step: int | None
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changepoint:
    """A verified, lasting change of a series' level (onset of a slowdown, or its relief)."""

    job: str
    attempt: int
    series: str
    at: Instant
    detected: Instant
    before_s: float
    after_s: float
    probability: float

    @property
    def magnitude(self) -> float:
        """Relative change: +0.4 is 40 % slower; NaN from a level of zero, for the ratio to it is no number."""
        return self.after_s / self.before_s - 1.0 if self.before_s else math.nan

    @property
    def time_ns(self) -> int:
        """When it could first be said."""
        return self.detected.time_ns

    def identity(self) -> str:
        """Names (job, attempt, series, where it was found)."""
        return event_id("changepoint", self.job, self.attempt, self.series, self.detected.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutlier:
    """A communicator whose transfers take more than 1.1 x the median of its peers (Falcon 4.3)."""

    job: str
    attempt: int
    time_ns: int
    communicator: str
    peers: int
    transfer_s: float
    median_s: float

    def identity(self) -> str:
        """Names (job, attempt, communicator, time)."""
        return event_id("group", self.job, self.attempt, self.communicator, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was concluded, how sure that is, and from what (DESIGN section 10).

    Attributes
    ----------
    id
        The same through all its versions: it names (job, attempt, kind, onset).
    verdict
        `culprit` needs positive evidence; `suspected` names the likeliest; `unknown` names nobody.
    culprits, candidates, victims
        World ranks; `culprits` is empty where the verdict is `unknown`.
    relief
        When it ended; `None` while it lasts.
    magnitude
        Relative change of the iteration time (+0.10 is 10 % slower); `None` for a hang.
    unseen
        What could not be seen and might change the verdict.

    """

    id: str
    job: str
    attempt: int
    kind: FindingKind
    verdict: VerdictWord
    cause: Cause | None
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    onset: Instant | None = None
    detected: Instant | None = None
    relief: Instant | None = None
    magnitude: float | None = None
    lasting: bool = False
    pages: bool = False
    evidence: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    source: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        if self.verdict == "unknown" and self.culprits:
            raise InvalidEvent(f"finding {self.id} names culprits {list(self.culprits)} with the verdict 'unknown'")
        if self.verdict != "unknown" and not self.culprits and not self.links:
            raise InvalidEvent(f"finding {self.id} says {self.verdict!r} and names nobody")

    @property
    def time_ns(self) -> int:
        """When this version of it was said."""
        latest = [i.time_ns for i in (self.onset, self.detected, self.relief) if i is not None]
        return max(latest, default=0)

    def identity(self) -> str:
        """Names the finding and its version."""
        return event_id("finding", self.id, self.version)


FixKind = Literal["worker", "stage", "optype"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixPrice:
    """What a job would gain if one part of it were as the rest.

    Attributes
    ----------
    what, name
        `worker` (its DP rank and stage), `stage` or `optype`, and which.
    ranks
        World ranks of the part; empty for an operation type.
    step_time_s
        Mean simulated step time with it.
    gain
        Relative reduction of the mean step time: the share of the job's GPU-hours that it would give back.

    """

    what: FixKind
    name: str
    ranks: tuple[int, ...]
    step_time_s: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfPrice:
    """What the stragglers of a job cost it in a window of sampled steps (the what-if analysis, live).

    Attributes
    ----------
    first_step, last_step, n_steps
        The window; sampled steps are not consecutive.
    ranks
        World size.
    recorded_s, original_s, ideal_s
        Mean step times: as recorded; simulated as it was, without launch delays; simulated without stragglers.
    slowdown, waste
        Original over ideal, and the share of the GPU-hours that is lost by it.
    discrepancy
        How far the simulated original lies from what was recorded; beyond 0.05 the rest should not be believed.
    fixes
        What fixing one part would give back, the best first.
    patterns
        Known causes that the window shows.

    """

    job: str
    attempt: int
    time_ns: int
    first_step: int
    last_step: int
    n_steps: int
    ranks: int
    recorded_s: float
    original_s: float
    ideal_s: float
    slowdown: float
    waste: float
    discrepancy: float
    fixes: tuple[FixPrice, ...] = ()
    patterns: tuple[str, ...] = ()

    def identity(self) -> str:
        """Names (job, attempt, window)."""
        return event_id("what-if", self.job, self.attempt, self.first_step, self.last_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an incident has cost so far: excess time x ranks.

    `what_if` is the price of the job's stragglers in the last window of sampled steps, where operations are recorded.
    """

    excess_s: float = 0.0
    ranks: int = 0
    gpu_hours: float = 0.0
    what_if: WhatIfPrice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Findings that belong together, with a life: open, updated, relieved, closed.

    `id` stays for its life (job, attempt, first finding); `version` counts what was said about it.
    """

    id: str
    version: int
    job: str
    attempt: int
    time_ns: int
    state: IncidentState
    opened_ns: int
    closed_ns: int | None = None
    closed_why: str | None = None
    findings: tuple[Finding, ...] = ()
    cost: Cost = field(default_factory=Cost)

    def identity(self) -> str:
        """Names the incident and its version."""
        return event_id("incident", self.id, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Somebody has been told of a state of an incident: whoever tells the next time knows it from here.

    `idempotency_key` is the one that the receiver was shown.
    """

    job: str
    attempt: int
    time_ns: int
    incident: str
    state: IncidentState
    idempotency_key: str

    def identity(self) -> str:
        """Names (incident, state)."""
        return event_id("notification", self.incident, self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the actuators would do, or did, about an incident; recorded whether taken or not.

    Attributes
    ----------
    action
        `ignore`, `adjust_microbatches`, `adjust_topology`, `checkpoint_restart`, or `resume_rank` ….
    price_s
        What the action would cost the job, in seconds.
    loss_s
        What the incident had cost by then, in seconds.
    aimed_at
        The ranks that were named by then, and the ends of the links; whoever is named later is decided about anew.
    taken
        False in observe mode, always.

    """

    job: str
    attempt: int
    time_ns: int
    incident: str
    incident_version: int
    mode: Literal["observe", "approve", "auto"]
    action: str
    reason: str
    price_s: float
    loss_s: float
    aimed_at: tuple[int, ...] = ()
    taken: bool = False

    def identity(self) -> str:
        """Names (incident, action, whom it is aimed at)."""
        return event_id("decision", self.incident, self.action, *self.aimed_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be processed: its bytes, where it stood, and why.

    Attributes
    ----------
    key
        Its key; bytes of a foreign key that are no UTF-8 are replaced.
    replayed_ns
        When its bytes were put on their topic again; 0 while they were not. A letter that was replayed is said once
        more, with this set.

    """

    source_topic: str
    partition: int
    offset: int
    time_ns: int
    error: str
    reason: str
    payload: bytes = field(repr=False)
    job: str = ""
    attempt: int = 0
    key: str = ""
    replayed_ns: int = 0

    def identity(self) -> str:
        """Names (topic, partition, offset)."""
        return event_id("dead-letter", self.source_topic, self.partition, self.offset)


def members_agree(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether both can be right about who is in a communicator, in its order, each as far as it knows.

    >>> members_agree((4, UNKNOWN_MEMBER), (4, 6)), members_agree((4, UNKNOWN_MEMBER), (5, 6))
    (True, False)
    """
    if one == other:
        return True
    return len(one) == len(other) and all(
        mine == theirs or UNKNOWN_MEMBER in (mine, theirs) for mine, theirs in zip(one, other, strict=True)
    )


def _check_ranks(name: str, ranks: tuple[int, ...], world_size: int) -> None:
    outside = [rank for rank in ranks if not 0 <= rank < world_size]
    if outside:
        raise InvalidEvent(f"{name} {outside} are outside the world of {world_size} ranks")
    if len(set(ranks)) != len(ranks):
        raise InvalidEvent(f"{name} {list(ranks)} has a rank twice")
