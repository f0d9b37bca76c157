"""Stage one on the key of a home: what some hosts of a large job say, of all their communicators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pacehound.errors import InvalidEvent, PartlyRefused, RejectedMessage
from pacehound.model.events import HostVitals, Tick, Topology, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.relayed import Relayed
from pacehound.model.routing import Event, host_stream
from pacehound.settings import Settings
from streams.rounds.hearing import of_processes
from streams.rounds.heartbeats import Heartbeats
from streams.rounds.relay import HERE, Relay
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
        self._shard = Shard(settings)
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
            As in `Shard.on_event`; of a part of it, or of what came before and was heard now (`PartlyRefused.earlier`).

        """
        following = _Following()
        match event:
            case Flush():
                self._on_flush(event, following)
            case Topology():
                self._announced([event], following)
                following.told += self._relay.pass_announcements_on()
            case Tick():
                self._tell(following)
                following.hear(lambda: self._shard.on_event(event))
                following.told += self._relay.tick(event, self._lateness_ns)
                following.told += self._silent(event)
            case _:
                raise InvalidEvent(f"a {type(event).__name__} does not travel with a home")
        return following.all()

    def _on_flush(self, flush: Flush, following: _Following) -> None:
        if flush.topologies:
            self._announced(flush.topologies, following)
            flush = replace(flush, topologies=())
        strange = self._relay.take(flush)
        self._note(flush)
        if strange is not None:
            following.hear(lambda: self._shard.on_event(strange))
        if not self._relay.has_open or self._beats.are_due:
            self._tell(following)
        elif self._relay.is_full:
            self._pass_on(following)
        elif self._relay.has_new:
            following.told += self._relay.pass_announcements_on()

    def _announced(self, topologies: Sequence[Topology], following: _Following) -> None:
        """What follows from announcements of what is joined here; the others wait."""
        here = tuple(self._relay.announce(topologies))
        if here:
            said = Relayed(job=here[0].job, attempt=here[0].attempt, shard=HERE, topologies=here)
            following.hear(lambda: self._shard.hear(said))

    def _note(self, flush: Flush) -> None:
        """What it promises, and what it says of the host."""
        self._vitals += flush.vitals
        promised_ns, beat = flush.promised_ns, flush.heartbeat
        if promised_ns and self._relay.knows(flush.host):
            self._beats.promises(flush.host, max(promised_ns.values()), is_last=flush.promises_the_last)
        for watermark in of_processes(flush):
            self._processes[flush.host] = watermark
        if beat is not None and beat.is_of_processes:
            self._quiet_until_ns[flush.host] = beat.time_ns + beat.quiet_ns
        elif promised_ns:
            self._quiet_until_ns.pop(flush.host, None)  # its samples follow each other

    def _tell(self, following: _Following) -> None:
        following.told += self._vitals
        self._pass_on(following)
        following.told += self._processes.values()
        self._vitals, self._processes = [], {}
        self._beats.take()
        hosts = self._relay.hosts
        self._beats.expect(hosts, self._beats.lowest_ns(hosts) + 1)

    def _pass_on(self, following: _Following) -> None:
        """All that waits; what is joined here is heard here."""
        waiting = self._relay.waiting
        for said in self._relay.pass_on():
            if said.shard != HERE:
                following.told.append(said)
                continue
            try:
                following.told += self._shard.hear(said)
            except PartlyRefused as error:
                following.told += error.results  # type: ignore[arg-type]
                of_hosts = ((flush, error.by_host.get(flush.host)) for flush in waiting)
                following.earlier += [(flush, why) for flush, why in of_hosts if why is not None]

    def _silent(self, tick: Tick) -> list[StageTwoInput]:
        """Hosts whose hearts beat no more: their samples, which these stood for, are silent as well."""
        before_ns = tick.time_ns - self._lateness_ns
        silent = [host for host, until_ns in self._quiet_until_ns.items() if until_ns < before_ns]
        return [replace(tick, stream=host_stream(tick.job, host)) for host in silent]

    @property
    def is_closed(self) -> bool:
        """All that has been told of is over; a job may yet make another communicator."""
        return not (self._relay.has_open or self._shard.has_open) and (self._relay.has_known or self._shard.is_closed)

    def shed(self) -> None:
        """What is left of communicators that are over is small already."""

    def open_stream(self) -> OpenStream | None:
        """All its streams as one: whoever tells of one of them tells of the others."""
        near, opened = self._shard.open_stream(), self._relay.open_stream()
        return opened if near is None or opened is None else replace(opened, is_complete=near.is_complete)


class _Following:
    """What follows from an event, and what is refused of it and of those that were heard with it."""

    def __init__(self) -> None:
        self.told: list[StageTwoInput | Relayed] = []
        self.earlier: list[tuple[Flush, RejectedMessage]] = []
        self._refused: PartlyRefused | None = None

    def hear(self, what: Callable[[], Sequence[StageTwoInput]]) -> None:
        """A part of the event."""
        try:
            self.told += what()
        except PartlyRefused as error:
            self.told += error.results  # type: ignore[arg-type]
            self._refused = error

    def all(self) -> list[StageTwoInput | Relayed]:
        """What follows, or `PartlyRefused`."""
        refused, earlier = self._refused, self.earlier
        if refused is None and not earlier:
            return self.told
        reason = str(refused or earlier[0][1])
        raise PartlyRefused(reason, self.told, earlier=earlier, is_of_event=refused is not None)
