"""What is known of each communicator and of each sequence of calls on it; all of it can be saved and restored."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from collector.calls import rings
from collector.calls.rings import Records
from pacehound.clock import ClockPair
from pacehound.errors import InvalidEvent
from pacehound.model.calls import FIRST_PLACE, SOURCES, Sees
from pacehound.model.codes import ALGORITHMS
from pacehound.model.events import NEVER, UNKNOWN_MEMBER, Topology, TransferEdge, members_agree

BACKENDS = ("", "gloo", "nccl", "mpi", "ucc")  # position = the backend code of a PH_GROUP record
GLOO = BACKENDS.index("gloo")
_HOST_TIMED = {SOURCES.index("profiler")}
_HOOKS = (SOURCES.index("c10d"),)
_C10D = {SOURCES.index("unknown"), *_HOOKS}

MAX_WORLD_SIZE = (1 << 20) - 2
"""Ranks fit into 20 bits of a sequence's key, peer + 1 as well."""
MAX_CREATED_NS = 1 << 61
"""A monotonic time above it is damage, and could not be told as Unix time."""


def sees(source: int, backend: int) -> Sees:
    """Which instants of a call a source sees on a backend (the table of DESIGN section 4).

    >>> sees(SOURCES.index("c10d"), BACKENDS.index("gloo")) == Sees.ALL
    True
    >>> sees(SOURCES.index("c10d"), BACKENDS.index("nccl")) == Sees.LAUNCH
    True
    """
    if source in _HOST_TIMED or (source in _C10D and backend == GLOO):
        return Sees.ALL
    return Sees.LAUNCH


