"""Stage one on the key of a shard: all its communicators, of which each host tells at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from pacehound.errors import InvalidEvent, PartlyRefused, RejectedMessage
from pacehound.model.digests import is_of_digests
from pacehound.model.events import Progress, Tick, Topology
from pacehound.model.flushes import Flush
from pacehound.model.relayed import Relayed
from pacehound.model.routing import Event, host_stream
from pacehound.settings import Settings
from streams.rounds.call_rows import rows_of_flush
from streams.rounds.digest_places import Places
from streams.rounds.digest_rows import digests_of_flush
from streams.rounds.digest_table import DigestTable
from streams.rounds.hearing import hear_flush, hear_relayed, of_processes
from streams.rounds.heartbeats import Heartbeats
from streams.rounds.held_back import HeldBack
from streams.rounds.stage_one import OpenStream, StageOne, StageTwoInput
from streams.rounds.thresholds import UNANNOUNCED_S


class _Said(NamedTuple):
    """Whose digests a flush has: communicators one behind the other, and the direction, peer and rank of each row."""

    parts: tuple[tuple[str, str, int], ...]
    columns: tuple[bytes, ...]

    @classmethod
    def of(cls, flush: Flush) -> _Said:
        columns = [flush.columns[name] for name in ("direction", "peer", "rank") if name in flush.columns]
        parts = tuple([(part.communicator, part.source, part.n_rows) for part in flush.parts])
        return cls(parts, tuple([column.tobytes() for column in columns]))


MAX_OVER = 1_000
"""Communicators that are over, and whose late rows are still recognised as such."""


class _Hosts:
    """All that are in some communicators: asked each second, and of thousands of hosts different hardly ever."""

    def __init__(self) -> None:
        self._of: list[tuple[str, ...]] = []
        self._all: tuple[str, ...] = ()

    def of(self, hosts: list[tuple[str, ...]]) -> tuple[str, ...]:
        if len(hosts) != len(self._of) or any(now is not before for now, before in zip(hosts, self._of, strict=True)):
            self._of, self._all = hosts, tuple(dict.fromkeys(host for some in hosts for host in some))
        return self._all


class Shard:
    """The communicators of a shard, each with its own stage one; digests of all of them are joined in one table.

    What a host says in each iteration alike, digests and heartbeats of the same communicators, is recognised and taken
    at once: what costs is not to find out for each of them where it belongs. And what follows from promises is found
    out when all hosts have come to the next time that something can be told, not when each of them speaks.

    It hears hosts themselves, or what their homes have relayed, which tell it who is silent.

    >>> from pacehound.settings import Settings
    >>> Shard(Settings()).on_event(Tick(job="j", attempt=0, time_ns=5, stream="shard:j/0/0"))
    []
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._tick_ns = round(settings.stream.tick_s * 1e9)
        self._stages: dict[str, StageOne] = {}
        self._over: dict[str, None] = {}  # in the order in which they were over
        self._digests = DigestTable()
        self._beats = Heartbeats(self._lateness_ns)
        self._held = HeldBack(self._tick_ns)
        self._promised: dict[str, None] = {}  # communicators that something was promised of since all were asked
        self._end_ns: int | None = None  # of the iteration that all ranks have told the end of
        self._quiet_ns = 0  # for how long a host may say nothing, as one said last
        self._beat_ns: dict[str, int] = {}  # by host whose heart beats, when it did last
        self._hears_homes = False
        self._begin()

    def _begin(self) -> None:
        """What follows from the rest."""
        self._hosts = _Hosts()
        self._open: OpenStream | None = None  # nothing: who is in it may have changed
        self._has_told = False  # what follows from all promises, with this event
        self._places: dict[str, tuple[_Said, Places]] = {}  # by host, of the digests that it sent last

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        derived = ("_hosts", "_open", "_places", "_has_told")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Who is in it is put together again when somebody asks."""
        self.__dict__.update(state)
        self._begin()

    def on_event(self, event: Event) -> list[StageTwoInput]:
        """One event; what stage two has to know of it, in order, or when it is of use to it (`held_back`).

        Raises
        ------
        InvalidEvent
            The event cannot be true, or belongs to nothing that is known; it has changed nothing. (`PartlyRefused`:
            that holds of a part of it.)

        """
        match event:
            case Flush():
                return self._on_flush(event)
            case Relayed():
                self._hears_homes = True
                return self.hear(event)
            case Topology():
                self._open, touched = None, [event.communicator]
                return self._concluded(touched, lambda: self._stage(event.communicator).on_event(event))
            case Tick():
                # Where homes tell who is silent, this is about members whom nobody has announced.
                among = () if self._hears_homes else None
                return self._concluded(list(self._stages), lambda: self._on_tick(event, among))
            case _:
                raise InvalidEvent(f"a {type(event).__name__} does not travel with a shard")

    def _on_flush(self, flush: Flush) -> list[StageTwoInput]:
        as_before: list[StageTwoInput] = []
        beat, changed = flush.heartbeat, dict[str, Any]()
        if beat is not None and not beat.communicators:  # of processes alone
            beat = None
        is_known = beat is not None and self._beats.is_known(flush.host, beat)
        if flush.topologies or flush.promises or (beat is not None and not is_known):
            self._open = None
            as_before += self._tell_beats([flush.host])  # in order with what is said now
        if not (flush.topologies or flush.promises) and self._has_put(flush):
            changed |= {"parts": (), "columns": {}}
        if beat is not None and is_known:
            self._beats.wait(flush.host, beat)
            self._note_heartbeat(flush)
            as_before += of_processes(flush)
            changed["heartbeat"] = None
        rest = replace(flush, **changed) if changed else flush
        touched = rest.communicators

        def hear() -> list[StageTwoInput]:
            results = [*as_before]
            try:
                results += hear_flush(rest, self._stage)
            except PartlyRefused as error:
                if self._is_announced(rest):
                    self._note_heartbeat(rest)
                raise error.with_results([*results, *error.results, *self._told_together(rest, touched)]) from error
            self._note_heartbeat(rest)
            if rest.heartbeat is not None and rest.heartbeat.communicators:
                self._beats.note_taken(flush.host, rest.heartbeat)
            return [*results, *self._told_together(rest, touched)]

        return self._concluded(touched, hear)

    def hear(self, said: Relayed) -> list[StageTwoInput]:
        """What several hosts have said; errors as in `on_event`."""
        if said.tick_ns:
            tick = Tick(job=said.job, attempt=said.attempt, time_ns=said.tick_ns, stream=said.key)
            return self._concluded(list(self._stages), lambda: self._on_tick(tick, said.silent))
        if said.topologies or said.promises or said.beats:
            self._open = None
        touched = said.communicators

        def hear() -> list[StageTwoInput]:
            try:
                results = hear_relayed(said, self._stage)
            except PartlyRefused as error:
                self._note_promises(said)
                raise error.with_results([*error.results, *self._told_together(said, touched)]) from error
            self._note_promises(said)
            return [*results, *self._told_together(said, touched)]

        return self._concluded(touched, hear)

    def _concluded(self, touched: Sequence[str], hear: Callable[[], list[StageTwoInput]]) -> list[StageTwoInput]:
        """What follows from something that is said of these communicators, as far as it is told now."""
        try:
            results = hear()
        except PartlyRefused as error:
            taken = [cast(StageTwoInput, result) for result in error.results]
            raise error.with_results(self._held_back(touched, taken)) from error
        else:
            return self._held_back(touched, results)
        finally:
            self._note_over(touched)

    # Digests

    def _has_put(self, flush: Flush) -> bool:
        """Put digests that lie where those of this host did before; whether that is so."""
        if not flush.parts or any(part.dropped for part in flush.parts):
            return False
        said = _Said.of(flush)
        known = self._places.pop(flush.host, None)
        places = known[1] if known is not None and known[0] == said else self._placed(flush)
        if places is None:
            return False
        self._places[flush.host] = said, places
        rows = digests_of_flush(flush)
        if rows is None:
            return False
        self._digests.put(rows, places)
        return True

    def _placed(self, flush: Flush) -> Places | None:
        """Where the digests of a host go, unless some go nowhere, or are calls."""
        if not all(is_of_digests(part.source) for part in flush.parts):
            return None
        rows = rows_of_flush(flush)
        lines, cells = [], []
        for part, where in zip(flush.parts, flush.slices(), strict=True):
            stage = self._stages.get(part.communicator)
            try:
                found = None if stage is None else stage.places_of_digests(flush.host, part, where, rows)
            except RejectedMessage:
                return None  # it is refused where each part is heard by itself
            if found is None:
                return None
            lines.append(found[0])
            cells.append(found[1])
        return Places.of(np.concatenate(lines), np.concatenate(cells))

    def _rounds(self, ended: Collection[str] | None) -> list[StageTwoInput]:
        """Those of the digests that have come; what is overdue in communicators that have ended alone, or in all."""
        if not self._digests.has_open:
            return []
        names = self._stages if ended is None else [name for name in ended if name in self._stages]
        asked = {name: known for name in names if (known := self._stages[name].joining) is not None}
        whose = next(iter(asked.values()), None)
        if whose is None:
            return []
        return list(
            self._digests.take(
                whose.job,
                whose.attempt,
                self._members_of,
                lambda name: asked[name].awaited(),
                among=None if ended is None else asked,
                absent=[name for name, known in asked.items() if not known.is_whole],
            )
        )

    def _members_of(self, communicator: str) -> tuple[int, ...]:
        known = self._stages[communicator].joining
        assert known is not None, "digests have come of it"
        return known.members

    # Heartbeats

    def _note_heartbeat(self, flush: Flush) -> None:
        """That of a host which has announced itself, or it would have been refused."""
        beat, promised_ns = flush.heartbeat, flush.promised_ns
        if not promised_ns:
            return
        # If something is promised behind the last promise after all, of another communicator, that is noted then.
        self._beats.promises(flush.host, max(promised_ns.values()), is_last=flush.promises_the_last)
        if beat is None or not (beat.communicators or beat.is_of_processes):
            self._beat_ns.pop(flush.host, None)  # its samples follow each other, or another shard is told of them
            return
        self._beat_ns[flush.host] = beat.time_ns
        if beat.communicators:
            self._quiet_ns = beat.quiet_ns

    def _note_promises(self, said: Relayed) -> None:
        """Those of each host, as of a flush of its own."""
        last: dict[str, dict[str, Progress]] = {}  # by host and communicator
        for promise in said.promises:
            stage = self._stages.get(promise.communicator)
            known = None if stage is None else stage.communicator
            if known is not None and promise.host in known.announced:
                last.setdefault(promise.host, {})[promise.communicator] = promise
        for host, promises in last.items():
            time_ns = max(promise.time_ns for promise in promises.values())
            self._beats.promises(host, time_ns, is_last=all(promise.closed for promise in promises.values()))
        for one in said.beats:
            self._beats.promises(one.host, one.beat.time_ns)

    def _is_announced(self, flush: Flush) -> bool:
        """Whether its host is known to one of the communicators of which it promises something."""
        stages = (self._stages.get(name) for name in flush.promised_ns)
        known = (stage.communicator for stage in stages if stage is not None)
        return any(one is not None and flush.host in one.announced for one in known)

    def _told_together(self, said: Flush | Relayed, touched: list[str]) -> list[StageTwoInput]:
        """What follows from all promises, if nobody holds back what is waited for; of whom is added to `touched`."""
        self._promised |= dict.fromkeys(said.promised)
        if said.markers and self._end_ns is None:
            ends_ns = [
                stage.told_end_ns(self._tick_ns) for name in said.communicators if (stage := self._stages.get(name))
            ]
            self._end_ns = next((end_ns for end_ns in ends_ns if end_ns is not None), None)
            if self._end_ns is not None:
                self._expect()
        if not self._beats.are_due:
            return []
        touched += self._promised
        return self._tell_all()

    def _tell_all(self) -> list[StageTwoInput]:
        results = self._tell_beats()
        for communicator in self._promised:
            stage = self._stages.get(communicator)
            results += [] if stage is None else stage.advance()
        self._promised.clear()
        self._end_ns, self._has_told = None, True
        return results

    def _tell_beats(self, hosts: Sequence[str] | None = None) -> list[StageTwoInput]:
        """Let communicators hear the heartbeats that wait; those of some hosts alone, or of all."""
        told = self._beats.take(hosts)
        results: list[StageTwoInput] = []
        for communicator in told.n_hosts:
            stage = self._stages.get(communicator)
            if stage is not None:
                self._open = self._open if stage.is_whole else None
                results += stage.on_time(communicator, told)
        return results

    def _expect(self) -> None:
        """Promises wait until all hosts have promised up to the next time that something can be told."""
        opened = self._stream()
        hosts = () if opened is None else opened.hosts
        lowest_ns = self._beats.lowest_ns(hosts)
        next_ns = max((lowest_ns // self._tick_ns + 1) * self._tick_ns, self._held.next_ns)
        self._beats.expect(hosts, next_ns if self._end_ns is None else min(next_ns, self._end_ns))

    def _on_tick(self, tick: Tick, among: Collection[str] | None) -> list[StageTwoInput]:
        self._open = None
        results = [*self._tell_all(), *self._silent(tick)]
        for communicator, stage in self._stages.items():
            results += stage.on_tick(replace(tick, stream=communicator), among)
        return results

    def _silent(self, tick: Tick) -> list[StageTwoInput]:
        """Hosts whose hearts beat no more: their samples, which these stood for, are silent as well."""
        before_ns = tick.time_ns - self._lateness_ns - self._quiet_ns
        silent = [host for host, beat_ns in self._beat_ns.items() if beat_ns < before_ns]
        return [replace(tick, stream=host_stream(tick.job, host)) for host in silent]

    def _held_back(self, touched: Sequence[str], results: Sequence[StageTwoInput]) -> list[StageTwoInput]:
        # Not what was refused because nobody has announced it: it would hold back all others.
        known = ((name, self._stages.get(name)) for name in touched)
        self._held.expect(name for name, stage in known if stage is not None and stage.communicator is not None)
        told = self._held.take(results, self._rounds)
        if self._has_told:
            self._has_told = False
            self._expect()
        return told

    @property
    def has_open(self) -> bool:
        """Some communicator has been told of and is not over."""
        return bool(self._stages)

    @property
    def is_closed(self) -> bool:
        """All that has been told of is over; a job may yet make another communicator."""
        return not self._stages and bool(self._over)

    def shed(self) -> None:
        """What is left of communicators that are over is small already."""

    def open_stream(self) -> OpenStream | None:
        """All its streams as one: whoever tells of one of them tells of the others."""
        opened = self._stream()
        if opened is None:
            return None
        if self._hears_homes:  # of those that are known homes tell who is silent
            return replace(opened, hosts=(), quiet_s=UNANNOUNCED_S)
        return replace(opened, quiet_s=self._quiet_ns / 1e9)

    def _stream(self) -> OpenStream | None:
        """The same, but for how long it may be quiet. Who is in it is asked for each second, and is mostly the same."""
        if self._open is None:
            stages = self._stages.values()
            known = [one for stage in stages if not stage.is_closed and (one := stage.communicator) is not None]
            if known:
                self._open = OpenStream(
                    job=known[0].job,
                    attempt=known[0].attempt,
                    hosts=self._hosts.of([one.hosts for one in known]),
                    is_complete=all(one.is_complete for one in known),
                )
        return self._open

    def _stage(self, communicator: str) -> StageOne:
        if communicator in self._over:
            return self._over_stage()
        stage = self._stages.get(communicator)
        if stage is None:
            stage = self._stages[communicator] = StageOne(self._settings, self._digests)
        return stage

    def _note_over(self, touched: Sequence[str]) -> None:
        """Keep no state of what is over with this, nor of what was refused before it was known."""
        for communicator in touched:
            stage = self._stages.get(communicator)
            if stage is None:
                continue
            if stage.is_closed:
                self._over[communicator] = None
            if stage.is_closed or stage.communicator is None:
                del self._stages[communicator]
                self._open = None
                self._held.forget([communicator])
                self._beats.forget_known()
                if self._digests.forget(communicator):
                    self._places.clear()
        while len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]

    def _over_stage(self) -> StageOne:
        """Takes nothing: what comes was sent twice."""
        stage = StageOne(self._settings)
        stage.is_closed = True
        return stage
