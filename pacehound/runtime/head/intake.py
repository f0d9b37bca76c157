"""What a head takes in: from hosts, from who commands, and of its own process; checked, counted, put on the bus.

Everything else is concluded in here, and a stranger's conclusion is none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pacehound.bus import Message
from pacehound.bus.mailbox import Mailbox
from pacehound.bus.memory import MemoryBus, decoded_bytes
from pacehound.clock import Clock
from pacehound.errors import BusFull, InvalidEvent, InvalidInput, MalformedMessage, RejectedMessage
from pacehound.model import codec, topics
from pacehound.model.calls import CallBatch
from pacehound.model.codes import JOINING
from pacehound.model.events import (
    Command,
    CommandResult,
    DeadLetter,
    HostEvidence,
    HostSample,
    HostVitals,
    Markers,
    Progress,
    Topology,
)
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations
from pacehound.model.routing import Event, host_stream, route
from pacehound.runtime.dead_letter import LONGEST_REASON, dead_letter_of
from pacehound.runtime.head.attempts import Answer, Attempts, AttemptsFile, Question, highest_attempt
from pacehound.runtime.head.known_topology import KnownTopology
from pacehound.runtime.metric_names import BUS_FULL, RECORDS_ACCEPTED, RECORDS_REJECTED
from pacehound.runtime.records import Outcome, dead_letters_of, records_of
from pacehound.runtime.silence import Silence, quiet_s_of
from pacehound.runtime.telemetry import Telemetry

_BUS_SHARE = 0.75
"""What comes in from hosts may fill this much of the bus; the rest is for what the pipeline concludes."""

FromHost = CallBatch | Flush | Topology | Progress | Markers | HostSample | HostVitals | HostEvidence | Operations
SENT_BY_HOSTS = (CallBatch, Flush, Topology, Progress, Markers, HostSample, HostVitals, HostEvidence, Operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What became of the records of one request."""

    accepted: int
    rejected: int
    reason: str = ""


