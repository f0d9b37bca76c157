"""What the agent of a host says of the calls of its ranks: communicators, progress, markers."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.errors import InvalidEvent
from pacehound.model.by_the_hundred import ByTheHundred
from pacehound.model.evenly_spaced import SHARED
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64

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

HOLD_BEGIN, HOLD_END = "hold_begin", "hold_end"
"""Said by the agent: a rank is held for a controller."""

MARKER_NAMES = (
    OPTIMIZER_STEP, CHECKPOINT_BEGIN, CHECKPOINT_END, EVALUATION_BEGIN, EVALUATION_END, HOLD_BEGIN, HOLD_END,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A host says who is in a communicator and which of its own ranks are.

    It stands in `calls` before the first call of that host on the communicator. Workers keep it on `topology`.

    Attributes
    ----------
    members
        World ranks in the order of the communicator. NCCL tells a rank its own place and nobody else's: where a source
        knows no more, the places of other hosts' ranks hold `UNKNOWN_MEMBER`, and all hosts together say who is in it.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    host: str
    communicator: str
    name: str
    is_world: bool
    members: tuple[Int64, ...]
    host_ranks: tuple[Int64, ...]
    world_size: Int64
    generation: Int64 = 0
    backend: str = ""
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.world_size > MAX_WORLD_RANKS:
            raise InvalidEvent(f"a world of {self.world_size} ranks; at most {MAX_WORLD_RANKS} can be watched")
        if not self.members:
            raise InvalidEvent(f"communicator {self.name!r} has no members")
        spaced, known = SHARED.made(self.members), self.members
        if spaced is None:
            if UNKNOWN_MEMBER in known:
                known = tuple(rank for rank in known if rank != UNKNOWN_MEMBER)
            _check_ranks("members", known, self.world_size)
        else:
            _check_ranks("members", (spaced[0], spaced[-1]), self.world_size)
        if len(self.members) > self.world_size:
            raise InvalidEvent(
                f"communicator {self.name!r} has {len(self.members)} members in a world of {self.world_size} ranks"
            )
        among = set(known) if spaced is None else spaced
        not_members = sorted(rank for rank in set(self.host_ranks) if rank not in among)
        if not_members:
            raise InvalidEvent(f"host {self.host!r} announces ranks {not_members} that are no members of {self.name!r}")

    @property
    def is_partial(self) -> bool:
        """The host does not know all members."""
        return SHARED.made(self.members) is None and UNKNOWN_MEMBER in self.members

    def identity(self) -> str:
        """Names (job, attempt, communicator, host, its ranks)."""
        return event_id("topology", self.job, self.attempt, self.communicator, self.host, self.host_ranks)


class ChannelTransfers(ByTheHundred, frozen=True, kw_only=True):
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

    channel: Int64
    send_count: Int64 = -1
    recv_count: Int64 = -1
    send_total: Int64 = -1
    recv_total: Int64 = -1
    send_rate: float | None = None
    recv_rate: float | None = None
    still_since_ns: Int64 = 0


class OpenCall(ByTheHundred, frozen=True, kw_only=True):
    """A call that was launched and has not completed.

    Attributes
    ----------
    peer
        World rank of the peer (point-to-point) or root (rooted operations), else -1.
    redop
        The reduction, where the source knows it, else `unknown`.
    algorithm
        `ring` or `tree`, where the source knows it: only ranks with the same part in it can be compared.
    protocol
        `ll`, `ll128` or `simple`, where the source knows it.
    has_started
        Whether the device has begun it; `None` where the source cannot see that.
    send_count, recv_count
        Network chunks sent and received for it so far (CCL-D 4.1.2); -1 where the source cannot see them.
    channels
        The same by channel, with rates, for a call that has been running for a second.

    """

    seq: Int64
    op: str
    count: Int64
    dtype: str
    launch_ns: Int64
    peer: Int64 = -1
    direction: str = "none"
    redop: str = "unknown"
    algorithm: str = ""
    protocol: str = ""
    has_started: bool | None = None
    send_count: Int64 = -1
    recv_count: Int64 = -1
    channels: tuple[ChannelTransfers, ...] = ()


class PairProgress(ByTheHundred, frozen=True, kw_only=True):
    """How far one rank is with its calls to (`send`) or from (`recv`) one peer, which are numbered apart."""

    peer: Int64
    direction: str
    last_launched: Int64 = NEVER
    last_completed: Int64 = NEVER


class RankProgress(ByTheHundred, frozen=True, kw_only=True):
    """How far one rank is on one communicator: sequence numbers of its collectives, and what it waits in.

    The numbers may be `NEVER`, or `UNTOLD` from files that leave them open (live sources always count).
    `open` holds the oldest calls alone; `pairs` may be empty where the source does not count point-to-point calls.
    """

    rank: Int64
    last_launched: Int64 = NEVER
    last_completed: Int64 = NEVER
    open: tuple[OpenCall, ...] = ()
    pairs: tuple[PairProgress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferEdge:
    """A rank was seen to send to another one over the network, or to receive from it.

    Attributes
    ----------
    algorithm
        Of the call that did: the same channel has other edges in a ring than in a tree.
    channel
        Its number modulo 8.
    sender, receiver
        Places in the communicator.

    """

    algorithm: str
    channel: Int64
    sender: Int64
    receiver: Int64


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
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
    edges
        Over which its ranks' calls have sent and received, as far as the source sees it: each is told once, when it is
        new.
    skipped_rounds
        Stage one adds it: so many rounds of the communicator nobody has told of, until it was begun anew behind them.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    host: str
    communicator: str
    ranks: tuple[RankProgress, ...]
    announced: tuple[str, ...] = ()
    dropped_total: Int64 = 0
    marks_iterations: bool = False
    sees_completion: bool = True
    captured_total: Int64 = 0
    closed: bool = False
    edges: tuple[TransferEdge, ...] = ()
    skipped_rounds: Int64 = 0

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
    attempt: Int64
    host: str
    communicator: str
    ranks: tuple[Int64, ...]
    names: tuple[str, ...]
    steps: tuple[Int64, ...]
    times_ns: tuple[Int64, ...]

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


def members_agree(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether both can be right about who is in a communicator, in its order, each as far as it knows.

    >>> members_agree((4, UNKNOWN_MEMBER), (4, 6)), members_agree((4, UNKNOWN_MEMBER), (5, 6))
    (True, False)
    """
    if one is other or one == other:  # a tuple that is compared with itself is gone through
        return True
    return len(one) == len(other) and all(
        mine == theirs or UNKNOWN_MEMBER in (mine, theirs) for mine, theirs in zip(one, other, strict=True)
    )


def _check_ranks(name: str, ranks: tuple[int, ...], world_size: int) -> None:
    if ranks and not 0 <= min(ranks) <= max(ranks) < world_size:
        outside = [rank for rank in ranks if not 0 <= rank < world_size]
        raise InvalidEvent(f"{name} {outside} are outside the world of {world_size} ranks")
    if len(set(ranks)) != len(ranks):
        raise InvalidEvent(f"{name} {list(ranks)} has a rank twice")
