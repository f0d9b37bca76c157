"""Rounds as OpenTelemetry traces: those around an incident, and one in so many, with all ranks side by side.

Rounds are remembered for a while. When somebody is named in an incident, or a minute after it opened, those around its
onset are sent, the culprits' spans marked, and the incident points to them and they to it. What is sent goes through a
queue of its own, and what does not fit is dropped: a receiver that is slow or away holds up nothing.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext

from pacehound.bus import Message
from pacehound.bus.otlp_incidents import closed_span, context_of_incident, decision_span, named_ranks, opened_span
from pacehound.bus.otlp_spans import spans_of_rounds
from pacehound.clock import Clock
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import Decision, Incident
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event
from pacehound.runtime.event_loop import EventWorker
from pacehound.runtime.metric_names import SPANS
from pacehound.runtime.span_exporter import SpanPost
from pacehound.runtime.telemetry import Telemetry
from pacehound.runtime.traces import traces_url
from pacehound.settings import TraceSettings

ROUNDS_BEFORE = 2
ROUNDS_AFTER = 4
"""Of each communicator around an onset: as it was, and as it became; more says the same again."""

MAX_REMEMBERED_CELLS = 4_000_000
"""Parts of ranks in rounds, of all jobs: 100 MB. Of 1,024 ranks that make ten calls a second it is seven minutes."""

MAX_SPANS_OF_AN_INCIDENT = 20_000
"""What a viewer of traces still opens; one round of 16,384 ranks fits."""

MAX_WAITING_SPANS = 65_536
"""Spans that wait to be sent; further ones are dropped."""

UNNAMED_S = 60.0
"""So long a name is waited for before the rounds are sent without one."""

MAX_HELD_INCIDENTS = 1_000
"""Incidents whose rounds are remembered for what is said of them later."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Some rounds of one communicator, or pair."""

    rounds: Rounds
    rows: tuple[int, ...]