class Intake:
    """The door of a head; any thread may come through it, one at a time.

    Parameters
    ----------
    bus, bus_max_bytes
        Where what is taken goes, and how much fits there.
    mailbox
        Where orders and answers are kept for who asks for them.
    known_topology
        What was announced before, for streams that go on.
    attempts_file
        Where the highest attempt of each job is noted for who cannot ask a head.
    silence
        Is told of each host that is heard.
    on_taken
        Called with the events of a request when they are on the bus, and whether some of it was refused and set aside.
    on_new_attempt
        Called with the first word of an attempt, with its job.

    """

    def __init__(
        self,
        *,
        bus: MemoryBus,
        bus_max_bytes: int,
        mailbox: Mailbox,
        known_topology: KnownTopology,
        attempts_file: AttemptsFile | None,
        silence: Silence,
        clock: Clock,
        telemetry: Telemetry,
        on_taken: Callable[[Sequence[Event], bool], object],
        on_new_attempt: Callable[[str, int], object],
    ) -> None:
        self._bus = bus
        self._max_bytes = int(bus_max_bytes * _BUS_SHARE)
        self._mailbox = mailbox
        self._known_topology = known_topology
        self._attempts = Attempts()
        self._attempts_lock = threading.Lock()
        self._attempts_file = attempts_file
        self._silence = silence
        self._clock = clock
        self._telemetry = telemetry
        self._on_taken = on_taken
        self._on_new_attempt = on_new_attempt
        self._lock = threading.Lock()
        # Names dead letters of what is refused on arrival: unique over the lives of a store's owners.
        self._dead_letters = clock.now_ns()

    def take(self, body: bytes) -> IngestResult:
        """Take an OTLP logs message with any number of records in, all or (`BusFull`) none of them.

        Raises
        ------
        BusFull
            Come back later; nothing of it was taken.
        MalformedMessage
            The bytes are no OTLP logs at all; they are in the dead letters.

        """
        with self._lock:
            self._make_sure_of_room(len(body))  # before it is decoded: a full head must not work for what it refuses
            request = Message(topic="otlp", key="", partition=0, offset=0, value=body)
            try:
                records = records_of(request)
            except RejectedMessage as error:
                self._reject(body, error)
                raise
            taken: list[tuple[FromHost | CommandResult, bytes]] = []
            refused: list[Outcome[FromHost | CommandResult]] = []
            for outcome in (record.outcome(self._from_a_host) for record in records):
                if outcome.error is None and outcome.result is not None and outcome.record is not None:
                    taken.append((outcome.result, outcome.record.payload()))
                elif isinstance(outcome.error, RejectedMessage):
                    refused.append(outcome)
                elif outcome.error is not None:
                    raise outcome.error
            letters = dead_letters_of(request, refused, self._clock.now_ns())
            n_bytes = sum(len(value) + decoded_bytes(event) for event, value in taken)
            self._make_sure_of_room(n_bytes + sum(len(letter.payload) for letter in letters))
            for letter in letters:
                self._set_aside(letter)
            for event, value in taken:
                self._admit(event, value, is_decoded=True)
            self._on_taken([event for event, _ in taken], bool(letters))
            for outcome in refused:
                self._telemetry.add(RECORDS_REJECTED, error=type(outcome.error).__name__)
            return IngestResult(
                accepted=len(taken), rejected=len(refused), reason="; ".join(why(one.error) for one in refused[:3])
            )

    def publish(self, events: Sequence[Event]) -> None:
        """Take events of this process in (a simulated job, spans translated on arrival), in order.

        Raises
        ------
        BusFull
            Come back later with all of them.
        InvalidEvent
            One of them claims an attempt that cannot be; none of them was taken.

        """
        with self._lock:
            for event in events:
                self._check_attempt(event)
            values = [codec.encode(event) for event in events]
            self._make_sure_of_room(sum(map(len, values)))
            for event, value in zip(events, values, strict=True):
                self._admit(event, value)
            self._on_taken(events, False)

    def reject(self, payload: bytes, error: RejectedMessage, n_records: int = 1) -> None:
        """Keep what could not be taken as a dead letter (`BusFull` reaches the caller)."""
        with self._lock:
            self._reject(payload, error, n_records)

    def take_command(self, body: bytes) -> None:
        """Take a signed order in as it was sent, for the agents of its job.

        Raises
        ------
        InvalidInput
            It is none.
        BusFull
            Come back later.

        """
        try:
            (event,) = codec.decode(body)
        except (RejectedMessage, ValueError) as error:
            raise InvalidInput(f"this is no command: {error}") from error
        if not isinstance(event, Command):
            raise InvalidInput(f"a {type(event).__name__} is no command")
        self.command(event)

    def command(self, command: Command) -> None:
        """Hand a signed order to the agents of its job.

        Raises
        ------
        BusFull
            Come back later.

        """
        with self._lock:
            self._make_sure_of_room(len(command.order))
            self.put(command)
        self._mailbox.put(command, self._clock.now_ns())

    def put(self, event: Event) -> None:
        """What this process says itself, as it is."""
        self._bus.publish(*route(event), codec.encode(event), (event,))

    def attempt_for(self, question: Question, stored: int | None) -> Answer:
        """Which attempt of its job a run is that begins now; `stored` is the highest that the store knows."""
        with self._attempts_lock:
            return self._attempts.attempt_for(question.job, question.host, self._clock.monotonic_s(), stored)

    def _make_sure_of_room(self, n_bytes: int) -> None:
        if self._bus.held_bytes + n_bytes > self._max_bytes:
            self._telemetry.add(BUS_FULL)
            raise BusFull(f"{self._bus.held_bytes} bytes wait to be processed; send this again later")

    def _admit(self, event: Event, value: bytes, *, is_decoded: bool = False) -> None:
        """Put an event on the bus; what was decoded on arrival is not decoded again by those who read it there."""
        topic, key = route(event)
        if isinstance(event, SENT_BY_HOSTS):
            self._note_attempt(event)
            for communicator, missing in self._known_topology.missing_before(event):
                self._bus.publish(topics.CALLS, communicator, missing)
            self._known_topology.note(event, value, self._clock.monotonic_s())
            self._note_heard(event, key)  # first: whoever is woken by the message asks how long he may sleep now
        self._bus.publish(topic, key, value, (event,) if is_decoded else None)
        if isinstance(event, Topology):
            self._bus.publish(topics.TOPOLOGY, key, value, (event,) if is_decoded else None)
        for topology in event.topologies if isinstance(event, Flush) else ():
            self._bus.publish(topics.TOPOLOGY, topology.communicator, codec.encode(topology), (topology,))
        if isinstance(event, CommandResult):
            self._mailbox.put(event, self._clock.now_ns())
        self._telemetry.add(RECORDS_ACCEPTED)

    def _note_heard(self, event: FromHost, key: str) -> None:
        # Only progress and samples say how far a host has got; the rest speaks of the past by nature.
        said_at = event.time_ns if isinstance(event, (Progress, HostSample)) else None
        promised: dict[str, int | None] = {key: said_at}
        if isinstance(event, Flush):
            promised = dict(event.promised_ns)
            if event.speaks_of_processes:
                promised[host_stream(event.job, event.host)] = event.time_ns
        quiet_s = quiet_s_of(event)
        for stream, time_ns in promised.items():
            lag_s = None if time_ns is None else (self._clock.now_ns() - time_ns) / 1e9
            now_s = self._clock.monotonic_s()
            self._silence.heard(stream, event.job, event.host, lag_s=lag_s, now_s=now_s, quiet_s=quiet_s)

    def _note_attempt(self, event: FromHost) -> None:
        closed = isinstance(event, HostSample) and event.closed
        topologies = (event,) if isinstance(event, Topology) else event.topologies if isinstance(event, Flush) else ()
        have_met = any(topology.is_world and topology.name != JOINING for topology in topologies)
        with self._attempts_lock:
            now_s = self._clock.monotonic_s()
            is_new = self._attempts.heard(
                event.job, event.attempt, event.host, closed=closed, now_s=now_s, have_met=have_met
            )
        if is_new and self._attempts_file is not None:
            self._attempts_file.note(event.job, event.attempt)
        if is_new:
            self._on_new_attempt(event.job, event.attempt)

    def _from_a_host(self, event: Event) -> FromHost | CommandResult:
        if not isinstance(event, (*SENT_BY_HOSTS, CommandResult)):
            raise MalformedMessage(f"a {type(event).__name__} is concluded by a head and not taken from outside")
        self._check_attempt(event)
        return event

    def _check_attempt(self, event: Event) -> None:
        """The next run gets one more than the highest; whoever claims the last one leaves none."""
        highest = highest_attempt(self._clock.now_ns() / 1e9)
        if event.attempt > highest:
            raise InvalidEvent(f"attempt is {event.attempt}; today it must be in 0..{highest}: are the clocks right?")

    def _reject(self, payload: bytes, error: RejectedMessage, n_records: int = 1) -> None:
        refused = Message(topic="otlp", key="", partition=0, offset=0, value=payload)
        self._set_aside(dead_letter_of(refused, error, self._clock.now_ns()))
        self._telemetry.add(RECORDS_REJECTED, n_records, error=type(error).__name__)

    def _set_aside(self, letter: DeadLetter) -> None:
        """It came over the network and stands nowhere: a number of ours is its place."""
        self._dead_letters += 1
        self.put(replace(letter, offset=self._dead_letters))


def why(error: Exception | None) -> str:
    """In short, for whoever has sent it."""
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]
