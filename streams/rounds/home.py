"""Stage one on the key of a home: what some hosts of a large job say, of all their communicators."""

from __future__ import annotations

from dataclasses import replace

from pacehound.errors import InvalidEvent, PartlyRefused
from pacehound.model.events import HostVitals, Tick, Topology, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.relayed import Relayed
from pacehound.model.routing import Event, host_stream
from pacehound.settings import Settings
from streams.rounds.hearing import of_processes
from streams.rounds.heartbeats import Heartbeats
from streams.rounds.relay import Relay
from streams.rounds.shard import Shard
from streams.rounds.stage_one import OpenStream, StageTwoInput


class Home:
    """Joins communicators whose members all have this home, as a shard, and relays what is said of others.

    What was relayed, and what hosts say of themselves, is told when all hosts have spoken since it was told last, or
    one is silent for too long.

    >>> from pacehound.settings import Settings
    >>> Home(Settings()).on_event(Tick(job="j", attempt=0, time_ns=5, stream="home:j/0/0"))
    []
    """

    def __init__(self, settings: Settings) -> None:
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._shard = Shard(settings, has_homes=True)
        self._relay = Relay()
        self._beats = Heartbeats(self._lateness_ns)
        self._vitals: list[HostVitals] = []
        self._processes: dict[str, Watermark] = {}  # by host, how far its last heartbeat speaks for its processes
        self._quiet_until_ns: dict[str, int] = {}  # by host whose heart beats

    def on_event(self, event: Event) -> list[StageTwoInput | Relayed]:
        """One event; what others have to know of it, in order.

        Raises
        ------
        InvalidEvent
            As in `Shard.on_event`.

        """
        match event:
            case Flush():
                return self._on_flush(event)
            case Topology():
                is_kept = self._relay.hear(event)
                return [*(self._relay.pass_on() if is_kept else self._shard.on_event(event))]
            case Tick():
                return [
                    *self._shard.on_event(event),
                    *self._tell(),
                    *self._relay.tick(event, self._lateness_ns),
                    *self._silent(event),
                ]
            case _:
                raise InvalidEvent(f"a {type(event).__name__} does not travel with a home")

    def _on_flush(self, flush: Flush) -> list[StageTwoInput | Relayed]:
        rest = self._relay.take(flush)
        self._note(flush)
        results: list[StageTwoInput | Relayed] = []
        if rest.communicators:
            try:
                results += self._shard.on_event(rest)
            except PartlyRefused as error:
                raise PartlyRefused(str(error), [*error.results, *self._told()]) from error
        return [*results, *self._told()]

    def _note(self, flush: Flush) -> None:
        """What it promises, and what it says of the host."""
        self._vitals += flush.vitals
        promised_ns, beat = flush.promised_ns, flush.heartbeat
        if promised_ns and self._relay.knows(flush.host):
            is_last = bool(flush.promises) and all(promise.closed for promise in flush.promises)
            self._beats.promises(flush.host, max(promised_ns.values()), is_last=is_last)
        for watermark in of_processes(flush):
            self._processes[flush.host] = watermark
        if beat is not None and beat.is_of_processes:
            self._quiet_until_ns[flush.host] = beat.time_ns + beat.quiet_ns
        elif promised_ns:
            self._quiet_until_ns.pop(flush.host, None)  # its samples follow each other

    def _told(self) -> list[StageTwoInput | Relayed]:
        """What is told now: all, what was relayed and cannot wait, or nothing."""
        if not self._relay.hosts or self._beats.are_due:
            return self._tell()
        return [*self._relay.pass_on()] if self._relay.cannot_wait else []

    def _tell(self) -> list[StageTwoInput | Relayed]:
        told: list[StageTwoInput | Relayed] = [*self._vitals, *self._relay.pass_on(), *self._processes.values()]
        self._vitals, self._processes = [], {}
        self._beats.take()
        hosts = self._relay.hosts
        self._beats.expect(hosts, self._beats.lowest_ns(hosts) + 1)
        return told

    def _silent(self, tick: Tick) -> list[StageTwoInput]:
        """Hosts whose hearts beat no more: their samples, which these stood for, are silent as well."""
        before_ns = tick.time_ns - self._lateness_ns
        silent = [host for host, until_ns in self._quiet_until_ns.items() if until_ns < before_ns]
        return [replace(tick, stream=host_stream(tick.job, host)) for host in silent]

    @property
    def is_closed(self) -> bool:
        """All that has been told of is over; a job may yet make another communicator."""
        return not (self._relay.hosts or self._shard.has_open) and (self._relay.has_known or self._shard.is_closed)

    def shed(self) -> None:
        """What is left of communicators that are over is small already."""

    def open_stream(self) -> OpenStream | None:
        """All its streams as one: whoever tells of one of them tells of the others."""
        near, relayed = self._shard.open_stream(), self._relay.open_stream()
        if near is None or relayed is None:
            return near or relayed
        return replace(near, hosts=tuple(dict.fromkeys((*near.hosts, *relayed.hosts))))
