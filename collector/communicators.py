"""What is known of each communicator and of each ordered line of calls on it; all of it can be saved and restored."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from numpy import frombuffer

from collector.sources import rings
from collector.sources.rings import Records
from pacehound.calls import SOURCES, Sees
from pacehound.clock import ClockPair
from pacehound.errors import InvalidEvent
from pacehound.events import NEVER, Topology

BACKENDS = ("", "gloo", "nccl", "mpi", "ucc")  # position = the backend code of a PH_GROUP record
GLOO = BACKENDS.index("gloo")
_HOST_TIMED = {SOURCES.index("profiler")}
_HOOKS = (SOURCES.index("c10d"),)
_C10D = {SOURCES.index("unknown"), *_HOOKS}

MAX_WORLD_SIZE = (1 << 20) - 2
"""Ranks fit into 20 bits of a lane's number, peer + 1 as well."""


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

    @property
    def id(self) -> str:
        """Its name in events."""
        return self.handle.hex()

    @property
    def sees_completion(self) -> bool:
        """Whether every source of its calls sees when they end; before the first call, whether the hooks would."""
        return all(Sees.END in sees(source, self.backend) for source in self.sources or _HOOKS)

    def drop(self, calls: int) -> None:
        """Note that calls were lost; the next batch and the next progress say so."""
        self.dropped_unsaid += calls
        self.dropped_total += calls

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


class Lane(msgspec.Struct, array_like=True):
    """One line of calls in order: a rank's collectives on a communicator, or its calls to or from one peer."""

    first_seq: int = -1
    last_launched: int = NEVER
    launched: int = 0
    last_completed: int = NEVER
    last_end_ns: int = 0
    missing_before: int = 0
    missing_said: int = 0

    def newly_missing(self, from_zero: bool) -> int:
        """How many more calls of this lane are known to be lost than were said so far.

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
    """A PH_GROUP record whose PH_MEMBERS are still to come; or, with `index`, the other ranks' PH_PLACE."""

    record: bytes
    rank: int
    attempt: int
    members: list[int]
    index: int = -1
    is_gone: bool = False
    """The rank has destroyed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A rank of this host has joined a communicator."""

    rank: int
    communicator: Communicator


UNPLACED_NS = 10_000_000_000
"""Ranks of one host make a communicator at the same time: who has not said its place by then is on another host."""
FORGET_NS = 60_000_000_000
"""By then nothing of a communicator that is gone waits any more."""


class GroupReader:
    """Puts the records of a group together: PH_GROUP and PH_MEMBERS per rank and handle, or PH_PLACE over all ranks.

    Parameters
    ----------
    pending
        What an earlier reader had not finished.

    """

    def __init__(self, pending: dict[bytes, PendingGroup] | None = None) -> None:
        self.pending = pending if pending is not None else {}

    def take(self, record: Records, attempt: int) -> list[Joined]:
        """One record of these kinds, shape `(1,)`; who has joined, once all members are known.

        Raises
        ------
        InvalidEvent
            What the record says cannot be.

        """
        prefix = record.view(rings.CALL)[0]
        kind, rank = int(prefix["kind"]), int(prefix["rank"])
        handle = bytes(prefix["handle"])
        key = handle + rank.to_bytes(4, "little")
        if kind == rings.GROUP:
            self.pending[key] = PendingGroup(record.tobytes(), rank, attempt, [])
        group = self.pending.get(key)
        if group is None:
            return []
        if kind == rings.PLACE:
            index, size = int(record.view(rings.PLACE_BODY)[0]["index"]), _n_members(group)
            if not 0 <= index < size:
                del self.pending[key]
                raise InvalidEvent(f"rank {rank} says it has place {index} in a communicator of {size}")
            group.index = index
            return self._all_placed(handle)
        if kind == rings.MEMBERS:
            body = record.view(rings.MEMBERS_BODY)[0]
            count = min(max(int(body["n_members"]), 0), rings.MEMBERS_PER_RECORD)
            group.members += [int(member) for member in body["members"][:count]]
        if len(group.members) < _n_members(group):
            return []
        del self.pending[key]
        return [_joined(group)]

    def unplaced(self, now_ns: int) -> set[bytes]:
        """Handles of communicators whose other members are on other hosts: nobody here can say who they are."""
        for key, group in list(self.pending.items()):
            if group.is_gone and _created_ns(group) + FORGET_NS < now_ns:
                del self.pending[key]
        return {
            key[:16]
            for key, group in self.pending.items()
            if group.index >= 0 and _created_ns(group) + UNPLACED_NS < now_ns
        }

    def leave(self, handle: bytes, rank: int) -> None:
        """A rank has destroyed a communicator, whether its members ever were known or not."""
        group = self.pending.get(handle + rank.to_bytes(4, "little"))
        if group is not None:
            group.is_gone = True

    def _all_placed(self, handle: bytes) -> list[Joined]:
        placed = {key: group for key, group in self.pending.items() if key[:16] == handle and group.index >= 0}
        members = [group.rank for group in sorted(placed.values(), key=lambda group: group.index)]
        wanted = _n_members(next(iter(placed.values())))
        if len(members) < wanted:
            return []
        for key, group in placed.items():
            group.members = members
            del self.pending[key]
        if sorted(group.index for group in placed.values()) != list(range(wanted)):
            raise InvalidEvent(
                f"ranks {members} say that they have places {[group.index for group in placed.values()]} "
                f"in a communicator of {wanted}"
            )
        return [_joined(group) for group in placed.values()]


def _created_ns(group: PendingGroup) -> int:
    return int(frombuffer(group.record, rings.GROUP_BODY)[0]["created_ns"])


def _n_members(group: PendingGroup) -> int:
    return int(frombuffer(group.record, rings.GROUP_BODY)[0]["n_members"])


def _joined(group: PendingGroup) -> Joined:
    body = frombuffer(group.record, rings.GROUP_BODY)[0]
    name = bytes(body["name"]).split(b"\0", 1)[0].decode(errors="replace")
    world_size = int(body["world_size"])
    members = tuple(group.members)
    if not 0 < world_size <= MAX_WORLD_SIZE:
        raise InvalidEvent(f"group {name!r} says its world has {world_size} ranks")
    if group.rank not in members or len(set(members)) != len(members):
        raise InvalidEvent(f"rank {group.rank} says it joined {name!r} with members {list(members)}")
    if min(members) < 0 or max(members) >= world_size:
        raise InvalidEvent(f"group {name!r} has members {list(members)} outside its world of {world_size}")
    communicator = Communicator(
        handle=bytes(body["handle"]),
        attempt=group.attempt,
        name=name,
        is_world=bool(body["is_world"]),
        members=members,
        world_size=world_size,
        generation=int(body["generation"]),
        backend=int(body["backend"]),
        timeout_ms=int(body["timeout_ms"]),
        created_ns=int(body["created_ns"]),
    )
    return Joined(rank=group.rank, communicator=communicator)
