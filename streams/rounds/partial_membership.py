"""Communicators of whose members each host knows its own alone.

NCCL tells a rank its own place in a communicator and nobody else's, so the shim and the profiler plugin of one host
cannot say who stands at the places of the others. Here, where the word of all hosts comes together, the members are
known once every place is taken. Until then calls wait; peers that were named by their places get their ranks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from pacehound.errors import InvalidEvent
from pacehound.model.calls import CALL_SCHEMA, FIRST_PLACE, NO_PEER, CallBatch, Sees
from pacehound.model.events import UNKNOWN_MEMBER, Markers, Progress, Tick, Topology, Watermark
from pacehound.model.flushes import Heartbeat
from streams.rounds.call_rows import CallRows
from streams.rounds.communicator import CommunicatorOperator, StageOneEvent
from streams.rounds.digest_table import DigestTable
from streams.rounds.giving_up import Patience
from streams.rounds.merge import CLOSED_NS

MAX_WAITING_CALLS = 1 << 16
"""Of a communicator whose members are not known yet; beyond it the oldest batches are dropped and counted."""
MAX_WAITING_MARKERS = 1 << 12

_PEER = CALL_SCHEMA.get_field_index("peer")


class PartialCommunicator:
    """Puts the members together, then is what `CommunicatorOperator` is.

    A host that never says where its ranks stand (no agent, another source) leaves the members unknown. Nothing is
    concluded from such a communicator; what waits counts as lost in what is passed on, and time goes on without it.

    `lateness_ns` and `shared` are as in `CommunicatorOperator`; the first is also how long others wait for members that
    are not known.
    """

    def __init__(self, topology: Topology, lateness_ns: int, shared: DigestTable | None = None) -> None:
        self.job = topology.job
        self.attempt = topology.attempt
        self.communicator = topology.communicator
        self._is_world = topology.is_world
        self._members = np.full(len(topology.members), UNKNOWN_MEMBER, np.int32)
        self._places: dict[int, int] = {}  # by rank
        self._created_ns = topology.time_ns
        self._lateness_ns = lateness_ns
        self._announced: dict[str, Topology] = {}
        self._calls: deque[CallBatch] = deque()
        self._n_calls = 0
        self._dropped: Counter[str] = Counter()
        self._markers: deque[Markers] = deque(maxlen=MAX_WAITING_MARKERS)
        self._progress: dict[str, Progress] = {}
        self._tick: Tick | None = None
        self._passed_on: dict[str, Progress] = {}
        self._is_closed = False
        self._patience = Patience()
        self._operator: CommunicatorOperator | None = None
        self._shared = shared

    @property
    def joining(self) -> CommunicatorOperator | None:
        """What it is once all members are known."""
        return self._operator

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that have announced themselves and are not closed."""
        if self._operator is not None:
            return self._operator.hosts
        return tuple(host for host in self._announced if host not in self._progress or not self._progress[host].closed)

    @property
    def announced(self) -> Collection[str]:
        """Hosts that have announced themselves, in that order."""
        return self._announced.keys() if self._operator is None else self._operator.announced

    @property
    def is_complete(self) -> bool:
        """Every member has been claimed by a host."""
        return self._operator is not None and self._operator.is_complete

    @property
    def is_closed(self) -> bool:
        """All its hosts have said that nothing more will come, or those that were heard of."""
        return self._is_closed if self._operator is None else self._operator.is_closed

    def on_topology(self, topology: Topology) -> list[StageOneEvent]:
        """A host says where its ranks stand; with the last one the calls that have waited go on their way."""
        if self._operator is not None:
            return self._operator.on_topology(topology)
        if len(topology.members) != len(self._members):
            raise InvalidEvent(
                f"host {topology.host!r} says communicator {self.communicator} has {len(topology.members)} members; "
                f"it was announced with {len(self._members)}"
            )
        announced_places = {rank: place for place, rank in enumerate(topology.members) if rank != UNKNOWN_MEMBER}
        for rank, place in announced_places.items():
            if self._members[place] not in (UNKNOWN_MEMBER, rank) or self._places.get(rank, place) != place:
                raise InvalidEvent(
                    f"host {topology.host!r} says rank {rank} has place {place} of communicator {self.communicator}; "
                    f"its members, as far as they are known, are {self._members[:8].tolist()}"
                )
        self._members[list(announced_places.values())] = list(announced_places)
        self._places |= announced_places
        known = self._announced.get(topology.host)
        if known is None or set(known.host_ranks) <= set(topology.host_ranks):
            self._announced[topology.host] = topology
        return self._complete() if len(self._places) == len(self._members) else []

    def on_calls(self, batch: CallBatch) -> list[StageOneEvent]:
        """A host's rows: they wait while it is not known whose they meet."""
        if self._operator is not None:
            return self._operator.on_calls(self._named_calls(batch))
        self._require_announced(batch.host, "calls")
        self._require_known(np.unique(batch.integers("rank")).tolist(), "ranks")
        self._require_peers(np.unique(batch.integers("peer")).tolist())
        self._calls.append(batch)
        self._n_calls += len(batch)
        while self._n_calls > MAX_WAITING_CALLS:
            oldest = self._calls.popleft()
            self._n_calls -= len(oldest)
            self._dropped[oldest.host] += len(oldest)
        return []

    @property
    def takes_rows(self) -> bool:
        """Every member is known, so that rows need not wait."""
        return self._operator is not None

    def on_rows(
        self, rows: CallRows, where: slice, hosts: Iterable[str], sees: Sees, source: str, dropped: int
    ) -> list[StageOneEvent]:
        """Rows of hosts as columns; as `CommunicatorOperator.on_rows`, where every member is known."""
        assert self._operator is not None
        return self._operator.on_rows(self.named_rows(rows, where), where, hosts, sees, source, dropped)

    def named_rows(self, rows: CallRows, where: slice) -> CallRows:
        """Peers by rank."""
        peers = self._named_peers(rows.peer[where])
        return rows if peers is None else rows.with_peers(where, peers)

    def on_markers(self, markers: Markers) -> list[StageOneEvent]:
        """Optimizer steps and planned pauses of a host's ranks."""
        if self._operator is not None:
            return self._operator.on_markers(markers)
        if not self._is_world:
            raise InvalidEvent(f"markers of host {markers.host!r} stand on {self.communicator}, which is not the world")
        self._require_known(set(markers.ranks), "markers of ranks")
        self._markers.append(markers)
        return []

    def on_progress(self, progress: Progress) -> list[StageOneEvent]:
        """A host promises that all its rows up to a time have been sent; of those that wait, the last one counts."""
        return [*self.on_promise(progress), *self.advance()]

    def advance(self) -> list[StageOneEvent]:
        """What follows from promises that were taken, once every member is known."""
        return [] if self._operator is None else self._operator.advance()

    def on_promise(self, progress: Progress) -> list[StageOneEvent]:
        """The same promise; what follows from it is told when somebody asks (`advance`)."""
        if self._operator is not None:
            return self._operator.on_promise(self._named_progress(progress))
        self._require_announced(progress.host, "progress")
        self._require_known({theirs.rank for theirs in progress.ranks}, "progress of ranks")
        self._require_peers(_peers(progress))
        before = self._progress.get(progress.host)
        if before is None or before.time_ns <= progress.time_ns:
            self._progress[progress.host] = progress
        self._patience.renew()
        return []

    def on_heartbeats(self, beats: Sequence[tuple[str, Heartbeat]]) -> list[StageOneEvent]:
        """Hosts promise the same up to a later time."""
        if self._operator is not None:
            return self._operator.on_heartbeats(beats)
        self.take_heartbeats(beats)
        return []

    def take_heartbeats(self, beats: Sequence[tuple[str, Heartbeat]]) -> None:
        """The same; what follows from it is told when somebody asks (`advance`)."""
        if self._operator is not None:
            self._operator.take_heartbeats(beats)
            return
        for host, heartbeat in beats:
            self._require_announced(host, "heartbeat")
            before = self._progress.get(host) or Progress(
                job=self.job,
                attempt=self.attempt,
                time_ns=heartbeat.time_ns,
                host=host,
                communicator=self.communicator,
                ranks=(),
            )
            self.on_promise(replace(before, time_ns=heartbeat.time_ns))

    def on_tick(self, tick: Tick, among: Collection[str] | None = None) -> list[StageOneEvent]:
        """Time has passed and somebody is silent: the job waits for `lateness_ns`, and then goes on without this."""
        if self._operator is not None:
            return self._operator.on_tick(tick, among)
        self._tick = tick
        if tick.time_ns < self._created_ns + self._lateness_ns:
            return []
        waiting = Counter(self._dropped)
        for batch in self._calls:
            waiting[batch.host] += len(batch)
        events: list[StageOneEvent] = []
        for host, progress in self._progress.items():
            lost = replace(progress, ranks=(), dropped_total=progress.dropped_total + waiting[host])
            if lost != self._passed_on.get(host):
                self._passed_on[host] = lost
                events.append(lost)
        self._is_closed = not self.hosts or self._patience.ends(tick.time_ns)
        watermark_ns = CLOSED_NS if self._is_closed else tick.time_ns - self._lateness_ns
        return [
            *events,
            Watermark(job=self.job, attempt=self.attempt, time_ns=watermark_ns, stream=self.communicator),
        ]

    def all_counts(self) -> dict[str, int]:
        """Everything that was not used, by reason."""
        counts = Counter({} if self._operator is None else self._operator.all_counts())
        counts["unplaced_calls"] = self._n_calls + self._dropped.total()
        return {name: number for name, number in counts.items() if number}

    def _complete(self) -> list[StageOneEvent]:
        """The members are known: everything that has waited, as if it came now; all of it was looked at before."""
        announced = [replace(topology, members=tuple(self._members.tolist())) for topology in self._announced.values()]
        self._operator = operator = CommunicatorOperator(announced[0], self._lateness_ns, self._shared)
        events: list[StageOneEvent] = []
        for topology in announced:
            events += operator.on_topology(topology)
        for batch in self._calls:
            events += operator.on_calls(self._named_calls(batch))
        for markers in self._markers:
            events += operator.on_markers(markers)
        for progress in self._progress.values():
            events += operator.on_progress(self._named_progress(progress))
        if self._tick is not None:
            events += operator.on_tick(self._tick)
        self._calls.clear()
        self._n_calls = 0
        self._markers.clear()
        self._progress.clear()
        self._passed_on.clear()
        return events

    def _named_calls(self, batch: CallBatch) -> CallBatch:
        peers = self._named_peers(batch.column("peer"))
        if peers is None:
            return batch
        return replace(batch, rows=batch.rows.set_column(_PEER, CALL_SCHEMA.field(_PEER), pa.array(peers)))

    def _named_peers(self, peers: np.ndarray) -> npt.NDArray[np.int32] | None:
        """Peers by rank; `None` where they are."""
        is_place = peers <= FIRST_PLACE
        if not is_place.any():
            return None
        peers = peers.astype(np.int64)
        self._require_peers(np.unique(peers[is_place]).tolist())
        named = np.where(is_place, self._members[np.where(is_place, FIRST_PLACE - peers, 0)], peers)
        return named.astype(np.int32)

    def _named_progress(self, progress: Progress) -> Progress:
        """Peers by rank, and the calls that were dropped here counted with those that the host has lost."""
        ranks = progress.ranks
        peers = _peers(progress)
        if min(peers, default=NO_PEER) <= FIRST_PLACE:
            self._require_peers(peers)
            ranks = tuple(
                structs.replace(
                    theirs,
                    open=tuple(structs.replace(call, peer=self._named(call.peer)) for call in theirs.open),
                    pairs=tuple(structs.replace(pair, peer=self._named(pair.peer)) for pair in theirs.pairs),
                )
                for theirs in ranks
            )
        return replace(progress, ranks=ranks, dropped_total=progress.dropped_total + self._dropped[progress.host])

    def _named(self, peer: int) -> int:
        return int(self._members[FIRST_PLACE - peer]) if peer <= FIRST_PLACE else peer

    def _require_announced(self, host: str, what: str) -> None:
        if host not in self._announced:
            raise InvalidEvent(f"{what} of host {host!r}, which has not announced communicator {self.communicator}")

    def _require_known(self, ranks: Iterable[int], what: str) -> None:
        outsiders = sorted(rank for rank in ranks if rank not in self._places)[:8]
        if outsiders:
            raise InvalidEvent(f"{what} {outsiders} are no members of communicator {self.communicator}")

    def _require_peers(self, peers: Iterable[int]) -> None:
        places = [FIRST_PLACE - peer for peer in peers if peer <= FIRST_PLACE]
        outside = sorted(place for place in places if place >= len(self._members))[:8]
        if outside:
            raise InvalidEvent(
                f"peers at places {outside} of communicator {self.communicator}, which has {len(self._members)}"
            )
        if self._operator is None:
            self._require_known({peer for peer in peers if peer >= 0}, "peers")


def _peers(progress: Progress) -> set[int]:
    """Everybody whom a host's ranks call, or have called, apart from collectives."""
    calls = {call.peer for theirs in progress.ranks for call in theirs.open}
    return calls | {pair.peer for theirs in progress.ranks for pair in theirs.pairs}