class Communicator(msgspec.Struct, kw_only=True):
    """One communicator that ranks of this host have joined; times are monotonic."""

    handle: bytes
    attempt: int
    name: str
    is_world: bool
    members: tuple[int, ...]
    """World ranks in its order, `UNKNOWN_MEMBER` where none of this host stands and its source does not say who."""
    counts_places: bool = False
    """Its source names peers by their places in it."""
    world_size: int
    generation: int
    backend: int
    timeout_ms: int
    created_ns: int
    host_ranks: list[int] = []
    announced_ranks: int = 0
    """How many of the host's ranks the last Topology named; it is said again when one joins."""
    left: list[int] = []
    """Ranks that destroyed it or whose process is gone: nothing of theirs will come."""
    sources: list[int] = []
    """Which sources have told of calls on it."""
    captured_total: int = 0
    """Calls that went into a CUDA graph."""
    ordinals: dict[int, int] = {}
    """The next batch's number, by source."""
    first_ordinal: int = 0
    dropped_unsaid: int = 0
    dropped_total: int = 0
    closed: bool = False
    edges: list[tuple[int, int, int, int]] = []
    """Edges that were seen and that no progress has told of yet: algorithm, channel, sender and receiver, by place."""

    @property
    def id(self) -> str:
        """Its name in events."""
        return self.handle.hex()

    @property
    def sees_completion(self) -> bool:
        """Whether every source of its calls sees when they end; before the first call, whether the hooks would."""
        return all(Sees.END in sees(source, self.backend) for source in self.sources or _HOOKS)

    def admit(self, rank: int, members: tuple[int, ...]) -> None:
        """A rank joins, and says who is in it, or where it stands.

        Raises
        ------
        InvalidEvent
            Others say otherwise.

        """
        joined = self.members
        if self.counts_places:
            joined = tuple(map(max, self.members, members))
            agrees = members_agree(self.members, members) and joined.count(rank) == 1
        else:
            agrees = sorted(members) == sorted(self.members)
        if not agrees:
            raise InvalidEvent(
                f"rank {rank} says {self.id} has members {list(members)}, others say it has {list(self.members)}"
            )
        self.members = joined

    def named(self, peer: int) -> int:
        """A peer as events name it: its world rank, or its place where this host knows no more.

        >>> pair = Communicator(handle=b"", attempt=0, name="", is_world=False, members=(UNKNOWN_MEMBER, 7),
        ...                     world_size=8, generation=0, backend=2, timeout_ms=0, created_ns=0, counts_places=True)
        >>> pair.named(-1), pair.named(0), pair.named(1)
        (-1, -2, 7)
        """
        if not self.counts_places or peer < 0:
            return peer
        rank = self.members[peer]
        return FIRST_PLACE - peer if rank == UNKNOWN_MEMBER else rank

    def all_named(self, peers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Each of a column of peers, shape `(n,)`."""
        if not self.counts_places:
            return peers
        different, at = np.unique(peers, return_inverse=True)
        return np.array([self.named(peer) for peer in different.tolist()], np.int32)[at]

    def drop(self, calls: int) -> None:
        """Note that calls were lost; the next batch and the next progress say so."""
        self.dropped_unsaid += calls
        self.dropped_total += calls

    def take_edges(self) -> tuple[TransferEdge, ...]:
        """The edges that are new, for the next progress."""
        news, self.edges = sorted(set(self.edges)), []
        return tuple(
            TransferEdge(algorithm=ALGORITHMS[algorithm], channel=channel, sender=sender, receiver=receiver)
            for algorithm, channel, sender, receiver in news
        )

    def needs_announcing(self) -> bool:
        """Whether a rank of this host has joined since it was last asked."""
        is_news = self.announced_ranks < len(self.host_ranks)
        self.announced_ranks = len(self.host_ranks)
        return is_news

    def topology(self, job: str, host: str, clock: ClockPair) -> Topology:
        """Who is in it, and which of them are here."""
        return Topology(
            job=job,
            attempt=self.attempt,
            time_ns=clock.to_unix_ns(self.created_ns),
            host=host,
            communicator=self.id,
            name=self.name,
            is_world=self.is_world,
            members=self.members,
            host_ranks=tuple(sorted(self.host_ranks)),
            world_size=self.world_size,
            generation=self.generation,
            backend=BACKENDS[self.backend] if self.backend < len(BACKENDS) else "",
            timeout_s=self.timeout_ms / 1000 if self.timeout_ms else None,
        )


class CallSequence(msgspec.Struct, array_like=True):
    """Calls that follow each other: a rank's collectives on a communicator, or its calls to (or from) one peer."""

    first_seq: int = -1
    last_launched: int = NEVER
    launched: int = 0
    last_completed: int = NEVER
    last_end_ns: int = 0
    missing_before: int = 0
    missing_said: int = 0

    def newly_missing(self, from_zero: bool) -> int:
        """How many more calls of this sequence are known to be lost than were reported so far.

        A gap counts when it was there one look earlier too: two threads may write their records out of order.
        """
        first = 0 if from_zero else self.first_seq
        missing = max(self.last_launched + 1 - first - self.launched, 0)
        new = max(min(missing, self.missing_before) - self.missing_said, 0)
        self.missing_before = missing
        self.missing_said += new
        return new

    def has_gap(self, from_zero: bool) -> bool:
        """Whether there is anything for `newly_missing` to look at."""
        first = 0 if from_zero else self.first_seq
        return self.last_launched + 1 - first - self.launched > self.missing_said or self.missing_before > 0


class PendingGroup(msgspec.Struct):
    """A PH_GROUP record of which PH_MEMBERS or PH_PLACE are still to come."""

    record: bytes
    rank: int
    attempt: int
    members: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A rank of this host has joined a communicator."""

    rank: int
    communicator: Communicator


class GroupReader:
    """Puts the records of a group together, per rank and handle: PH_GROUP, then PH_MEMBERS or PH_PLACE.

    Parameters
    ----------
    pending
        What an earlier reader had not finished.

    """

    def __init__(self, pending: dict[bytes, PendingGroup] | None = None) -> None:
        self.pending = pending if pending is not None else {}

    def take(self, record: Records, attempt: int) -> Joined | None:
        """One record of these kinds, shape `(1,)`; who has joined, once all is known that the rank says.

        Raises
        ------
        InvalidEvent
            What the record says cannot be.

        """
        prefix = record.view(rings.CALL)[0]
        kind, rank = int(prefix["kind"]), int(prefix["rank"])
        key = bytes(prefix["handle"]) + rank.to_bytes(4, "little")
        if kind == rings.GROUP:
            self.pending[key] = PendingGroup(record.tobytes(), rank, attempt, [])
        group = self.pending.get(key)
        if group is None:
            return None
        if kind == rings.PLACE:
            del self.pending[key]
            return _placed(group, int(record.view(rings.PLACE_BODY)[0]["index"]))
        if kind == rings.MEMBERS:
            body = record.view(rings.MEMBERS_BODY)[0]
            count = min(max(int(body["n_members"]), 0), rings.MEMBERS_PER_RECORD)
            group.members += [int(member) for member in body["members"][:count]]
        if len(group.members) < _n_members(group):
            return None
        del self.pending[key]
        return _joined(group, tuple(group.members))


def _n_members(group: PendingGroup) -> int:
    return int(np.frombuffer(group.record, rings.GROUP_BODY)[0]["n_members"])


def _placed(group: PendingGroup, place: int) -> Joined:
    """The group of a rank that knows nobody's place but its own."""
    size = _n_members(group)
    if not 0 <= place < size <= MAX_WORLD_SIZE:
        raise InvalidEvent(f"rank {group.rank} says it has place {place} in a communicator of {size}")
    members = [UNKNOWN_MEMBER] * size
    members[place] = group.rank
    return _joined(group, tuple(members), counts_places=True)


def _joined(group: PendingGroup, members: tuple[int, ...], *, counts_places: bool = False) -> Joined:
    body = np.frombuffer(group.record, rings.GROUP_BODY)[0]
    name = rings.text_of(body["name"])
    world_size = int(body["world_size"])
    if not 0 < world_size <= MAX_WORLD_SIZE:
        raise InvalidEvent(f"group {name!r} says its world has {world_size} ranks")
    created_ns = int(body["created_ns"])
    if created_ns >= MAX_CREATED_NS:
        raise InvalidEvent(f"group {name!r} was made {created_ns} ns after the machine was started")
    known = [member for member in members if not (counts_places and member == UNKNOWN_MEMBER)]
    if group.rank not in known or len(set(known)) != len(known):
        raise InvalidEvent(f"rank {group.rank} says it joined {name!r} with members {list(members)}")
    if min(known) < 0 or max(known) >= world_size or len(members) > world_size:
        raise InvalidEvent(f"group {name!r} has members {list(members)} outside its world of {world_size}")
    communicator = Communicator(
        handle=bytes(body["handle"]),
        attempt=group.attempt,
        name=name,
        is_world=bool(body["is_world"]),
        members=members,
        counts_places=counts_places,
        world_size=world_size,
        generation=int(body["generation"]),
        backend=int(body["backend"]),
        timeout_ms=int(body["timeout_ms"]),
        created_ns=created_ns,
    )
    return Joined(rank=group.rank, communicator=communicator)
