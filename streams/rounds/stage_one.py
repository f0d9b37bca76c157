"""Stage one on one key of `calls` or `hosts`: what can be said about one communicator, or one host, alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pacehound.errors import InvalidEvent
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.digests import is_kept
from pacehound.model.events import (
    HostEvidence,
    HostSample,
    HostVitals,
    JobHistory,
    Markers,
    Progress,
    Tick,
    Topology,
)
from pacehound.model.flushes import CallPart, Heartbeat
from pacehound.model.operations import Operations
from pacehound.model.relayed import RelayedPart
from pacehound.model.routing import HOST_STREAM, Event
from pacehound.settings import Settings
from streams.rounds.call_rows import CallRows
from streams.rounds.communicator import CommunicatorOperator, StageOneEvent
from streams.rounds.digest_table import DigestTable
from streams.rounds.giving_up import Patience
from streams.rounds.heartbeats import ToldBeats
from streams.rounds.hosts_of_communicator import Int64Array
from streams.rounds.partial_membership import PartialCommunicator

Part = CallPart | RelayedPart

StageTwoInput = StageOneEvent | HostSample | HostVitals | HostEvidence | JobHistory | Operations | Tick
"""What stage two reads: results of communicators, and what hosts say as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStream:
    """A stream that is not closed: who must be heard in it for time to go on."""

    job: str
    attempt: int
    hosts: tuple[str, ...]
    is_complete: bool
    quiet_s: float = 0.0
    """So long a host may say nothing before it counts as silent."""


