"""Relayed: what several hosts have said of the communicators of a shard, put together at their home.

Of a large job that is told call by call each host says all it has to say to one shard (`pacehound.model.shards`). What
it says of communicators that belong to another one is gathered there, of all hosts that have this home, and passed on
once a tick: whoever joins a communicator of thousands of hosts reads as many messages as there are homes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from pacehound.errors import InvalidEvent
from pacehound.model.by_the_hundred import ByTheHundred
from pacehound.model.calls import CallBatch
from pacehound.model.events import MAX_WORLD_RANKS, Markers, Progress, Topology
from pacehound.model.flushes import (
    Column,
    Heartbeat,
    batch_of_rows,
    check_columns,
    column_of,
    known_columns_of,
    known_sees,
    read_columns,
    slices_of,
)
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64
from pacehound.model.shards import relayed_key
from pacehound.model.spans import SpannedTopology, in_full, in_short


class RelayedPart(ByTheHundred, frozen=True, kw_only=True):
    """Whose the next rows are: those of `hosts`, one behind the other, `n_rows` of each.

    `dropped` is how many more calls each has lost; the rest is as in `CallBatch`.
    """

    communicator: str
    source: str
    sees: Int64
    hosts: tuple[str, ...]
    n_rows: tuple[Int64, ...]
    dropped: tuple[Int64, ...]


class HostBeat(ByTheHundred, frozen=True, kw_only=True):
    """The heartbeat of a host."""

    host: str
    beat: Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What hosts of one home have said of the communicators of a shard; in the order in which it is to be heard.

    Attributes
    ----------
    shard
        To which these communicators belong.
    topologies, markers, promises
        As hosts have said them. A promise speaks of all rows of its host that were passed on before, and of these.
    parts, columns
        The rows, as in `Flush`, those of a communicator one behind the other.
    beats
        Heartbeats that name communicators, by host.
    silent, tick_ns
        Hosts of that home from which so much time has passed without a word (`Tick`); beside nothing else.

    """

    job: str
    attempt: Int64
    shard: Int64
    topologies: tuple[Topology, ...] = ()
    parts: tuple[RelayedPart, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict, repr=False)
    markers: tuple[Markers, ...] = ()
    promises: tuple[Progress, ...] = ()
    beats: tuple[HostBeat, ...] = ()
    silent: tuple[str, ...] = ()
    tick_ns: Int64 = 0

    def __post_init__(self) -> None:
        check_columns(self.columns, sum(sum(part.n_rows) for part in self.parts))
        for said in self.said:
            if (said.job, said.attempt) != (self.job, self.attempt):
                raise InvalidEvent(
                    f"what was relayed of job {self.job!r} holds a {type(said).__name__} of {said.job!r}, "
                    f"attempt {said.attempt}"
                )

    @property
    def said(self) -> tuple[Topology | Markers | Progress, ...]:
        """What hosts have said themselves."""
        return (*self.topologies, *self.markers, *self.promises)

    def __len__(self) -> int:
        return sum(sum(part.n_rows) for part in self.parts)

    @property
    def communicators(self) -> list[str]:
        """Of which it says anything but that time has passed."""
        beating = (name for one in self.beats for name in one.beat.communicators)
        of_rows = (part.communicator for part in self.parts)
        return list(dict.fromkeys([*(one.communicator for one in self.said), *of_rows, *beating]))

    @property
    def promised(self) -> list[str]:
        """As in `Flush`."""
        beating = (name for one in self.beats for name in one.beat.communicators)
        return list(dict.fromkeys([*(promise.communicator for promise in self.promises), *beating]))

    @property
    def key(self) -> str:
        """On `rounds`."""
        return relayed_key(self.job, self.attempt, self.shard)

    @property
    def time_ns(self) -> int:
        """Of the last that it tells, but for its rows."""
        times_ns = [*(one.time_ns for one in self.said), *(one.beat.time_ns for one in self.beats)]
        return max(times_ns, default=self.tick_ns)

    def identity(self) -> str:
        """Names what it holds."""
        said = [one.identity() for one in self.said]
        rows = [f"{part.communicator} {part.source} {part.hosts} {part.n_rows}" for part in self.parts]
        beats = [f"{one.host} {one.beat.time_ns}" for one in self.beats]
        whose = (self.job, self.attempt, self.shard, " ".join(self.silent), self.tick_ns)
        return event_id("relayed", *whose, " ".join(rows), " ".join(said), " ".join(beats))

    def column(self, name: str) -> Column:
        """As in `Flush`."""
        return column_of(self.columns, name, len(self))

    @property
    def known_columns(self) -> dict[str, Column]:
        """As in `Flush`."""
        return known_columns_of(self.columns, len(self))

    def slices(self) -> list[slice]:
        """Where the rows of each part are."""
        return slices_of([sum(part.n_rows) for part in self.parts])

    def hosts_of(self, part: RelayedPart) -> tuple[str, ...]:
        """Who has sent the rows of a part."""
        return part.hosts

    def by_host(self, part: RelayedPart, rows: slice) -> list[tuple[RelayedPart, slice]]:
        """The same part, as one of each of its hosts, and where the rows of each are."""
        found, first = [], rows.start
        for host, n_rows, dropped in zip(part.hosts, part.n_rows, part.dropped, strict=True):
            one = msgspec.structs.replace(part, hosts=(host,), n_rows=(n_rows,), dropped=(dropped,))
            found.append((one, slice(first, first + n_rows)))
            first += n_rows
        return found

    def batch(self, part: RelayedPart, rows: slice) -> CallBatch:
        """The rows of a part of one host as a batch of their own; it has no number."""
        return batch_of_rows(
            self.known_columns,
            rows,
            job=self.job,
            attempt=self.attempt,
            host=part.hosts[0],
            communicator=part.communicator,
            source=part.source,
            ordinal=0,
            sees=part.sees,
            dropped=sum(part.dropped),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedHead:
    """All but the columns, as it travels."""

    parts: tuple[RelayedPart, ...] = ()
    topologies: tuple[Topology, ...] = ()
    spanned: tuple[SpannedTopology, ...] = ()
    markers: tuple[Markers, ...] = ()
    promises: tuple[Progress, ...] = ()
    beats: tuple[HostBeat, ...] = ()
    silent: tuple[str, ...] = ()
    tick_ns: Int64 = 0


def head_of(relayed: Relayed) -> RelayedHead:
    """All but the columns."""
    topologies, spanned = in_short(relayed.topologies)
    return RelayedHead(
        parts=relayed.parts,
        topologies=topologies,
        spanned=spanned,
        markers=relayed.markers,
        promises=relayed.promises,
        beats=relayed.beats,
        silent=relayed.silent,
        tick_ns=relayed.tick_ns,
    )


def read_relayed(head: RelayedHead, rows: pa.RecordBatch | None, *, job: str, attempt: int, shard: int) -> Relayed:
    """What was relayed, as it came; unknown columns are ignored.

    Raises
    ------
    InvalidEvent
        It contradicts itself, or claims what cannot be.

    """
    if not 0 <= shard <= MAX_WORLD_RANKS:
        raise InvalidEvent(f"what was relayed is of shard {shard}")
    for part in head.parts:
        if not len(part.hosts) == len(part.n_rows) == len(part.dropped) > 0:
            raise InvalidEvent(
                f"a part of what was relayed has {len(part.hosts)} hosts, {len(part.n_rows)} numbers of rows "
                f"and {len(part.dropped)} of calls dropped"
            )
        if min(*part.n_rows, *part.dropped) < 0:
            raise InvalidEvent(f"a part of what was relayed has {min(part.n_rows)} rows, {min(part.dropped)} dropped")
        known_sees(part.sees)
    return Relayed(
        job=job,
        attempt=attempt,
        shard=shard,
        topologies=in_full(head.topologies, head.spanned, job=job, attempt=attempt),
        parts=head.parts,
        columns=read_columns(rows, sum(sum(part.n_rows) for part in head.parts), "what was relayed"),
        markers=head.markers,
        promises=head.promises,
        beats=head.beats,
        silent=head.silent,
        tick_ns=head.tick_ns,
    )
