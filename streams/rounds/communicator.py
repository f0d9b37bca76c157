"""Stage one: everything that can be said about one communicator alone.

Rows become rounds, markers become iterations, the hosts' promises become one watermark. Input comes in the order
of the log; what goes out is in event time up to the watermark that follows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pacehound.errors import InvalidEvent
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.digests import is_of_digests
from pacehound.model.events import (
    NEVER,
    OPTIMIZER_STEP,
    IterationSample,
    Markers,
    Progress,
    SignatureMismatch,
    Tick,
    Topology,
    Watermark,
    members_agree,
)
from pacehound.model.flushes import Heartbeat
from pacehound.model.pair_rounds import PairRounds, joined_pairs
from pacehound.model.rounds import Rounds, columns_at
from streams.rounds.assembly import ClosedRounds, RoundGrid, add_to_pairs, close_complete
from streams.rounds.call_rows import NONE, SEND, CallRows, rows_of_batch
from streams.rounds.digest_places import Places
from streams.rounds.digest_rounds import Digested
from streams.rounds.digest_rows import digests_of_calls
from streams.rounds.digest_table import Awaited, DigestTable
from streams.rounds.grids import Grids, PlacedPair, read_pairs, written_pairs
from streams.rounds.hosts_of_communicator import BoolArray, HostsOfCommunicator, Int64Array
from streams.rounds.iterations import IterationTracker
from streams.rounds.merge import CLOSED_NS
from streams.rounds.mismatches import MismatchWatch
from streams.rounds.row_loops import Look, SomeRows, all_rows, look_at, members_in_c, parted

StageOneEvent = Digested | SignatureMismatch | IterationSample | Progress | Topology | Markers | Watermark


class CommunicatorOperator:
    """One communicator's calls, markers and progress, from all its hosts.

    Rows are waited for up to `lateness_ns` after their round was entered, and hosts after they fell silent. `counts`
    holds what was not used, by reason; nothing is dropped without being counted there.

    Digests are put into the table of a shard, if there is one (`shared`): the shard takes them out again.
    """

    def __init__(self, topology: Topology, lateness_ns: int, shared: DigestTable | None = None) -> None:
        self.job = topology.job
        self.attempt = topology.attempt
        self.communicator = topology.communicator
        self.is_world = topology.is_world
        self.members = topology.members
        self._lateness_ns = lateness_ns
        self._place_members()
        self._hosts = HostsOfCommunicator(self._column, topology.time_ns, lateness_ns)
        self._collectives = RoundGrid(len(self.members))
        self._pairs: dict[tuple[int, int], RoundGrid] = {}
        self._sees = Sees.ALL
        self._source = ""
        self._digests: DigestTable | None = None  # its own
        self._shared = shared
        self._watermark_ns = -1
        self._sent_watermark_ns = -1
        self._of_calls = Grids(self._collectives, self._pairs, set())
        self._has_new_rows = False  # since rounds were looked at
        self._is_quiet = False  # no round is open, and no rows have come since that was seen
        self._mismatches = MismatchWatch(topology)
        self.counts: dict[str, int] = {}
        self._iterations = (
            IterationTracker(self.job, self.attempt, self.communicator, self.members, lateness_ns)
            if self.is_world
            else None
        )

    def _place_members(self) -> None:
        self._column = {rank: index for index, rank in enumerate(self.members)}
        self._order = np.argsort(np.array(self.members, np.int64), kind="stable")  # columns by ascending rank
        self._ascending = np.array(self.members, np.int64)[self._order]
        self._members_in_c = members_in_c(self._ascending, self._order)

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the members; of hosts what cannot be told from the rest of them."""
        derived = ("_column", "_order", "_ascending", "_members_in_c", "_of_calls", "_has_new_rows", "_is_quiet")
        state = {name: value for name, value in self.__dict__.items() if name not in derived}
        return state | {"_hosts": self._hosts.state, "_pairs": written_pairs(self._pairs)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Compiled loops write into the members' columns: grids of other widths are refused (`ValueError`)."""
        self.__dict__.update(state)
        self._place_members()
        self._hosts = HostsOfCommunicator.of_state(state["_hosts"], self._column, self._lateness_ns)
        self._pairs = read_pairs(state["_pairs"])
        self._of_calls = Grids(self._collectives, self._pairs, set(self._pairs))
        self._has_new_rows, self._is_quiet = True, False
        for ranks, grid in self._of_calls.of(self.members):
            if grid.n_ranks != len(ranks):
                raise ValueError(f"communicator {self.communicator}: {len(ranks)} ranks have a grid of {grid.n_ranks}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that have announced themselves and are not closed; the same tuple while they are the same."""
        return self._hosts.open

    @property
    def announced(self) -> Collection[str]:
        """Hosts that have announced themselves, in that order."""
        return self._hosts.names

    @property
    def is_complete(self) -> bool:
        """Every member has been claimed by a host."""
        return self._hosts.is_complete

    @property
    def is_whole(self) -> bool:
        """All its members are running, as far as is known."""
        return self._hosts.is_whole

    @property
    def is_closed(self) -> bool:
        """All its hosts have said that nothing more will come."""
        return self._watermark_ns == CLOSED_NS

    def on_topology(self, topology: Topology) -> list[StageOneEvent]:
        """A host announces itself, or more of its ranks."""
        if not members_agree(topology.members, self.members):
            raise InvalidEvent(
                f"host {topology.host!r} says communicator {self.communicator} has {len(topology.members)} members "
                f"{list(topology.members)[:8]}; it was announced with {len(self.members)}: {list(self.members)[:8]}"
            )
        if not self._hosts.announce(topology):
            self._count("repeated_topology", 1)
            return []
        return [topology if topology.members is self.members else replace(topology, members=self.members)]

    def on_calls(self, batch: CallBatch) -> list[StageOneEvent]:
        """A host's rows; they wait in the grid until a progress promises that all are there."""
        self._check_announced(batch.host)
        rows = rows_of_batch(batch)
        return self.on_rows(rows, slice(0, len(rows)), (batch.host,), batch.sees, batch.source, batch.dropped)

    def on_rows(
        self, rows: CallRows, where: slice, hosts: Iterable[str], sees: Sees, source: str, dropped: int
    ) -> list[StageOneEvent]:
        """Rows of these hosts as columns, `where` those of this communicator are, and how many more they have lost."""
        for host in hosts:
            self._check_announced(host)
        found = self._looked_at(rows, where) if where.start < where.stop else None
        self._count("dropped_calls", dropped)
        if found is None:
            return []
        self._count("backward_times", found.n_backward)
        self._has_new_rows, self._is_quiet = True, False
        if is_of_digests(source):
            places = Places.of(*self._placed(rows, where, sees, source, has_pairs=found.n_pairs > 0))
            self._table.put(digests_of_calls(rows, where), places)
            return []
        self._sees, self._source = sees, source
        return self._add(rows, where, found)

    def places_of_digests(
        self, rows: CallRows, where: slice, host: str, sees: Sees, source: str
    ) -> tuple[Int64Array, Int64Array]:
        """The line and the cell of each digest of a host in the table; errors as in `on_rows`."""
        self._check_announced(host)
        found = self._looked_at(rows, where)
        return self._placed(rows, where, sees, source, has_pairs=found.n_pairs > 0)

    def _looked_at(self, rows: CallRows, where: slice) -> Look:
        found = look_at(rows.in_c, where, self._members_in_c)
        if found.outsider >= 0 or found.outside_peer >= 0:
            raise self._outsiders(rows, where)
        return found

    @property
    def _table(self) -> DigestTable:
        if self._shared is not None:
            return self._shared
        if self._digests is None:
            self._digests = DigestTable()
        return self._digests

    def _placed(
        self, rows: CallRows, where: slice, sees: Sees, source: str, *, has_pairs: bool
    ) -> tuple[Int64Array, Int64Array]:
        """Rows whose places are known."""
        lines_of = self._table.lines
        number = lines_of.number_of(self.communicator, len(self.members), source, sees)
        line, first = lines_of.collectives(number)
        lines, cells = np.full(where.stop - where.start, line), first + rows.place[where]
        if has_pairs and rows.direction is not None:
            for row in np.flatnonzero(rows.direction[where] != NONE).tolist():
                rank, peer = int(rows.rank[where.start + row]), int(rows.peer[where.start + row])
                is_sender = rows.direction[where.start + row] == SEND
                pair = (rank, peer) if is_sender else (peer, rank)
                line, first = lines_of.of_pair(number, pair, (self._column[pair[0]], self._column[pair[1]]))
                lines[row], cells[row] = line, first + (not is_sender)
        return lines, cells

    def _add(self, rows: CallRows, where: slice, found: Look) -> list[StageOneEvent]:
        has_transfers = found.n_transfers > 0
        if not found.n_pairs:
            return self._put(rows, all_rows(where, found), has_transfers=has_transfers)
        parts = parted(rows.in_c, where)
        events = self._put(rows, parts.collectives, has_transfers=has_transfers)
        grids = []
        for sender, receiver, _, low, high in parts.pairs:
            grid = self._pairs.get((sender, receiver))
            if grid is None:
                grid = self._pairs[sender, receiver] = RoundGrid(2)
            if not grid.make_room(low, high, has_transfers=has_transfers):
                events += self._advance()
                grid.make_room(low, high, has_transfers=has_transfers)
            grids.append(grid)
        add_to_pairs(grids, rows, parts, has_transfers=has_transfers)
        self._of_calls.fresh.update((sender, receiver) for sender, receiver, *_ in parts.pairs)
        return events

    def _put(self, rows: CallRows, some: SomeRows, *, has_transfers: bool) -> list[StageOneEvent]:
        if self._collectives.add(rows, some, has_transfers=has_transfers):
            return []
        events = self._advance()
        self._collectives.add(rows, some, has_transfers=has_transfers)
        return events

    def _outsiders(self, rows: CallRows, where: slice) -> InvalidEvent:
        """Of ranks, else of peers, which are no members."""
        ranks, what = rows.rank[where], "ranks"
        if not (outsiders := set(ranks.tolist()) - self._column.keys()):
            assert rows.direction is not None
            what = "peers"
            outsiders = set(rows.peer[where][rows.direction[where] != NONE].tolist()) - self._column.keys()
        return InvalidEvent(f"{what} {sorted(outsiders)[:8]} are no members of communicator {self.communicator}")

    def _check_announced(self, host: str) -> None:
        if host not in self._hosts:
            raise InvalidEvent(f"calls of host {host!r}, which has not announced communicator {self.communicator}")

    def on_markers(self, markers: Markers) -> list[StageOneEvent]:
        """Optimizer steps and planned pauses of a host's ranks."""
        if self._iterations is None:
            raise InvalidEvent(f"markers of host {markers.host!r} stand on {self.communicator}, which is not the world")
        if markers.host not in self._hosts:
            raise InvalidEvent(f"markers of host {markers.host!r}, which has not announced {markers.communicator}")
        outsiders = sorted(rank for rank in set(markers.ranks) if rank not in self._column)
        if outsiders:
            raise InvalidEvent(f"markers of ranks {outsiders}, outside the world of {len(self.members)} ranks")
        used = self._iterations.add(markers)
        has_pauses = any(name != OPTIMIZER_STEP for name in used.names)
        return [used] if has_pauses else []

    def on_progress(self, progress: Progress) -> list[StageOneEvent]:
        """A host promises that all its rows up to a time have been sent: rounds may close."""
        return [*self.on_promise(progress), *self.advance()]

    def on_promise(self, progress: Progress) -> list[StageOneEvent]:
        """The same promise; which rounds close is found out when somebody asks (`advance`)."""
        host = self._hosts.get(progress.host)
        if host is None:
            raise InvalidEvent(f"progress of host {progress.host!r}, which has not announced {progress.communicator}")
        outsiders = [p.rank for p in progress.ranks if p.rank not in self._column]
        if outsiders:
            raise InvalidEvent(f"progress of ranks {outsiders}, which are no members of {progress.communicator}")
        if not self._hosts.promise(host, progress):
            return []
        launched = max((rank.last_launched for rank in progress.ranks), default=NEVER)
        if launched >= 0 and self._collectives.is_far_ahead(launched):
            # A number that was not true has moved it there: what hosts count themselves is where the rounds are.
            self._collectives.begin_anew(launched + 1)
        skipped = self._collectives.skipped_rounds
        told = replace(progress, skipped_rounds=skipped) if skipped else progress
        mismatches = self._mismatches.in_open(progress, self._collectives, sees_ends=self._sees_ends())
        return [*mismatches, told]

    def _sees_ends(self) -> bool:
        """Rows have come, with ends."""
        return bool(self._source) and Sees.END in self._sees

    def advance(self) -> list[StageOneEvent]:
        """Rounds and iterations that are over by what was promised, and up to when that is all."""
        return [*self._advance(), *self._watermark()]

    def on_time(self, beats: Mapping[str, Heartbeat], times_ns: Mapping[str, int]) -> list[StageOneEvent] | None:
        """The heartbeats of all hosts, where nothing follows but that time goes on; `None`: each is to be heard.

        A shard of thousands of hosts and communicators is told of them every few seconds, and mostly so. `times_ns` are
        those of `beats`.
        """
        if not self._is_quiet or self._has_new_rows or self._hosts.may_rise or self._iterations is not None:
            return None
        lowest_ns = self._hosts.beat_at_once(beats, times_ns, self._watermark_ns)
        if lowest_ns is None:
            return None
        self._watermark_ns = lowest_ns
        return self._watermark()

    def on_heartbeats(self, beats: Sequence[tuple[str, Heartbeat]]) -> list[StageOneEvent]:
        """Hosts promise the same up to a later time, and do not say how far their ranks are."""
        self.take_heartbeats(beats)
        return self.advance() if self._hosts.may_rise or self._has_new_rows else []

    def take_heartbeats(self, beats: Sequence[tuple[str, Heartbeat]]) -> None:
        """The same; which rounds close is found out when somebody asks (`advance`)."""
        for name, _ in beats:
            if name not in self._hosts:
                raise InvalidEvent(f"heartbeat of host {name!r}, which has not announced {self.communicator}")
        self._hosts.beat(beats)

    def on_tick(self, tick: Tick, among: Collection[str] | None = None) -> list[StageOneEvent]:
        """Time has passed in a stream in which a host is silent (`HostsOfCommunicator.tick`)."""
        self._hosts.tick(tick.time_ns, among)
        return self.advance()

    def _advance(self) -> list[StageOneEvent]:
        """Rounds and iterations that are over. What is waited for is looked at anew when the watermark has risen."""
        watermark_ns = self._hosts.lowest_promise_ns() if self._hosts.may_rise else self._watermark_ns
        # Before the first one nothing can be overdue.
        has_risen = watermark_ns > self._watermark_ns or watermark_ns < 0 <= self._watermark_ns
        self._watermark_ns = max(self._watermark_ns, watermark_ns)
        running: tuple[BoolArray, Int64Array] | None = None
        events: list[StageOneEvent] = []
        self._has_new_rows = self._hosts.may_rise = False
        if self._collectives.has_open:
            closed = [self._collectives.close_complete()]
            if has_risen and self._collectives.has_open:
                running = self._hosts.running()
                closed.append(self._collectives.close_overdue(self._until_ns, *running))
            for part in closed:
                if part is not None:
                    events.append(self._rounds(part))
                    events += self._mismatches.in_closed(part, sees_ends=self._sees_ends())
        # A job may send between thousands of pairs of one communicator, and hundreds of hosts promise each second.
        pairs = self._of_calls.to_look_at(everything=has_risen)
        events += self._complete_of_pairs(pairs)
        if has_risen and (waiting := [(pair, grid) for pair, grid in pairs if grid.has_open]):
            is_running, _ = running or self._hosts.running()
            events += joined_pairs(list(self._overdue_of_pairs(waiting, is_running)))
        if self._digests is not None and self._digests.has_open:
            events += self._digests.take(
                self.job,
                self.attempt,
                lambda _: self.members,
                lambda _: self.awaited(),
                among=None if has_risen else (),
                absent=() if self._hosts.is_whole else (self.communicator,),
            )
        if self._iterations is not None:
            events += self._iterations.close(self._watermark_ns, self._hosts.gone)
        if has_risen:
            is_open = self._collectives.has_open or (self._digests is not None and self._digests.has_open)
            self._is_quiet = not (is_open or any(grid.has_open for _, grid in pairs))
        return events

    def told_end_ns(self, tick_ns: int) -> int | None:
        """The end of a long iteration of which all ranks have told, and that is not over by the watermark."""
        return self._iterations.told_end_ns(tick_ns) if self._iterations is not None else None

    def awaited(self) -> Awaited:
        """What is waited for here of digests: a rank's come in order."""
        return Awaited(self._until_ns, self._hosts.running()[0])

    @property
    def _until_ns(self) -> int:
        """Up to when all rows that will come have come; a stream that has ended has no end otherwise."""
        return min(self._watermark_ns, CLOSED_NS - 1)

    def _complete_of_pairs(self, pairs: Sequence[PlacedPair]) -> list[PairRounds]:
        """Rounds of pairs that both have reported, as one."""
        closed = close_complete([grid for _, grid in pairs])
        if closed is None:
            return []
        n_of_each, rounds = closed
        return [self._pair_rounds([pair for pair, _ in pairs], n_of_each, rounds)]

    def _overdue_of_pairs(self, pairs: Sequence[PlacedPair], is_running: BoolArray) -> Iterator[PairRounds]:
        """Rounds of pairs whose missing rows will not come, those of each by itself."""
        for pair, grid in pairs:
            closed = self._close_overdue(pair, grid, is_running)
            if closed is not None:
                yield self._pair_rounds([pair], [len(closed.seq)], closed)

    def _close_overdue(self, pair: tuple[int, int], grid: RoundGrid, is_running: BoolArray) -> ClosedRounds | None:
        """Rounds of a pair whose missing rows will not come.

        Rows and promises come in one order: a row that was launched and has ended, by the counters of its host, is lost
        once the promise covers the round. Only where nobody counts it is waited for.
        """
        expected_from = self._hosts.expected_of_pair(*pair)
        if expected_from is not None:
            return grid.close_overdue(self._until_ns, is_running[self._columns_of(pair)], expected_from)
        still = np.array([self._hosts.has_open_pair_call(rank) for rank in pair])
        return grid.close_overdue(self._until_ns - self._lateness_ns, still, np.zeros(2, np.int64))

    def _watermark(self) -> list[StageOneEvent]:
        if self._watermark_ns <= self._sent_watermark_ns:
            return []
        self._sent_watermark_ns = self._watermark_ns
        return [Watermark(job=self.job, attempt=self.attempt, time_ns=self._watermark_ns, stream=self.communicator)]

    def _columns_of(self, ranks: tuple[int, ...]) -> Int64Array:
        return np.array([self._column[rank] for rank in ranks], np.int64)

    def _rounds(self, closed: ClosedRounds) -> Rounds:
        return Rounds(
            job=self.job,
            attempt=self.attempt,
            communicator=self.communicator,
            source=self._source,
            sees=self._sees,
            ranks=self.members,
            **columns_at(closed, slice(None)),
        )

    def _pair_rounds(
        self, pairs: Sequence[tuple[int, int]], n_of_each: Sequence[int], closed: ClosedRounds
    ) -> PairRounds:
        return PairRounds(
            job=self.job,
            attempt=self.attempt,
            source=self._source,
            sees=self._sees,
            communicators=(self.communicator,),
            communicator=np.zeros(len(closed.seq), np.int64),
            ranks=np.repeat(np.array(pairs, np.int64), n_of_each, axis=0),
            **columns_at(closed, slice(None)),
        )

    def _count(self, what: str, number: int) -> None:
        if number:
            self.counts[what] = self.counts.get(what, 0) + number

    def all_counts(self) -> dict[str, int]:
        """Everything that was not used, by reason."""
        grids = [grid for _, grid in self._of_calls.of(self.members)]
        counts = dict(self.counts) | {"backward_progress": self._hosts.n_backward}
        for name in ("duplicate_rows", "late_rows", "missing_rows", "skipped_rounds"):
            counts[name] = sum(getattr(grid, name) for grid in grids)
            counts[name] += getattr(self._digests, name, 0)
        if self._iterations is not None:
            counts["incomplete_iterations"] = self._iterations.incomplete
            counts["backward_markers"] = self._iterations.backward
        return {name: number for name, number in counts.items() if number}