class StageOne:
    """Everything on one key; `shared` is as in `CommunicatorOperator`.

    >>> from pacehound.settings import Settings
    >>> StageOne(Settings()).on_event(Tick(job="j", attempt=0, time_ns=5, stream="a communicator nobody knows"))
    []
    """

    def __init__(self, settings: Settings, shared: DigestTable | None = None) -> None:
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._shared = shared
        self.communicator: CommunicatorOperator | PartialCommunicator | None = None
        self.is_closed = False
        """All that was to come has come; what comes all the same was sent twice."""
        self._host: HostSample | None = None
        self._patience = Patience()

    def on_event(self, event: Event) -> list[StageTwoInput]:
        """One event; what stage two has to know of it, in order.

        Raises
        ------
        InvalidEvent
            The event cannot be true, or belongs to nothing that is known; it has changed nothing.
        """
        match event:
            case HostSample() if self.is_closed and self._host is not None and event.attempt <= self._host.attempt:
                return []
            case HostSample():
                self._host, self.is_closed = event, event.closed
                self._patience.renew()
                return [event]
            case JobHistory():
                return [event]
            case Operations():
                self.is_closed = True  # there is nothing to be kept of this key between two of them
                return [event]
            case HostVitals() | HostEvidence():
                return [event]
            case Tick() if event.stream.startswith(HOST_STREAM):
                self.is_closed |= self._patience.ends(event.time_ns)
                return [event]
            case Topology() | CallBatch() | Markers() | Progress() if self.is_closed:
                return []
            case Topology():
                kind = PartialCommunicator if event.is_partial else CommunicatorOperator
                operator = self.communicator or kind(event, self._lateness_ns, self._shared)
                announced = operator.on_topology(event)
                self.communicator = operator
                return self._noted(announced)
            case Tick():
                return self.on_tick(event)
            case CallBatch() if is_kept(event.source):
                return []  # they stand behind digests, which were judged
            case CallBatch():
                return self._noted(self._known(event.host, "calls").on_calls(event))
            case Markers():
                return self._noted(self._known(event.host, "markers").on_markers(event))
            case Progress():
                return self._noted(self._known(event.host, "progress").on_progress(event))
            case _:
                raise InvalidEvent(f"{type(event).__name__} is no input of the streams")

    def on_tick(self, tick: Tick, among: Collection[str] | None = None) -> list[StageTwoInput]:
        """Time has passed in a stream in which a host is silent (`HostsOfCommunicator.tick`)."""
        return [] if self.communicator is None else self._noted(self.communicator.on_tick(tick, among))

    def on_rows(
        self, part: Part, where: slice, rows: CallRows, hosts: Sequence[str], as_batch: Callable[[], CallBatch]
    ) -> list[StageTwoInput]:
        """Rows of this communicator, of these hosts; `where` they are among those of others. Errors as in `on_event`.

        As long as a communicator waits for members it takes them `as_batch`, of one host.
        """
        if self.is_closed or is_kept(part.source):
            return []
        operator = self._known(hosts[0], "calls")
        if isinstance(operator, PartialCommunicator) and not operator.takes_rows:
            return self._noted(operator.on_calls(as_batch()))
        dropped = sum(part.dropped) if isinstance(part, RelayedPart) else part.dropped
        return self._noted(operator.on_rows(rows, where, hosts, Sees(part.sees), part.source, dropped))

    def places_of_digests(
        self, host: str, part: CallPart, where: slice, rows: CallRows
    ) -> tuple[Int64Array, Int64Array] | None:
        """The line and the cell of each of these digests, as long as nobody else is announced and this is not over.

        `None` where they are not put into a table: it is over, or waits for members. Errors as in `on_event`.
        """
        if self.is_closed:
            return None
        known, joining = self._known(host, "calls"), self.joining
        if joining is None:
            return None
        if isinstance(known, PartialCommunicator):
            rows = known.named_rows(rows, where)
        return joining.places_of_digests(rows, where, host, Sees(part.sees), part.source)

    @property
    def joining(self) -> CommunicatorOperator | None:
        """Who joins the calls of the communicator, once all its members are known."""
        known = self.communicator
        return known.joining if isinstance(known, PartialCommunicator) else known

    @property
    def is_whole(self) -> bool:
        """All members of the communicator are running, as far as is known."""
        return self.joining is not None and self.joining.is_whole

    def told_end_ns(self, tick_ns: int) -> int | None:
        """The end of a long iteration of which all ranks have told, and that is not over yet."""
        return None if self.joining is None else self.joining.told_end_ns(tick_ns)

    def on_promise(self, progress: Progress) -> list[StageTwoInput]:
        """How far a host's ranks are; what follows from it is told by `advance`. Errors as in `on_event`."""
        if self.is_closed:
            return []
        return list(self._known(progress.host, "progress").on_promise(progress))

    def advance(self) -> list[StageTwoInput]:
        """What follows from the promises that were taken."""
        return [] if self.communicator is None else self._noted(self.communicator.advance())

    def on_time(self, communicator: str, told: ToldBeats) -> list[StageTwoInput]:
        """Hosts promise what they promised last, up to a later time; errors as in `on_event`."""
        joining = None if self.is_closed or told.go_back else self.joining
        if joining is not None and len(joining.hosts) == told.n_hosts[communicator]:
            events = joining.on_time(told.beats, told.times_ns)
            if events is not None:
                return self._noted(events)
        announced = () if self.communicator is None else self.communicator.announced
        return self.on_heartbeats(told.of(communicator, announced))

    def on_heartbeats(self, beats: Sequence[tuple[str, Heartbeat]]) -> list[StageTwoInput]:
        """Those of some hosts; errors as in `on_event`."""
        if self.is_closed or not beats:
            return []
        events = self._known(beats[0][0], "a heartbeat").on_heartbeats(beats)
        return self._noted(events) if events else []

    def take_heartbeats(self, beats: Sequence[tuple[str, Heartbeat]]) -> None:
        """The same; what follows from them is told by `advance`."""
        if not self.is_closed:
            self._known(beats[0][0], "a heartbeat").take_heartbeats(beats)

    def open_stream(self) -> OpenStream | None:
        """The stream of this key, if it is open."""
        if self.is_closed:
            return None
        if self._host is not None:
            host = self._host
            quiet_s = host.quiet_ns / 1e9
            return OpenStream(job=host.job, attempt=host.attempt, hosts=(host.host,), is_complete=True, quiet_s=quiet_s)
        operator = self.communicator
        if operator is None:
            return None
        return OpenStream(
            job=operator.job, attempt=operator.attempt, hosts=operator.hosts, is_complete=operator.is_complete
        )

    def _noted(self, events: list[StageOneEvent]) -> list[StageTwoInput]:
        self.is_closed = self.communicator is not None and self.communicator.is_closed
        return list(events)

    def shed(self) -> None:
        """Keep of a key that is closed what tells a repeat, and nothing else."""
        self.communicator = None

    def _known(self, host: str, what: str) -> CommunicatorOperator | PartialCommunicator:
        if self.communicator is None:
            raise InvalidEvent(f"{what} of host {host!r} on a communicator which no topology has announced")
        return self.communicator
