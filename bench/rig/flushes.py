"""The same events as from agents that flush less often, or say all at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from collector.agent.flush_times import FlushTimes
from collector.agent.going_on import GoingOn
from collector.agent.host_words import HostWords
from collector.agent.saying import in_one, with_processes, with_short
from pacehound.bus.kafka_sender import joined
from pacehound.model import codec
from pacehound.model.calls import CALL_SCHEMA, CallBatch
from pacehound.model.events import OPTIMIZER_STEP, HostEvidence, HostSample, HostVitals, Markers, Progress, Topology
from pacehound.model.flushes import Flush, flushes_of
from pacehound.model.routing import Event, route
from pacehound.model.shards import Place, place_of
from pacehound.model.topics import CALLS, Topic
from pacehound.settings import StreamSettings


def flushed_every(events: Iterable[Event], flush_s: int) -> Iterator[Event]:
    """Simulated agents flush each second; these do so every `flush_s`: one batch and one promise per stream and host.

    Within a stream every event keeps its place; streams keep no order among each other, as on Kafka.
    """
    since_ns: dict[tuple[str, str], int] = {}

    def is_due(promise: Progress) -> bool:
        stream = (promise.communicator, promise.host)
        begun_ns = since_ns.setdefault(stream, promise.time_ns)
        if not promise.closed and promise.time_ns - begun_ns < (flush_s - 1) * 1_000_000_000:
            return False
        del since_ns[stream]
        return True

    said: dict[str, HostSample] = {}
    for event in _flushed(events, is_due):
        if isinstance(event, HostSample):
            if _says_the_same(event, said.get(event.host), flush_s):
                continue
            said[event.host] = event
        yield event


def flushed_by_agents(events: Iterable[Event], flush_s: float = 1.0) -> Iterator[Event]:
    """As agents do that tell call by call: every `flush_s`, and seldomer while short iterations take what they took."""
    agents: dict[str, _FlushingAgent] = defaultdict(_FlushingAgent)

    def noted() -> Iterator[Event]:
        for event in events:
            if isinstance(event, Markers):
                agents[event.host].note(event)
            yield event

    return _flushed(noted(), lambda promise: promise.closed or agents[promise.host].is_due(promise.time_ns, flush_s))


class _FlushingAgent:
    """When the agent of one host flushes: at one moment all that it has, or nothing."""

    def __init__(self) -> None:
        # Simulated promises say themselves how far behind the clock they are.
        self._times = FlushTimes(StreamSettings(), guard_ns=0, unix_ns=0)
        self._steps: Counter[int] = Counter()
        self._ended_ns = 0
        self._at_ns, self._is_due = -1, False

    def note(self, markers: Markers) -> None:
        said = zip(markers.ranks, markers.names, markers.times_ns, strict=True)
        ended = [(rank, time_ns) for rank, name, time_ns in said if name == OPTIMIZER_STEP]
        self._steps.update(rank for rank, _ in ended)
        self._ended_ns = max([self._ended_ns, *(time_ns for _, time_ns in ended)])

    def is_due(self, now_ns: int, flush_s: float) -> bool:
        if now_ns == self._at_ns:
            return self._is_due
        self._at_ns = now_ns
        self._times.note_iterations(min(self._steps.values(), default=0), now_ns, self._ended_ns)
        self._is_due = self._times.is_due(now_ns, tells_iterations=False)
        if self._is_due:
            is_held = self._times.quiet_behind_promises_ns(now_ns, tells_iterations=False) > 0
            self._times.flushed(now_ns, flush_s)
            if is_held:
                self._times.has_promised_to_be_quiet(now_ns)
        return self._is_due


def _flushed(events: Iterable[Event], is_due: Callable[[Progress], bool]) -> Iterator[Event]:
    """What stands before a promise that is due: of each stream and host one batch, and that promise alone."""
    waiting: dict[tuple[str, str], list[Event]] = {}
    cuts: dict[tuple[str, str], int] = {}
    for event in events:
        topic, key = route(event)
        # There is nothing that a heartbeat could be joined to, and no promise speaks of samples of hosts.
        if isinstance(event, Flush) or topic is not CALLS:
            yield event
            continue
        stream = (key, getattr(event, "host", ""))
        waiting.setdefault(stream, []).append(event)
        if isinstance(event, Progress) and is_due(event):
            yield from _merged(waiting.pop(stream), stream, cuts)
    for stream, left in waiting.items():
        yield from _merged(left, stream, cuts)


def _says_the_same(sample: HostSample, before: HostSample | None, flush_s: int) -> bool:
    """It belongs to the same flush as one that is told, which knows as much."""
    if before is None or sample.closed or sample.processes != before.processes:
        return False
    return sample.time_ns - before.time_ns < flush_s * 1_000_000_000


def together(events: Iterable[Event], digests_from_ranks: int = 0, *, has_homes: bool = True) -> Iterator[Event]:
    """What a host says of its calls at once, as flushes: simulated agents say it communicator by communicator.

    A sample that says what the last one said is left out beside promises, as agents do.
    """
    places: dict[str, dict[str, Place]] = defaultdict(dict)  # by host and communicator
    words: dict[str, HostWords] = defaultdict(HostWords)
    going_on: dict[str, GoingOn] = defaultdict(GoingOn)
    waiting: dict[str, list[Event]] = {}
    promised: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, Topology):
            place = place_of(
                event.communicator,
                event.members,
                event.host_ranks[0],
                event.world_size,
                digests_from_ranks,
                has_homes=has_homes,
            )
            places[event.host].setdefault(event.communicator, place)
        host = getattr(event, "host", "")
        of_calls = event.communicators if isinstance(event, Flush) else [getattr(event, "communicator", "")]
        if not promised.setdefault(host, set()).isdisjoint(of_calls):
            promised[host].clear()
            yield from _at_once(waiting.pop(host), places[host], words[host], going_on[host])
        waiting.setdefault(host, []).append(event)
        if isinstance(event, (Progress, Flush)):
            promised[host].update(of_calls)
    for host, left in waiting.items():
        yield from _at_once(left, places[host], words[host], going_on[host])


def messages_of(events: Iterable[Event]) -> Iterator[tuple[list[Event], list[tuple[Topic, str, bytes]]]]:
    """What a host says at once of one key, and the messages of it: one, as an agent's, unless it is too large."""
    for _, said in groupby(events, key=lambda event: (route(event), getattr(event, "host", ""))):
        at_once = list(said)
        yield at_once, joined([codec.encode(event) for event in at_once])


