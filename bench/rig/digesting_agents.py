"""A simulated job as agents send it that tell of iterations instead of calls (`agent.digests_from_ranks`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto

import numpy as np

from bench.rig.agent_records import communicator_of, records_of
from collector.agent.flush_times import FlushTimes
from collector.agent.host_words import HostWords
from collector.calls import rows as call_rows
from collector.calls.communicators import Communicator
from collector.calls.digests import DigestState, IterationDigests, Mark, marks_of
from collector.calls.rings import Records
from collector.calls.rows import ToldAs
from pacehound.clock import ClockPair
from pacehound.model.calls import CallBatch
from pacehound.model.digests import is_of_digests
from pacehound.model.events import HostSample, Markers, Progress, Topology
from pacehound.model.flushes import Flush, Heartbeat
from pacehound.model.routing import Event
from pacehound.model.shards import shard_of
from pacehound.settings import StreamSettings

_CLOCK = ClockPair(monotonic_ns=0, unix_ns=0)
_NEVER_NS = np.iinfo(np.int64).max


class Said(Enum):
    """What an agent says at a moment of how far it is."""

    NOTHING = auto()
    HEARTBEAT = auto()
    PROMISES = auto()


class _Agent:
    """That of one host: it knows when each of its calls ends, as an agent that follows them does."""

    def __init__(self, batches: Sequence[CallBatch]) -> None:
        self.known: list[Communicator] = []
        self.said = IterationDigests(DigestState())
        self.rows: list[tuple[Records, str]] = []
        self.marks: list[Mark] = []
        # Simulated promises say themselves how far behind the clock they are.
        self._times = FlushTimes(StreamSettings(), guard_ns=0, unix_ns=0)
        self.quiet_ns = self._times.quiet_ns
        self.words = HostWords()
        self._steps: Counter[tuple[int, int]] = Counter()
        records = np.concatenate([call_rows.no_rows(), *map(records_of, batches)])
        records = records[records["direction"] == 0]
        self._rank, self._launch_ns = records["rank"].astype(np.int64), records["launch_ns"].astype(np.int64)
        end_ns = records["end_ns"].astype(np.int64)
        self._end_ns = np.where(end_ns > 0, end_ns, _NEVER_NS)

    def note(self, marks: Sequence[Mark], now_ns: int) -> None:
        """Iterations have ended."""
        self.marks += marks
        self._steps.update((mark.attempt, mark.rank) for mark in marks)
        self._times.note_iterations(min(self._steps.values(), default=0), now_ns)

    def what_is_due(self, now_ns: int, flush_s: float) -> Said:
        """What it flushes now; it does."""
        if not self._times.is_due(now_ns, tells_iterations=bool(self.known)):
            return Said.NOTHING
        is_usual = bool(self.known) and self._times.is_usual(now_ns)
        is_held = self._times.quiet_behind_promises_ns(now_ns, tells_iterations=bool(self.known)) > 0
        self._times.flushed(now_ns, flush_s)
        if not is_usual:
            if is_held:
                self._times.has_promised_to_be_quiet(now_ns)
            return Said.PROMISES
        self._times.may_be_quiet(now_ns)
        return Said.HEARTBEAT

    def flush(self, job: str, host: str, at_ns: int, *, is_last: bool) -> Iterator[CallBatch]:
        """What is told of all that has ended."""
        numbers = {one.id: number for number, one in enumerate(self.known)}
        taken, self.rows = self.rows, []
        marks, self.marks = self.marks, []
        rows = np.concatenate([call_rows.no_rows(), *(records for records, _ in taken)])
        of_rows = np.repeat([numbers[id_] for _, id_ in taken], [len(records) for records, _ in taken]).astype(np.int64)
        is_open = (self._launch_ns <= at_ns) & (self._end_ns > at_ns)
        oldest_ns = {
            rank: int(self._launch_ns[is_open & (self._rank == rank)].min())
            for rank in np.unique(self._rank[is_open]).tolist()
        }
        attempts = np.array([one.attempt for one in self.known], np.int64)
        over = {(one.attempt, rank) for one in self.known for rank in one.host_ranks} if is_last else set()
        told = self.said.take(rows, of_rows, attempts, marks, oldest_ns, over)
        for some, of_some, told_as in (
            (told.calls, told.of_calls, ToldAs.CALLS),
            (told.digests, told.of_digests, ToldAs.DIGESTS),
        ):
            yield from call_rows.batches(some, of_some, self.known, job=job, host=host, clock=_CLOCK, told_as=told_as)


class DigestingAgents:
    """The agents of a job of which all calls are known beforehand.

    Parameters
    ----------
    events
        All of the job.
    flush_s
        How often they flush at most (`agent.flush_s`). The job's own agents must do so at least as often.

    """

    def __init__(self, events: Sequence[Event], flush_s: float = 1.0) -> None:
        self._flush_s = flush_s
        self.sent_rows = 0
        self.all_rows = 0
        batches: dict[str, list[CallBatch]] = defaultdict(list)
        for event in events:
            if isinstance(event, CallBatch):
                batches[event.host].append(event)
        self._agents = defaultdict(lambda: _Agent([]), {host: _Agent(some) for host, some in batches.items()})
        self._said: dict[tuple[str, int], Said] = {}
        self._shards: dict[str, int] = {}

    def send(self, events: Iterable[Event]) -> Iterator[Event]:
        """What arrives at the other end."""
        for event in events:
            match event:
                case CallBatch():
                    self._agents[event.host].rows.append((records_of(event), event.communicator))
                    self.all_rows += len(event)
                    continue
                case Topology():
                    self._agents[event.host].known.append(communicator_of(event))
                    self._shards[event.communicator] = shard_of(
                        event.communicator, event.members, event.world_size, digests_from_ranks=1
                    )
                case Markers():
                    self._agents[event.host].note(marks_of(event, _CLOCK), event.time_ns)
                case HostSample():
                    yield from self._sample(event)
                    continue
                case Progress() if not (event.closed or event.edges) and self._says(event) is Said.NOTHING:
                    continue
                case Progress():
                    agent = self._agents[event.host]
                    batches = list(agent.flush(event.job, event.host, event.time_ns, is_last=event.closed))
                    self.sent_rows += sum(map(len, batches))
                    if not all(is_of_digests(batch.source) for batch in batches):
                        self._said[event.host, event.time_ns] = Said.PROMISES
                    yield from batches
                    if not (event.closed or event.edges) and self._says(event) is Said.HEARTBEAT:
                        yield self._heartbeat(event, (event.communicator,))
                        continue
                case _:
                    pass
            yield event

    def _says(self, said: Progress | HostSample) -> Said:
        """What the host says at that moment: of all its communicators the same."""
        moment = (said.host, said.time_ns)
        if moment not in self._said:
            self._said[moment] = self._agents[said.host].what_is_due(said.time_ns, self._flush_s)
        return self._said[moment]

    def _sample(self, sample: HostSample) -> Iterator[Event]:
        agent = self._agents[sample.host]
        says = Said.PROMISES if sample.closed else self._says(sample)
        if says is Said.NOTHING:
            return
        if says is Said.PROMISES:
            yield from agent.words.in_full([sample])
            return
        yield from agent.words.changed([sample], agent.quiet_ns)
        yield self._heartbeat(sample, ())

    def _heartbeat(self, said: Progress | HostSample, communicators: tuple[str, ...]) -> Flush:
        """That of some communicators, or of the host's processes: `together` makes one of them."""
        shards = [self._shards[one] for one in communicators] or sorted(self._shards.values())
        beat = Heartbeat(
            time_ns=said.time_ns,
            communicators=communicators,
            quiet_ns=self._agents[said.host].quiet_ns,
            is_of_processes=not communicators,
        )
        return Flush(job=said.job, attempt=said.attempt, host=said.host, shard=shards[0], heartbeat=beat)
