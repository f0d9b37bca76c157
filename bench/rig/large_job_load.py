"""The messages of a large simulated job whose agents tell of iterations, as they reach Kafka, each with its time.

What `DigestingAgents` does to the events of a simulated job, without these events: of 16,384 ranks in ten minutes they
would be ten million promises. Here each host makes what an agent says at the moments at which it flushes, and no more.
Messages lie in files, made by as many processes as there are files, so that sending them costs little beside the
processes that are measured.
"""

from __future__ import annotations

import gc
import heapq
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.rig.agent_records import communicator_of
from bench.rig.vitals import vitals_of
from collector.agent.flush_times import FlushTimes
from collector.agent.host_watch import VITALS_EVERY_NS
from collector.agent.host_words import HostWords
from collector.agent.node_agent import GUARD_NS
from collector.agent.said_in_full import SaidInFull
from collector.agent.saying import outgoing, outgoing_at_once, outgoing_iteration, outgoing_vitals, places_of
from collector.calls import rows as call_rows
from collector.calls.communicators import Communicator
from collector.calls.digests import DigestState, IterationDigests, Mark
from collector.calls.rings import CALL, Records
from collector.calls.rows import ToldAs
from pacehound.bus.kafka_sender import joined
from pacehound.clock import ClockPair
from pacehound.model.calls import DIRECTIONS, DTYPES, OPS, REDOPS, SOURCES, CallBatch
from pacehound.model.events import (
    NEVER,
    OPTIMIZER_STEP,
    HostSample,
    HostVitals,
    Markers,
    OpenCall,
    PairProgress,
    ProcessState,
    Progress,
    RankProgress,
    RunState,
    Topology,
)
from pacehound.model.topics import CALLS, HOSTS, Topic
from pacehound.settings import StreamSettings
from simulator.groups import Communicator as Group
from simulator.groups import communicators
from simulator.host_calls import CommunicatorCalls, HostCalls
from simulator.job import Simulation, simulate
from simulator.spec import JobSpec

NEVER_NS = np.iinfo(np.int64).max
STEP_NS = 50_000_000
"""How often an agent looks whether to flush."""
OPEN_SHOWN = 4
TOPICS = {CALLS.name: CALLS, HOSTS.name: HOSTS}
_CLOCK = ClockPair(monotonic_ns=0, unix_ns=0)

Int64Array = npt.NDArray[np.int64]


class Due(NamedTuple):
    """A message, and when it is sent in nanoseconds after the start of the job."""

    due_ns: int
    topic: str
    key: str
    value: bytes


def prepared(spec: JobSpec, folder: Path, processes: int = 2) -> list[Path]:
    """Make all messages of a job: files of them, each in the order in which they are sent."""
    shares = [range(number, len(spec.hosts), processes) for number in range(processes)]
    paths = [folder / f"messages{number}" for number in range(processes)]
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(_write, [spec] * processes, shares, paths))
    return paths


def read(paths: Sequence[Path]) -> Iterator[tuple[int, Topic, str, bytes]]:
    """The messages of all files by their time."""
    for one in heapq.merge(*map(_read, paths), key=lambda due: due.due_ns):
        yield one.due_ns, TOPICS[one.topic], one.key, one.value


def _read(path: Path) -> Iterator[Due]:
    with path.open("rb") as file:
        while True:
            try:
                yield Due(*pickle.load(file))
            except EOFError:
                return


def _write(spec: JobSpec, hosts: Sequence[int], path: Path) -> None:
    gc.disable()  # all of it is kept to the end: looking for what is not takes as long again
    simulation = simulate(spec)
    groups = communicators(spec)
    calls: dict[int, CommunicatorCalls] = {}
    of_rank: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        for rank in group.members:
            of_rank.setdefault(rank, []).append(number)
    said = []
    for host in hosts:
        here = sorted({number for rank in spec.hosts[host] for number in of_rank[rank]})
        for number in here:
            if number not in calls:
                calls[number] = CommunicatorCalls(spec, simulation.timeline, simulation.observed, groups[number])
        said.append(list(_Host(simulation, host, [(groups[number], calls[number]) for number in here]).messages()))
    with path.open("wb") as file:
        for due in heapq.merge(*said, key=lambda one: one.due_ns):
            pickle.dump(tuple(due), file)


