"""The head: memory bus, pipeline, store, alerts and actuators in one process (DESIGN section 8)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pacehound.bus import Message
from pacehound.bus.mailbox import Mailbox
from pacehound.bus.memory import MemoryBus
from pacehound.bus.recording import RecordingWriter
from pacehound.clock import Clock, SystemClock
from pacehound.errors import BusFull, PacehoundError, RejectedMessage
from pacehound.model import codec, topics
from pacehound.model.events import (
    Command,
    CommandResult,
    Decision,
    Incident,
    JobHistory,
    Topology,
)
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event
from pacehound.model.topics import Topic
from pacehound.runtime.event_loop import Worker
from pacehound.runtime.head.attempts import Answer, AttemptsFile, Question
from pacehound.runtime.head.client import Health
from pacehound.runtime.head.intake import IngestResult, Intake, why
from pacehound.runtime.head.interrupted import interrupted
from pacehound.runtime.head.journal import KEPT
from pacehound.runtime.head.keeper import SELDOM_S, Keeper
from pacehound.runtime.head.known_topology import KnownTopology
from pacehound.runtime.head.parts import Parts
from pacehound.runtime.head.workers import STORED, HeadLoop, Keeping, PipelineWorker
from pacehound.runtime.metric_names import (
    BUS_BYTES,
    INCIDENTS_INTERRUPTED,
    PIPELINE_LAG,
    RECORDING_DROPPED,
)
from pacehound.runtime.records import worked
from pacehound.runtime.silence import Silence
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings

logger = logging.getLogger(__name__)

BUS_MAX_BYTES = 256 * 1024 * 1024
_SETTLE_POLL_S = 0.02
_AGAIN_WITHIN_S = 30.0
# While the store fails every sender is turned away, and its backlog grows: agents ask as often.
_STORE_RETRY_S = 5.0
# What stands in the journal, what the next head concludes from it once more (findings and prices), and iterations is
# written with the state, or once so much waits: nobody is answered for it, and an insert takes 4 to 10 ms however few
# rows it has. The bytes are counted, and events take several times as much (measured: 75 MB with steps of 2 ms).
_LATE_MAX_BYTES = 6 * 1024 * 1024
_WRITTEN_WITHIN_S = 0.5
_AT_ONCE = 2048


class Head:
    """The embedded pipeline: takes messages, runs the operators over them, stores, decides, alerts.

    Parameters
    ----------
    parts
        The pipeline, the store, the actuators and the alerts (`runtime.embedded.open_parts` makes the real ones).
    known_topology
        That of a former head, so that jobs that go on are known.
    state
        Where the operators' state is kept for the next head, which goes on from there; `None`: nowhere.
    attempts_file
        Where the highest attempt of each job is noted for who cannot ask a head.
    recording
        Every message of `calls` and `hosts` is appended to it, in log order.

    """

    def __init__(
        self,
        *,
        settings: Settings,
        parts: Parts,
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
        recording: RecordingWriter | None = None,
        known_topology: KnownTopology | None = None,
        attempts_file: AttemptsFile | None = None,
        state: Path | None = None,
        bus_max_bytes: int = BUS_MAX_BYTES,
    ) -> None:
        self.telemetry = telemetry or Telemetry()
        self.parts = parts
        self._clock = clock or SystemClock()
        self._keeper = None
        if state is not None and parts.keepable is not None:
            self._keeper = Keeper(parts.keepable, state, self._clock, self._store_what_was_left)
        self.bus = MemoryBus(bus_max_bytes, self._keeper.journal if self._keeper is not None else None)
        silence = Silence(
            started_s=self._clock.monotonic_s(),
            silent_after_s=settings.stream.lateness_s,
            every_s=settings.stream.tick_s,
            grace_s=2 * settings.stream.lateness_s,
        )
        on_rounds = parts.traces.on_rounds if parts.traces is not None else None
        keeping = None
        if self._keeper is not None:
            keeping = Keeping(
                keeper=self._keeper,
                position=lambda: self.bus.position,
                stored=self._all_stored,
                store_now=self._hurry_late,
            )
        pipeline = PipelineWorker(parts.pipeline, silence, self._clock, self.telemetry, on_rounds, keeping)
        heard = (topics.CALLS, topics.HOSTS, topics.OPS)
        self._pipeline = self._loop("pipeline", heard, pipeline, recording=recording)
        self.mailbox = Mailbox(self._clock.now_ns())
        self._actuators = self._loop("actuators", (topics.INCIDENTS,), parts.actuators(self))
        self.mailbox.when_asked(self._actuators.wake)
        self._alerts = (
            self._loop("alerts", (topics.INCIDENTS, topics.DECISIONS), parts.alerts)
            if parts.alerts is not None
            else None
        )
        self._traces = (
            self._loop("traces", (topics.INCIDENTS, topics.DECISIONS), parts.traces)
            if parts.traces is not None
            else None
        )
        # Few, large inserts cost the training host least, and a sender can wait for so long.
        how = {"max_messages": _AT_ONCE, "linger_s": 0.3, "longest_retry_s": _STORE_RETRY_S}
        late: tuple[Topic, ...] = ()
        if parts.late_writer is not None:
            again = {*KEPT, topics.FINDINGS.name} if self._keeper is not None else set()
            late = tuple(topic for topic in STORED if topic is topics.ITERATIONS or topic.name in again)
        self._store = self._loop("store", tuple(topic for topic in STORED if topic not in late), parts.writer, **how)
        how |= {"linger_s": SELDOM_S, "linger_below": how["max_messages"]}
        self._late = self._loop("late store", late, parts.late_writer, **how) if parts.late_writer is not None else None
        self._needs_store = self._needs_late = 0
        """Before these positions is what only those two make outlive this process."""
        self._lost_before = 0
        self._is_stopping = False
        self.is_quiet = True
        """Nobody's question goes on after `stop`, in a function that the engine cannot break off."""
        # Apart from what arrives: a store that is slow to answer must hold up nothing.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="earlier-runs")
        self._known_topology = known_topology or KnownTopology()
        self._intake = Intake(
            bus=self.bus,
            bus_max_bytes=bus_max_bytes,
            mailbox=self.mailbox,
            known_topology=self._known_topology,
            attempts_file=attempts_file,
            silence=silence,
            clock=self._clock,
            telemetry=self.telemetry,
            on_taken=self._note_needs,
            on_new_attempt=self._begin_to_tell_history,
        )
        self.telemetry.observe(BUS_BYTES, lambda: float(self.bus.held_bytes))
        self.telemetry.observe(PIPELINE_LAG, lambda: float(self.bus.position - self._pipeline.committed))

    def _loop(self, name: str, read: tuple[Topic, ...], worker: Worker, **how: Any) -> HeadLoop:
        return HeadLoop(name, self.bus, read, worker, self.telemetry, self._clock, **how)

    def start(self) -> None:
        """Go on where a former head was killed, or close what it left open and begin."""
        keeper = self._keeper
        if keeper is not None and keeper.refused_why:
            logger.warning("this head begins anew, and cannot go on where the last one was: %s", keeper.refused_why)
        if keeper is None or not keeper.has_found or self.parts.keepable is None:
            self._interrupt()
        for loop in self._loops():
            loop.start()
        if keeper is not None and keeper.has_found and self.parts.keepable is not None:
            again, keeper.again = keeper.again, []
            self._take_again(again)
            if not self._wait_for((self._pipeline,), time.monotonic() + _AGAIN_WITHIN_S):
                logger.warning("what the last head had heard is still being read; incidents may close and open again")
            # What the pipeline follows goes on; what it does not know any more, nobody watches.
            self._interrupt(self.parts.keepable.open_incidents())
            logger.info("this head goes on where the last one was: %d messages are read again", len(again))

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Finish what has arrived, close what is still open, and give the store back; False where it took too long.

        Whoever is still to be told of something has a part of that time; what is not told by then is told by the next
        head.
        """
        deadline_s = time.monotonic() + timeout_s
        self._is_stopping = True
        self._reading.shutdown(wait=False, cancel_futures=True)
        self._end(self._pipeline, deadline_s)
        self._wait_for((self._actuators, *self._stores), deadline_s)
        self._interrupt()
        self._end(self._actuators, deadline_s)
        if self._alerts is not None:
            self._wait_for((self._alerts,), min(deadline_s, time.monotonic() + timeout_s / 2))
            self._end(self._alerts, deadline_s)
        if self._traces is not None and self.parts.traces is not None:
            self._end(self._traces, deadline_s)
            self.parts.traces.close()
        for store in self._stores:
            self._end(store, deadline_s)
        finished = not any(loop.is_alive() for loop in self._loops() if loop not in (self._alerts, self._traces))
        self._known_topology.close()
        if self._keeper is not None and finished:
            self._keeper.forget()  # whatever was open is closed
        elif self._keeper is not None:
            self._keeper.journal.close()
        if finished:
            self.is_quiet = self.parts.store.close()
        return finished

    def ingest(self, body: bytes) -> IngestResult:
        """Take an OTLP logs message in (`Intake.take`, which says what it raises)."""
        return self._intake.take(body)

    def publish(self, events: Sequence[Event]) -> None:
        """Take events of this process in (`Intake.publish`)."""
        self._intake.publish(events)

    def reject(self, payload: bytes, error: RejectedMessage, n_records: int = 1) -> None:
        """Keep what could not be taken as a dead letter (`BusFull` reaches the caller)."""
        self._intake.reject(payload, error, n_records)

    def take_command(self, body: bytes) -> None:
        """Take a signed order in as it was sent (`Intake.take_command`)."""
        self._intake.take_command(body)

    def command(self, command: Command) -> None:
        """Hand a signed order to the agents of its job (`Intake.command`)."""
        self._intake.command(command)

    def commands(self, job: str, after: int) -> tuple[bytes, int]:
        """Those that wait for the agents of a job, as one message, and the number to ask for next."""
        found, number = self.mailbox.commands(job, after, self._clock.now_ns())
        return b"".join(map(codec.encode, found)), number

    def when_told(self, call: Callable[[], object]) -> None:
        """Have this called with each command that comes, by any thread."""
        self.mailbox.when_told(call)

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What agents of a job have answered, and the number to ask for next."""
        return self.mailbox.results(job, after, self._clock.now_ns())

    def questions(self, after: int) -> tuple[list[CommandResult], int]:
        """What ranks of any job have asked, and the number to ask for next."""
        return self.mailbox.questions(after, self._clock.now_ns())

    def given(self, job: str, after: int) -> tuple[list[Command], int]:
        """Orders that were given about a job, and the number to ask for next."""
        return self.mailbox.commands(job, after, self._clock.now_ns())

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything that has arrived is processed and stored; False where that takes longer."""
        deadline_s = time.monotonic() + timeout_s
        return all(self._wait_for((loop,), deadline_s) for loop in (self._pipeline, self._actuators, *self._stores))

    @property
    def arrived(self) -> int:
        """How many messages were put on the bus."""
        return self.bus.position

    @property
    def kept(self) -> int:
        """How many of them, from the first on, outlive this process: in the journal or the store, or given up."""
        needed = zip((self._store, self._late), (self._needs_store, self._needs_late), strict=True)
        behind = [loop.committed for loop, position in needed if loop is not None and loop.committed < position]
        return min(behind, default=self.bus.position)

    @property
    def not_stored_why(self) -> str:
        """Why nothing can be stored now; empty where it can."""
        return next((loop.stuck_why for loop in self._stores if loop.stuck_why), "")

    def incidents(self, job: str | None = None) -> list[Incident]:
        """The latest version of each incident of the store."""
        return self.parts.store.incidents(job)

    def decisions(self) -> list[Decision]:
        """Every decision of the store."""
        return self.parts.store.decisions()

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's own named queries."""
        self._write_late()
        return self.parts.store.ask(name, parameters)

    def query(self, sql: str) -> pa.Table:
        """Rows of a statement that reads the history and nothing else."""
        self._write_late()
        return self.parts.store.answer(sql)

    def _write_late(self) -> None:
        """Somebody asks: what waits to be written with others is written now, if the store takes it."""
        if self._late is not None and not self._late.stuck_why:
            self._wait_for((self._late,), time.monotonic() + _WRITTEN_WITHIN_S)

    def jobs(self) -> list[str]:
        """Jobs that are being watched now."""
        for _ in range(3):
            try:
                return sorted({stream.job for stream in self.parts.pipeline.streams().values()})
            except RuntimeError:
                continue  # the pipeline's thread opened a stream while this one read them
        return []

    def health(self) -> Health:
        """What is not as it should be, and what was not kept."""
        # Iterations that wait for others to be written with are nothing to be told of, until this head ends.
        waiting = self.bus.position - (self._all_stored() if self._is_stopping else self._store.committed)
        problems = [f"{loop.name} waits: {loop.loop.problem}" for loop in self._loops() if loop.loop.problem]
        problems += [
            f"{loop.name} has ended" for loop in self._loops() if not loop.is_alive() and not self._is_stopping
        ]
        if self._store.loop.problem:
            problems.append(f"{waiting} messages are not stored, {self._store.loop.failures} tries to write failed")
        if dropped := int(self.telemetry.value(RECORDING_DROPPED)):
            problems.append(f"{dropped} messages are missing from the recording")
        return Health(problems=tuple(problems), not_stored_messages=waiting, failed_writes=self._store.loop.failures)

    def attempt_for(self, question: Question) -> Answer:
        """Which attempt of its job a run is that begins now."""
        stored = self.parts.store.last_attempt(question.job)
        return self._intake.attempt_for(question, stored)

    def _wait_for(self, loops: tuple[HeadLoop, ...], deadline_s: float) -> bool:
        """Whether they dealt in time with everything that is on the bus now."""
        target = self.bus.position
        for loop in loops:
            loop.hurry()
        while any(loop.committed < target for loop in loops):
            if time.monotonic() >= deadline_s or not all(loop.is_alive() for loop in loops):
                return False
            time.sleep(_SETTLE_POLL_S)
        return True

    def _end(self, loop: HeadLoop, deadline_s: float) -> None:
        loop.stop()
        if loop.is_alive():
            loop.join(max(0.1, deadline_s - time.monotonic()))

    def _loops(self) -> tuple[HeadLoop, ...]:
        told = tuple(loop for loop in (self._alerts, self._traces) if loop is not None)
        return (self._pipeline, self._actuators, *told, *self._stores)

    @property
    def _stores(self) -> tuple[HeadLoop, ...]:
        return (self._store,) if self._late is None else (self._store, self._late)

    def _store_what_was_left(self, messages: Iterable[Message]) -> None:
        """Rows of which senders have been answered, of a head from which none goes on."""
        writer = self.parts.writer
        n_left = 0
        for n_left, message in enumerate(messages, 1):
            for outcome in worked(message, partial(writer.on_event, message=message)):
                if outcome.error is not None:
                    logger.warning("a record of the last head is not stored: %s", why(outcome.error))
            if n_left % _AT_ONCE == 0:
                writer.settle()
        writer.settle()
        logger.info("%d messages that the last head had been told are stored", n_left)

    def _all_stored(self) -> int:
        return min(loop.committed for loop in self._stores)

    def _note_needs(self, events: Sequence[Event], has_letters: bool) -> None:
        """What was taken in, and stands in no journal, has to be stored before anybody is answered for it."""
        position = self.bus.position
        if self._keeper is None or has_letters or any(map(_is_stored_alone, events)):
            self._needs_store = position
        lost = self._keeper.journal.lost if self._keeper is not None else 0
        is_lost, self._lost_before = lost != self._lost_before, lost
        if is_lost and self._late is None:
            self._needs_store = position
        elif is_lost:
            self._needs_late = position
        if is_lost or self.bus.held_bytes > _LATE_MAX_BYTES:
            self._hurry_late()

    def _hurry_late(self) -> None:
        if self._late is not None:
            self._late.hurry()

    def _begin_to_tell_history(self, job: str, attempt: int) -> None:
        if not self._is_stopping:
            self._reading.submit(self._tell_history, job, attempt)

    def _tell_history(self, job: str, attempt: int) -> None:
        """What was before stands in the log soon after the first word of an attempt, before any iteration."""
        try:
            self._write_late()  # of the run that has just ended
            runs = tuple(self.parts.store.earlier_runs(job, attempt)) if attempt > 0 else ()
            usual = tuple(self.parts.store.usual_rounds())
            if (runs or usual) and not self._is_stopping:
                now_ns = self._clock.now_ns()
                self._intake.put(JobHistory(job=job, attempt=attempt, time_ns=now_ns, runs=runs, usual=usual))
        except PacehoundError as error:
            logger.warning("%s is watched without what the store knows of earlier runs: %s", job, error)
        except Exception:
            logger.exception("the earlier runs of a job cannot be read", extra={"job": job})

    def _take_again(self, messages: Sequence[Message]) -> None:
        """Put on the bus what a former head had heard and its state does not cover."""
        for message in messages:
            topic = topics.TOPICS[message.topic]
            while True:
                try:
                    self.bus.publish(topic, message.key, message.value, number=message.offset)
                    break
                except BusFull:
                    time.sleep(_SETTLE_POLL_S)

    def _interrupt(self, goes_on: Collection[str] = ()) -> None:
        try:
            still_open = self.parts.store.incidents(None)
        except PacehoundError as error:
            logger.warning("incidents that an earlier head has left open stay open: %s", error)
            return
        except Exception:
            logger.exception("the incidents of the store cannot be read")
            return
        gone = [incident for incident in still_open if incident.id not in goes_on]
        for incident in interrupted(gone, self._clock.now_ns()):
            self.telemetry.add(INCIDENTS_INTERRUPTED)
            self._intake.put(incident)


def _is_stored_alone(event: Event) -> bool:
    """Something of it stands on a topic that no journal keeps."""
    return isinstance(event, (Topology, CommandResult)) or (isinstance(event, Flush) and bool(event.topologies))
