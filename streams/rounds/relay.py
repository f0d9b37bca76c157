"""What hosts say at home: kept until all of them have spoken, and put together for those who join it.

A host of a large job says all that it has to say to one shard (`pacehound.model.shards`). The rows, marks and promises
of all hosts that speak here are gathered. Those of communicators whose hosts may have other homes are passed on, and
what goes to one shard becomes a message or a few: so whoever joins the world of 16,384 ranks reads what sixteen homes
have relayed, and not 2,048 hosts. Those of the others are put together for whoever joins them here, who has as much to
do for a row of eight hosts as for one of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pacehound.model.evenly_spaced import SHARED
from pacehound.model.events import MAX_WORLD_RANKS, Progress, Tick, Topology
from pacehound.model.flushes import Column, Flush, entries_of
from pacehound.model.relayed import HostBeat, Relayed, RelayedPart
from pacehound.model.shards import has_one_home, shard_of
from streams.rounds.giving_up import Patience
from streams.rounds.stage_one import OpenStream

Int64Array = npt.NDArray[np.int64]

MAX_WAITING_ROWS = 131_072
"""Calls that are kept at most, 12 MB: more are passed on before the next tick (chosen: all that the 128 hosts of a home
say of a second, of 16,384 ranks)."""

HERE = -1
"""In the place of another shard: it is joined at home."""

MAX_PASSED_ROWS, MAX_PASSED_SAID = 8_192, 4_096
"""Of one message, at most, and besides so many entries of 60 to 400 bytes: 2.5 MB."""

MAX_OVER = 1_000
"""Communicators that are over, and of whose hosts it is still known what they have announced."""


@dataclass(slots=True)
class PassedOn:
    """A communicator of hosts that speak here.

    Attributes
    ----------
    shard
        To which it belongs; `HERE` where all its hosts have this home.
    is_partial
        Of its members each host knows its own alone: rows of several hosts are not put together.
    ranks
        By host that has announced itself here, its ranks.
    open
        Hosts that have not said yet that nothing more will come.

    """

    shard: int
    is_partial: bool
    ranks: dict[str, frozenset[int]] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)


class Relay:
    """Of one home: who is in the communicators of its hosts, and what waits to be passed on.

    Examples
    --------
    >>> world = Topology(job="j", attempt=0, time_ns=5, host="h", communicator="c", name="world", is_world=True,
    ...                  members=tuple(range(2_048)), host_ranks=(8,), world_size=2_048)
    >>> relay = Relay()
    >>> relay.announce([world]), relay.hosts  # nothing of it is joined here
    ([], ('h',))
    >>> [passed] = relay.pass_on()
    >>> passed.topologies == (world,), passed.shard < 2
    (True, True)

    """

    def __init__(self) -> None:
        self._known: dict[str, PassedOn] = {}
        self._of: tuple[str, int] = "", 0  # whose communicators they are: job and attempt
        self._promised_ns: dict[str, int] = {}  # by host that is open, the latest
        self._patience: dict[str, Patience] = {}  # with those that are silent
        self._over: dict[str, None] = {}  # those in `known` of which no host is open, in the order in which they were
        self._announced: list[Topology] = []  # of what others join
        self._waiting: list[Flush] = []
        self._begin()

    def _begin(self) -> None:
        """What follows from the rest."""
        self._n_rows = sum(map(len, self._waiting))
        self._has_new = False  # a communicator that others join and nobody had announced here
        self._hosts: tuple[str, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        derived = ("_n_rows", "_has_new", "_hosts")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As it was."""
        self.__dict__.update(state)
        self._begin()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Those that are open in one of the communicators."""
        if self._hosts is None:
            self._hosts = tuple(dict.fromkeys(host for known in self._known.values() for host in known.open))
        return self._hosts

    @property
    def has_open(self) -> bool:
        """Some host is."""
        return any(known.open for known in self._known.values())

    @property
    def is_full(self) -> bool:
        """It is as much as may wait."""
        return self._n_rows >= MAX_WAITING_ROWS

    @property
    def has_new(self) -> bool:
        """The first word of what others join is among what waits: stage two waits for it from then on."""
        return self._has_new

    @property
    def waiting(self) -> tuple[Flush, ...]:
        """What is passed on next."""
        return tuple(self._waiting)

    @property
    def has_known(self) -> bool:
        """Something was announced."""
        return bool(self._known)

    def knows(self, host: str) -> bool:
        """Whether the host has announced something."""
        return any(host in known.ranks for known in self._known.values())

    def open_stream(self) -> OpenStream | None:
        """All its communicators as one stream; who else is in them is for those to know who join them."""
        if not self.hosts:
            return None
        job, attempt = self._of
        return OpenStream(job=job, attempt=attempt, hosts=self.hosts, is_complete=True)

    def take(self, flush: Flush) -> Flush | None:
        """Keep what is said of communicators that this host has announced; what is said of others is given back.

        That is for a shard to refuse. What the flush announces is not looked at (`announce`), nor are its vitals.
        """
        names = flush.communicators
        if not names:
            return None
        strange = {name for name in names if (known := self._known.get(name)) is None or flush.host not in known.ranks}
        theirs = _said_of(flush, set(names) - strange) if strange or flush.vitals else flush
        for promise in theirs.promises:
            self._note(promise)
        if promised_ns := theirs.promised_ns:
            self._patience.pop(flush.host, None)
            self._promised_ns[flush.host] = max(*promised_ns.values(), self._promised_ns.get(flush.host, -1))
        self._waiting.append(theirs)
        self._n_rows += len(theirs)
        return _said_of(flush, strange) if strange else None

    def announce(self, topologies: Iterable[Topology]) -> list[Topology]:
        """Note who is in communicators: what others join is kept, and the rest is for whoever joins it here."""
        here: list[Topology] = []
        for topology in topologies:
            is_here = self._announce(topology).shard == HERE
            (here if is_here else self._announced).append(topology)
        return here

    def pass_announcements_on(self) -> list[Relayed]:
        """Those that wait, for each shard by itself; what is said of the same communicators may wait on."""
        return self._passed_on([])

    def pass_on(self) -> list[Relayed]:
        """All that waits, for each shard by itself; in the order in which it is to be heard."""
        waiting, self._waiting, self._n_rows = self._waiting, [], 0
        told = self._passed_on(waiting)
        while len(self._over) > MAX_OVER:
            # Its last word has been passed on, and a thousand others have come to their end since.
            oldest = next(iter(self._over))
            del self._over[oldest], self._known[oldest]
        return told

    def _passed_on(self, waiting: Sequence[Flush]) -> list[Relayed]:
        announced, self._announced, self._has_new = self._announced, [], False
        if not (announced or waiting):
            return []
        shards = {name: known.shard for name, known in self._known.items()}
        partial = frozenset(name for name, known in self._known.items() if known.is_partial)
        return list(_Putting(self._of, announced, waiting, shards, partial).together())

    def tick(self, tick: Tick, lateness_ns: int) -> list[Relayed]:
        """That so much time has passed without a word of some of its hosts, for each shard that knows of them.

        Who is given up with that there is given up here, and not ticked any more.
        """
        shards = sorted({known.shard for known in self._known.values() if known.open} - {HERE})
        said: dict[str, Any] = {"job": tick.job, "attempt": tick.attempt, "silent": self.hosts, "tick_ns": tick.time_ns}
        told = [Relayed(shard=shard, **said) for shard in shards]
        for host in self.hosts:
            if self._promised_ns.get(host, -1) >= tick.time_ns - lateness_ns:
                continue
            if self._patience.setdefault(host, Patience()).ends(tick.time_ns):
                self._give_up(host)
        return told

    def _announce(self, topology: Topology) -> PassedOn:
        """Note who is in a communicator; what is known of it."""
        known = self._known.get(topology.communicator)
        if known is None:
            shard = joined_by(topology) if is_passed_on(topology) else HERE
            known = self._known[topology.communicator] = PassedOn(shard, topology.is_partial)
            self._has_new |= shard != HERE
        self._of = topology.job, topology.attempt
        ranks, before = frozenset(topology.host_ranks), known.ranks.get(topology.host, frozenset())
        if not ranks <= before:  # what is sent twice does not open again what is closed
            known.ranks[topology.host] = ranks | before
            known.open[topology.host] = None
            self._over.pop(topology.communicator, None)
            self._hosts = None
        return known

    def _note(self, promise: Progress) -> None:
        """Whether the host is open: what has closed and promises again is not over, as for whoever joins it."""
        host, known = promise.host, self._known[promise.communicator]
        if promise.closed == (host in known.open):
            self._hosts = None
        if promise.closed:
            self._close(promise.communicator, host)
        else:
            known.open[host] = None
            self._over.pop(promise.communicator, None)

    def _give_up(self, host: str) -> None:
        for name in self._known:
            self._close(name, host)
        self._hosts = None
        del self._patience[host]
        self._promised_ns.pop(host, None)

    def _close(self, communicator: str, host: str) -> None:
        known = self._known[communicator]
        known.open.pop(host, None)
        if not known.open:
            self._over[communicator] = None


def is_passed_on(topology: Topology) -> bool:
    """Whether hosts of other homes may be in a communicator."""
    return not has_one_home(topology.members, topology.world_size)


def joined_by(topology: Topology) -> int:
    """The shard that a communicator belongs to."""
    spaced = SHARED.made(topology.members)  # they are not looked at one by one
    members = topology.members if spaced is None else spaced[:1]
    return shard_of(topology.communicator, members, topology.world_size)


class _Rows(NamedTuple):
    """Rows of one host on one communicator: where they are among those of all that waits."""

    communicator: str
    source: str
    sees: int
    host: str
    dropped: int
    first: int
    n_rows: int


class _Putting:
    """Flushes of several hosts put together: by shard, and there the rows of a communicator side by side."""

    def __init__(
        self,
        of: tuple[str, int],
        announced: Sequence[Topology],
        waiting: Sequence[Flush],
        shards: dict[str, int],
        partial: frozenset[str],
    ) -> None:
        self._of, self._announced = of, announced
        self._waiting, self._shards, self._partial = waiting, shards, partial
        names = dict.fromkeys(name for flush in waiting for name in flush.columns)
        with_rows = [flush for flush in waiting if len(flush)]
        self._columns: dict[str, Column] = {
            name: np.concatenate([flush.column(name) for flush in with_rows]) for name in names if with_rows
        }

    def together(self) -> Iterator[Relayed]:
        """As few as may be, each no larger than a message may be."""
        topologies = self._by_shard(self._announced)
        markers = self._by_shard(one for flush in self._waiting for one in flush.markers)
        promises = self._by_shard(one for flush in self._waiting for one in flush.promises)
        rows, beats = self._rows(), self._beats()
        fields = {"topologies": topologies, "rows": rows, "markers": markers, "promises": promises, "beats": beats}
        for shard in sorted({*rows, *topologies, *markers, *promises, *beats}):
            said: dict[str, list[Any]] = {
                name: of_shard[shard] for name, of_shard in fields.items() if shard in of_shard
            }
            for piece in [said] if shard == HERE else _pieces(_entries(said)):
                yield self._made(piece, shard)

    def _rows(self) -> dict[int, list[_Rows]]:
        """Those of one communicator one behind the other."""
        found: dict[int, dict[tuple[Any, ...], list[_Rows]]] = {}
        first = 0
        for flush in self._waiting:
            for part in flush.parts:
                name = part.communicator
                one = _Rows(name, part.source, part.sees, flush.host, part.dropped, first, part.n_rows)
                first += part.n_rows
                found.setdefault(self._shards[name], {}).setdefault(self._whose(one), []).append(one)
        return {shard: [one for some in by_part.values() for one in some] for shard, by_part in found.items()}

    def _by_shard(self, said: Iterable[Any]) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for one in said:
            found.setdefault(self._shards[one.communicator], []).append(one)
        return found

    def _beats(self) -> dict[int, list[HostBeat]]:
        found: dict[int, list[HostBeat]] = {}
        for flush in self._waiting:
            if flush.heartbeat is None:
                continue
            by_shard: dict[int, list[str]] = {}
            for name in flush.heartbeat.communicators:
                by_shard.setdefault(self._shards[name], []).append(name)
            for shard, names in by_shard.items():
                beat = replace(flush.heartbeat, communicators=tuple(names))
                found.setdefault(shard, []).append(HostBeat(host=flush.host, beat=beat))
        return found

    def _made(self, piece: dict[str, list[Any]], shard: int) -> Relayed:
        rows: list[_Rows] = piece.pop("rows", [])
        parts = []
        for _, of_part in groupby(rows, key=self._whose):
            some = list(of_part)
            parts.append(
                RelayedPart(
                    communicator=some[0].communicator,
                    source=some[0].source,
                    sees=some[0].sees,
                    hosts=tuple([one.host for one in some]),
                    n_rows=tuple([one.n_rows for one in some]),
                    dropped=tuple([one.dropped for one in some]),
                )
            )
        said: dict[str, Any] = {name: tuple(some) for name, some in piece.items()}
        return Relayed(
            job=self._of[0],
            attempt=self._of[1],
            shard=shard,
            parts=tuple(parts),
            columns=self._chosen(rows),
            **said,
        )

    def _chosen(self, rows: Sequence[_Rows]) -> dict[str, Column]:
        lengths = np.array([one.n_rows for one in rows], np.int64)
        n_rows = int(lengths.sum())
        if not n_rows:
            return {}
        before = np.cumsum(lengths) - lengths
        taken = np.arange(n_rows) + np.repeat(np.array([one.first for one in rows]) - before, lengths)
        return {name: column[taken] for name, column in self._columns.items()}

    def _whose(self, rows: _Rows) -> tuple[str, str, int, str]:
        """What has rows in common that become one part: whose members are not known stay apart."""
        return rows.communicator, rows.source, rows.sees, rows.host if rows.communicator in self._partial else ""


class _Entry(NamedTuple):
    """Something that is passed on: in which field, and how much of a message it takes."""

    name: str
    said: Any
    n_said: int
    n_members: int = 0
    n_rows: int = 0


def _entries(said: Mapping[str, Sequence[Any]]) -> Iterator[_Entry]:
    """All of it, by field."""
    for one in said.get("topologies", ()):
        # Members that are evenly spaced are three numbers (`pacehound.model.spans`).
        n_said = entries_of(one) if SHARED.made(one.members) is None else 2
        yield _Entry("topologies", one, n_said, len(one.members))
    for one in said.get("rows", ()):
        yield _Entry("rows", one, 1, n_rows=one.n_rows)
    for name in ("markers", "promises"):
        for one in said.get(name, ()):
            yield _Entry(name, one, entries_of(one))
    for one in said.get("beats", ()):
        yield _Entry("beats", one, 1 + len(one.beat.communicators) // 4)


def _pieces(entries: Iterable[_Entry]) -> Iterator[dict[str, list[Any]]]:
    """By field, as many at a time as one message takes, in their order."""
    piece: dict[str, list[Any]] = {}
    n_said = n_members = n_rows = 0
    for one in entries:
        n_said, n_members, n_rows = n_said + one.n_said, n_members + one.n_members, n_rows + one.n_rows
        if piece and (n_said > MAX_PASSED_SAID or n_members > MAX_WORLD_RANKS or n_rows > MAX_PASSED_ROWS):
            yield piece
            piece, n_said, n_members, n_rows = {}, one.n_said, one.n_members, one.n_rows
        piece.setdefault(one.name, []).append(one.said)
    if piece:
        yield piece


def _said_of(flush: Flush, communicators: Set[str]) -> Flush:
    """What a flush says of these communicators."""
    parts = tuple([part for part in flush.parts if part.communicator in communicators])
    columns: Mapping[str, Column] = flush.columns if len(parts) == len(flush.parts) else {}
    if 0 < len(parts) < len(flush.parts):
        is_chosen = np.repeat(
            [part.communicator in communicators for part in flush.parts], [part.n_rows for part in flush.parts]
        )
        at = np.flatnonzero(is_chosen)
        columns = {name: column[at] for name, column in flush.columns.items()}
    beat = flush.heartbeat
    if beat is not None:
        beating = tuple([name for name in beat.communicators if name in communicators])
        beat = replace(beat, communicators=beating, is_of_processes=False) if beating else None
    return replace(
        flush,
        vitals=(),
        parts=parts,
        columns=columns,
        markers=tuple([one for one in flush.markers if one.communicator in communicators]),
        promises=tuple([one for one in flush.promises if one.communicator in communicators]),
        heartbeat=beat,
    )