@dataclass(frozen=True, slots=True)
class _Line:
    """The calls of a rank on a communicator, or to or from one peer, in order."""

    communicator: int
    rank: int
    peer: int
    direction: int
    seq: Int64Array
    launch_ns: Int64Array
    end_ns: Int64Array
    rows: Int64Array


class _Host:
    """One host's agent."""

    def __init__(self, simulation: Simulation, host: int, calls: Sequence[tuple[Group, CommunicatorCalls]]) -> None:
        self._spec = spec = simulation.spec
        self._name = f"host{host}"
        self._ranks = spec.hosts[host]
        self._same: dict[str, Any] = {"job": spec.job, "attempt": spec.attempt, "host": self._name}
        self._topologies = [self._topology(group) for group, _ in calls]
        self._known = [communicator_of(topology) for topology in self._topologies]
        self._places = places_of(self._known, digests_from_ranks=1, has_homes=True)
        self._in_full = SaidInFull()
        self._words = HostWords()
        # Agents of a job begin within seconds of each other.
        self._next_vitals_ns = spec.start_unix_ns + host * VITALS_EVERY_NS // len(spec.hosts)
        self._seen: list[HostVitals] = []  # and not told yet
        of_calls = [_records(of.of_host(tuple(topology.host_ranks)), spec) for (_, of), topology in
                    zip(calls, self._topologies, strict=True)]  # fmt: skip
        numbers = np.repeat(np.arange(len(of_calls)), list(map(len, of_calls)))
        order = np.argsort(np.concatenate([rows["end_ns"] for rows in of_calls]), kind="stable")
        self._rows = np.concatenate(of_calls)[order]
        self._numbers = numbers[order]
        self._lines = _lines(self._rows, self._numbers)
        ends_s = simulation.timeline.step_end_s[:, list(self._ranks)]
        self._step_ends_ns = spec.start_unix_ns + np.rint(ends_s * 1e9).astype(np.int64)
        self._finish_ns = spec.start_unix_ns + round(simulation.observed.finish_s * 1e9)
        self._digests = IterationDigests(DigestState())
        self._n_rows = 0
        self._told_ns = 0  # up to when iterations were told to have ended

    def messages(self) -> Iterator[Due]:
        """All that it says, in order."""
        times = FlushTimes(StreamSettings(), guard_ns=GUARD_NS, unix_ns=0)
        over_ns = self._step_ends_ns.max(axis=1)
        now_ns = self._spec.start_unix_ns
        while now_ns < self._finish_ns:
            now_ns += STEP_NS
            times.note_iterations(int(np.searchsorted(over_ns, now_ns, side="right")), now_ns)
            if times.is_due(now_ns, tells_iterations=True):
                is_usual = times.is_usual(now_ns)
                held_ns = times.quiet_behind_promises_ns(now_ns, tells_iterations=True)
                times.flushed(now_ns, 1.0)
                yield from self._flush(now_ns, times, is_usual=is_usual, held_ns=held_ns)
            self._look_at_hardware(now_ns, may_wait=times.awaits_heartbeat(now_ns, tells_iterations=True))
        yield from self._flush(now_ns, times, is_last=True)

    def _flush(
        self, now_ns: int, times: FlushTimes, *, is_usual: bool = False, held_ns: int = 0, is_last: bool = False
    ) -> Iterator[Due]:
        promised_ns = now_ns if is_last else now_ns - GUARD_NS
        settled: list[Topology | Markers | CallBatch] = []
        if self._topologies:
            settled, self._topologies = list(self._topologies), []
        settled += self._batches(promised_ns, is_last=is_last)
        markers = self._markers(promised_ns)
        settled += [markers] if markers is not None else []
        in_short = [self._promise(known, promised_ns) for known in self._known]
        is_short = is_usual and self._in_full.says_all(settled, in_short)
        quiet_ns = times.quiet_ns if is_short else 0
        sample = self._sample(now_ns, is_last=is_last)
        seen, self._seen = self._seen, []
        for one in seen:
            self._words.seen(one)
        samples = self._words.in_full([sample]) if is_last else self._words.changed([sample], quiet_ns)
        behind_ns = {} if is_last else {sample.attempt: self._words.last_ns(sample.attempt)}
        if is_short:
            messages = outgoing_iteration(settled, in_short, self._places, quiet_ns=quiet_ns, behind_ns=behind_ns)
            times.may_be_quiet(now_ns)
        else:
            promises = self._promises(promised_ns, is_last=is_last)
            messages = [
                *outgoing_at_once(settled, self._places),
                *outgoing_at_once(promises, self._places, behind_ns, quiet_ns=held_ns),
            ]
            self._in_full.note(in_short)
            if held_ns:
                times.has_promised_to_be_quiet(now_ns)
        world = self._places[self._known[0].id]
        messages = [*(outgoing_vitals(one, world) for one in seen), *messages, *map(outgoing, samples)]
        for topic, key, value in joined([message.payload for message in messages]):
            yield Due(now_ns - self._spec.start_unix_ns, topic.name, key, value)

    def _batches(self, until_ns: int, *, is_last: bool) -> Iterator[CallBatch]:
        first, self._n_rows = self._n_rows, int(np.searchsorted(self._rows["end_ns"], until_ns, side="right"))
        rows, numbers = self._rows[first : self._n_rows], self._numbers[first : self._n_rows]
        if not (len(rows) or is_last or self._ended(until_ns)):
            return
        marks = [Mark(self._spec.attempt, rank, step, time_ns) for time_ns, rank, step in self._ended(until_ns)]
        over = {(self._spec.attempt, rank) for rank in self._ranks} if is_last else set()
        attempts = np.full(len(self._known), self._spec.attempt, np.int64)
        told = self._digests.take(rows, numbers, attempts, marks, self._oldest_ns(until_ns), over)
        for some, of_some, told_as in (
            (told.calls, told.of_calls, ToldAs.CALLS),
            (told.digests, told.of_digests, ToldAs.DIGESTS),
        ):
            yield from call_rows.batches(
                some, of_some, self._known, job=self._spec.job, host=self._name, clock=_CLOCK, told_as=told_as
            )

    def _ended(self, until_ns: int) -> list[tuple[int, int, int]]:
        """Iterations of ranks that are over and were not told of: when, of whom, which one."""
        steps, places = np.nonzero((self._step_ends_ns > self._told_ns) & (self._step_ends_ns <= until_ns))
        times_ns = self._step_ends_ns[steps, places].tolist()
        return sorted(zip(times_ns, (self._ranks[place] for place in places), steps.tolist(), strict=True))

    def _oldest_ns(self, at_ns: int) -> dict[int, int]:
        """By rank, when its oldest collective that is open was launched."""
        is_open = (self._rows["launch_ns"] <= at_ns) & (self._rows["end_ns"] > at_ns) & (self._rows["direction"] == 0)
        open_rows = self._rows[is_open]
        return {
            rank: int(open_rows["launch_ns"][open_rows["rank"] == rank].min())
            for rank in np.unique(open_rows["rank"]).tolist()
        }

    def _markers(self, until_ns: int) -> Markers | None:
        told = self._ended(until_ns)
        self._told_ns = until_ns
        if not told:
            return None
        times_ns, ranks, steps = zip(*told, strict=True)
        names = (OPTIMIZER_STEP,) * len(told)
        world = self._known[0].id
        return Markers(**self._same, communicator=world, ranks=ranks, names=names, steps=steps, times_ns=times_ns)

    def _promises(self, at_ns: int, *, is_last: bool) -> list[Progress]:
        counted: dict[tuple[int, int], tuple[list[int], list[PairProgress], list[OpenCall]]] = {}
        for line in self._lines:
            counters, pairs, calls = counted.setdefault((line.communicator, line.rank), ([NEVER, NEVER], [], []))
            n_launched = int(np.searchsorted(line.launch_ns, at_ns, side="right"))
            n_ended = int(np.searchsorted(line.end_ns, at_ns, side="right"))
            launched = int(line.seq[n_launched - 1]) if n_launched else NEVER
            ended = int(line.seq[n_ended - 1]) if n_ended else NEVER
            if line.direction:
                direction = DIRECTIONS[line.direction]
                pair = PairProgress(peer=line.peer, direction=direction, last_launched=launched, last_completed=ended)
                pairs.append(pair)
            else:
                counters[:] = launched, ended
            calls += [_open_call(self._rows[row]) for row in line.rows[n_ended : min(n_launched, n_ended + OPEN_SHOWN)]]
        ids = tuple(known.id for known in self._known)
        return [
            replace(
                self._promise(known, at_ns),
                ranks=tuple(_rank_progress(rank, *counted[number, rank]) for rank in sorted(known.host_ranks)),
                announced=ids if known.is_world else (),
                closed=is_last,
            )
            for number, known in enumerate(self._known)
        ]

    def _promise(self, known: Communicator, at_ns: int) -> Progress:
        return Progress(**self._same, time_ns=at_ns, communicator=known.id, ranks=(), marks_iterations=True)

    def _sample(self, now_ns: int, *, is_last: bool) -> HostSample:
        state: RunState = "exited" if is_last else "running"
        processes = tuple(
            ProcessState(
                rank=rank,
                pid=10_000 + rank,
                state=state,
                since_ns=now_ns if is_last else self._spec.start_unix_ns,
                exit_code=0 if is_last else None,
            )
            for rank in self._ranks
        )
        why = "job ended" if is_last else ""
        return HostSample(**self._same, time_ns=now_ns, processes=processes, closed=is_last, closed_why=why)

    def _look_at_hardware(self, now_ns: int, *, may_wait: bool) -> None:
        """As `HostWatch` does."""
        if now_ns >= self._next_vitals_ns + (VITALS_EVERY_NS if may_wait else 0):
            self._next_vitals_ns = now_ns + VITALS_EVERY_NS
            self._seen.append(vitals_of(self._sample(now_ns, is_last=False)))

    def _topology(self, group: Group) -> Topology:
        return Topology(
            **self._same,
            time_ns=self._spec.start_unix_ns,
            communicator=group.id,
            name=group.name,
            is_world=group.kind == "world",
            members=group.members,
            host_ranks=tuple(sorted(set(self._ranks).intersection(group.members))),
            world_size=self._spec.layout.world_size,
            backend="nccl",
            timeout_s=600.0,
        )