class RoundWindow:
    """The last rounds of all jobs."""

    def __init__(self, max_cells: int = MAX_REMEMBERED_CELLS) -> None:
        self._max_cells = max_cells
        self._blocks: deque[Rounds] = deque()
        self._cells = 0

    def note(self, rounds: Rounds) -> None:
        """Remember them, and forget the oldest ones where there are too many."""
        self._blocks.append(rounds)
        self._cells += rounds.arrival_ns.size
        while self._cells > self._max_cells:
            self._cells -= self._blocks.popleft().arrival_ns.size

    def around(self, job: str, attempt: int, time_ns: int, ranks: frozenset[int]) -> list[Chosen]:
        """The rounds nearest to an instant, of each communicator that has one of the ranks (of all: for none).

        Those of many ranks first, and each round whole; no more of them than a viewer can open.
        """
        streams: dict[tuple[str, str, tuple[int, ...]], list[Rounds]] = {}
        for block in self._blocks:
            if (block.job, block.attempt) == (job, attempt) and (not ranks or not ranks.isdisjoint(block.ranks)):
                streams.setdefault((block.communicator, block.source, block.ranks), []).append(block)
        chosen: list[Chosen] = []
        room = MAX_SPANS_OF_AN_INCIDENT
        for blocks in sorted(streams.values(), key=lambda blocks: -len(blocks[0].ranks)):
            n_ranks = len(blocks[0].ranks)
            found = _nearest(blocks, time_ns, room // n_ranks)
            room -= n_ranks * sum(len(one.rows) for one in found)
            chosen += found
        return chosen


def _nearest(blocks: Sequence[Rounds], time_ns: int, most: int) -> list[Chosen]:
    """Where there is room for a few only, those after the instant: the slow ones."""
    before = ROUNDS_BEFORE if most >= ROUNDS_BEFORE + ROUNDS_AFTER else 0
    times_ns = np.concatenate([block.times_ns for block in blocks])
    firsts = np.cumsum([0, *(len(block) for block in blocks)])
    order = np.argsort(times_ns, kind="stable")
    first_after = int(np.searchsorted(times_ns[order], time_ns))
    places = order[max(0, first_after - before) : first_after + min(ROUNDS_AFTER, most)]
    rows: dict[int, list[int]] = {}
    for place in places.tolist():
        block = int(np.searchsorted(firsts, place, side="right")) - 1
        rows.setdefault(block, []).append(place - int(firsts[block]))
    return [Chosen(blocks[block], tuple(found)) for block, found in rows.items()]


@dataclass(slots=True)
class _Held:
    """An incident that has been heard of, and the rounds that were sent for it, to point to."""

    since_s: float
    latest: Incident
    is_sent: bool = False
    contexts: list[SpanContext] = field(default_factory=list)


class JobTraces(EventWorker):
    """Rounds, incidents and decisions in, spans out.

    Parameters
    ----------
    processor
        Where finished spans go; it must not block.
    every_rounds
        One round in so many of each communicator is sent; 0: only those around incidents.
    clock, telemetry
        The time, and what is counted.

    """

    kinds: tuple[type, ...] = (object,)

    def __init__(self, processor: BatchSpanProcessor, every_rounds: int, clock: Clock, telemetry: Telemetry) -> None:
        self._processor = processor
        self._every_rounds = every_rounds
        self._clock = clock
        self._telemetry = telemetry
        self._window = RoundWindow()
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """Take one in."""
        if isinstance(event, (Rounds, Conclusions)):  # on Kafka stage one tells of them among its conclusions
            for rounds in event.rounds() if isinstance(event, Conclusions) else (event,):
                self.on_rounds(rounds)
            return []
        with self._lock:
            if isinstance(event, Incident):
                self._on_incident(event)
            elif isinstance(event, Decision):
                held = self._held.get(event.incident)
                self._send([decision_span(event, held.contexts if held is not None else ())])
        return []

    def on_rounds(self, rounds: Rounds) -> None:
        """Remember them, and send one in so many; in a head the pipeline's thread says it."""
        with self._lock:
            self._window.note(rounds)
            if self._every_rounds:
                rows = np.flatnonzero(rounds.seq % self._every_rounds == 0).tolist()
                self._send(spans_of_rounds(rounds, rows))

    def on_turn(self) -> list[Event]:
        """Send the rounds of incidents, a turn after they were heard of: on Kafka their rounds may come behind them."""
        with self._lock:
            for held in self._held.values():
                waited_s = self._clock.monotonic_s() - held.since_s
                if not held.is_sent and (named_ranks(held.latest) or waited_s >= UNNAMED_S):
                    self._send_rounds(held)
        return []

    def may_wait_s(self) -> float:
        """Until an incident has named nobody for so long that its rounds are sent all the same."""
        with self._lock:
            since_s = min((held.since_s for held in self._held.values() if not held.is_sent), default=math.inf)
        return max(since_s + UNNAMED_S - self._clock.monotonic_s(), 0.0)

    def close(self) -> None:
        """Send what waits, within a few seconds."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _on_incident(self, incident: Incident) -> None:
        held = self._held.get(incident.id)
        if held is None:
            held = self._held[incident.id] = _Held(self._clock.monotonic_s(), incident)
            while len(self._held) > MAX_HELD_INCIDENTS:
                del self._held[next(iter(self._held))]
        held.latest = incident
        if incident.state == "closed":
            if not held.is_sent:
                self._send_rounds(held)
            self._send([closed_span(incident, held.contexts)])
            del self._held[incident.id]

    def _send_rounds(self, held: _Held) -> None:
        incident = held.latest
        culprits = named_ranks(incident)
        links = [Link(context_of_incident(incident.id))]
        for chosen in self._window.around(incident.job, incident.attempt, incident.opened_ns, culprits):
            spans = spans_of_rounds(chosen.rounds, chosen.rows, culprits, links)
            self._send(spans)
            held.contexts += _one_of_each_trace(spans)
        self._send([opened_span(incident, held.contexts)])
        held.is_sent = True

    def _send(self, spans: Iterable[ReadableSpan]) -> None:
        for span in spans:
            self._processor.on_end(span)
            self._telemetry.add(SPANS)


def _one_of_each_trace(spans: Sequence[ReadableSpan]) -> list[SpanContext]:
    """The culprit's span of each round, or else its first one."""
    found: dict[int, SpanContext] = {}
    for span in sorted(spans, key=lambda span: "pacehound.culprit" not in (span.attributes or {})):
        if span.context is not None:
            found.setdefault(span.context.trace_id, span.context)
    return list(found.values())


def worker_of(settings: TraceSettings, clock: Clock, telemetry: Telemetry) -> JobTraces:
    """What sends spans where the settings say, in batches and from a thread of its own.

    Raises
    ------
    InvalidSetting
        The endpoint is no URL.

    """
    post = SpanPost(traces_url("traces.endpoint", settings.endpoint))
    processor = BatchSpanProcessor(post, max_queue_size=MAX_WAITING_SPANS)
    return JobTraces(processor, settings.every_rounds, clock, telemetry)