def _at_once(events: list[Event], places: dict[str, Place], words: HostWords, going_on: GoingOn) -> Iterator[Event]:
    of_calls = (Topology, CallBatch, Markers)
    beats = _joined_beats(events)
    promised = [event for event in events if isinstance(event, Progress)]
    promising = {promise.attempt for promise in promised} if not beats else set()
    in_short: set[int] = set()
    besides: list[Event] = []
    promises, beating = going_on.parted(promised, places)
    for event in events:
        if isinstance(event, HostSample) and event.attempt in promising and not event.closed:
            in_short.add(event.attempt)
            besides += words.changed([event], 0)
        elif isinstance(event, HostSample):
            besides += words.in_full([event])
        elif isinstance(event, (HostVitals, HostEvidence)):
            words.seen(event)
            besides.append(event)
        elif not isinstance(event, (*of_calls, Progress, Flush)):
            besides.append(event)
    told = [event for event in events if isinstance(event, of_calls)]
    said = with_short(flushes_of([*told, *promises], places), beating, places)
    behind_ns = {attempt: words.last_ns(attempt) for attempt in in_short}
    yield from in_one([*with_processes(said, behind_ns), *(_behind(beat, words) for beat in beats)])
    yield from besides


def _joined_beats(events: list[Event]) -> list[Flush]:
    """One for each shard."""
    beats: dict[str, Flush] = {}
    for event in events:
        if isinstance(event, Flush) and event.heartbeat is not None:
            before = beats.get(event.key)
            known = () if before is None or before.heartbeat is None else before.heartbeat.communicators
            is_of_processes = event.heartbeat.is_of_processes or (before is not None and before.speaks_of_processes)
            both = replace(
                event.heartbeat,
                communicators=(*known, *event.heartbeat.communicators),
                is_of_processes=is_of_processes,
            )
            beats[event.key] = replace(event, heartbeat=both)
    return list(beats.values())


def _behind(flush: Flush, words: HostWords) -> Flush:
    beat = flush.heartbeat
    if beat is None or not beat.is_of_processes:
        return flush
    return replace(flush, heartbeat=replace(beat, behind_ns=words.last_ns(flush.attempt)))


def _merged(events: list[Event], stream: tuple[str, str], cuts: dict[tuple[str, str], int]) -> Iterator[Event]:
    batches = [event for event in events if isinstance(event, CallBatch)]
    promises = [event for event in events if isinstance(event, Progress)]
    for event in events:
        if isinstance(event, CallBatch):
            if event is batches[-1]:
                rows = pa.Table.from_batches([batch.rows for batch in batches]).unify_dictionaries().combine_chunks()
                (whole,) = rows.cast(CALL_SCHEMA).to_batches()
                ordinal = cuts[stream] = cuts.get(stream, -1) + 1
                dropped = sum(batch.dropped for batch in batches)
                yield replace(event, rows=whole, ordinal=ordinal, dropped=dropped)
        elif not isinstance(event, Progress) or event is promises[-1]:
            yield event