def _records(calls: HostCalls, spec: JobSpec) -> Records:
    """Ring records of simulated calls; those that never end are `NEVER_NS`."""
    columns = calls.columns
    rows = np.zeros(len(columns["rank"]), CALL)
    for name in ("rank", "seq", "op", "count", "dtype", "redop", "peer", "direction"):
        rows[name] = columns[name]
    for name in ("launch", "start", "end"):
        times_s = getattr(calls, f"{name}_s")
        is_known = np.isfinite(times_s)
        rows[f"{name}_ns"] = np.where(
            is_known, spec.start_unix_ns + np.rint(np.where(is_known, times_s, 0) * 1e9).astype(np.int64), NEVER_NS
        )
    rows["send_count"] = rows["recv_count"] = -1
    rows["source"] = SOURCES.index("c10d")
    return rows


def _lines(rows: Records, numbers: Int64Array) -> list[_Line]:
    keys = np.stack([numbers, rows["rank"], np.where(rows["direction"] == 0, -1, rows["peer"]), rows["direction"]])
    lines = []
    for key in np.unique(keys, axis=1).T:
        mine = np.flatnonzero((keys == key[:, None]).all(axis=0))
        mine = mine[np.argsort(rows["seq"][mine], kind="stable")]
        communicator, rank, peer, direction = map(int, key)
        seq, launch_ns, end_ns = (rows[name][mine].astype(np.int64) for name in ("seq", "launch_ns", "end_ns"))
        lines.append(_Line(communicator, rank, peer, direction, seq, launch_ns, end_ns, mine))
    return lines


def _rank_progress(rank: int, counters: list[int], pairs: list[PairProgress], calls: list[OpenCall]) -> RankProgress:
    launched, completed = counters
    shown = tuple(sorted(calls, key=lambda call: call.launch_ns)[:OPEN_SHOWN])
    return RankProgress(rank=rank, last_launched=launched, last_completed=completed, open=shown, pairs=tuple(pairs))


def _open_call(row: np.void) -> OpenCall:
    return OpenCall(
        seq=int(row["seq"]),
        op=OPS[int(row["op"])],
        count=int(row["count"]),
        dtype=DTYPES[int(row["dtype"])],
        redop=REDOPS[int(row["redop"])],
        launch_ns=int(row["launch_ns"]),
        peer=int(row["peer"]),
        direction=DIRECTIONS[int(row["direction"])],
    )
