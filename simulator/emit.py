"""A simulated job as the events that the agents of its hosts would publish, second by second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pacehound.model.events import (
    CHECKPOINT_BEGIN,
    CHECKPOINT_END,
    EVALUATION_BEGIN,
    EVALUATION_END,
    OPTIMIZER_STEP,
    HostSample,
    Markers,
    ProcessState,
    Tick,
    Topology,
)
from pacehound.model.routing import Event, host_stream
from simulator.groups import Communicator, communicators
from simulator.host_calls import CommunicatorCalls
from simulator.host_reports import FIRST_PID, HostMonitor
from simulator.host_stream import SECOND_NS, CallStream
from simulator.observed import Observed, StateChange
from simulator.source import DUMPED_AFTER
from simulator.spec import JobSpec
from simulator.timing import Timeline

_TICKS_AFTER_END = 10
"""Seconds for which somebody still says that time passes in the streams of hosts that are silent."""
_PAUSE_MARKERS = {
    "checkpoint": (CHECKPOINT_BEGIN, CHECKPOINT_END),
    "evaluation": (EVALUATION_BEGIN, EVALUATION_END),
}


def events(spec: JobSpec, timeline: Timeline, observed: Observed) -> Iterator[Event]:
    """Topology first, then for each second and host: rows, markers, progress, states; at last what closes.

    Seconds are those of the host's own clock, which may be ahead of or behind true time; hosts are interleaved by
    the number of the second. `Progress.time_ns = t` stands behind every row of its host that ended by `t`.
    """
    groups = [group for group in communicators(spec) if group.kind not in spec.source.unseen]
    finish_ns = round(observed.finish_s * 1e9)
    # Clocks are apart: the job's last second is the last one that any of them shows.
    last = 1 + (finish_ns + max(_offset_ns(spec, index) for index in range(len(spec.hosts)))) // SECOND_NS
    calls = [CommunicatorCalls(spec, timeline, observed, group) for group in groups]
    here: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in spec.hosts]
    for number, group in enumerate(groups):
        by_host: dict[int, list[int]] = {}
        for rank in group.members:
            by_host.setdefault(rank // spec.ranks_per_host, []).append(rank)
        for index, ranks in by_host.items():
            here[index].append((number, tuple(ranks)))
    hosts = [
        _Host(spec, timeline, observed, groups, calls, index, ranks, here[index], last)
        for index, ranks in enumerate(spec.hosts)
    ]
    for host in hosts:
        yield from host.topology()
    for second in range(1, last + 1):
        for host in hosts:
            yield from host.second(second, is_last=second == last)
    for second in range(last + 1, last + 1 + _TICKS_AFTER_END):
        for host in hosts:
            yield from host.silence(second)


def _offset_ns(spec: JobSpec, index: int) -> int:
    """How far a host's clock is ahead."""
    return round(spec.clock_offsets_ms[index] * 1e6) if index < len(spec.clock_offsets_ms) else 0


def _algorithm(spec: JobSpec, group: Communicator) -> str:
    """What a profiler says of a communicator's collectives; other sources do not know."""
    if not spec.source.has_rates or group.kind in ("ep", "pp"):
        return ""
    return "tree" if group.kind == "dp" and spec.algorithm == "tree" and not spec.is_sharded else "ring"


def _resumes(stopped: StateChange, observed: Observed) -> bool:
    return any(c.rank == stopped.rank and c.state == "running" and c.time_s > stopped.time_s for c in observed.changes)


@dataclass(frozen=True, slots=True)
class _Marker:
    time_ns: int
    rank: int
    name: str
    step: int


class _Host:
    """One host's agent."""

    def __init__(
        self,
        spec: JobSpec,
        timeline: Timeline,
        observed: Observed,
        groups: Sequence[Communicator],
        calls: Sequence[CommunicatorCalls],
        index: int,
        ranks: tuple[int, ...],
        here: Sequence[tuple[int, tuple[int, ...]]],
        last_second: int,
    ) -> None:
        self._spec = spec
        self._was_killed = observed.was_killed
        self._ranks = ranks
        self._name = f"host{index}"
        self._epoch_ns = spec.start_unix_ns + _offset_ns(spec, index)
        self._world = groups[0]
        self._streams: list[CallStream] = []
        self._silent_ns = self._clock_ns(observed.silent_s[index]) if np.isfinite(observed.silent_s[index]) else None
        stuck = [hold for hold in timeline.holds if np.isinf(hold.until_s)]
        mute = {
            change.rank for change in observed.changes if change.state == "stopped" and not _resumes(change, observed)
        }
        mute |= {hold.rank for hold in stuck if observed.given_up_s[hold.rank] < observed.finish_s}
        for number, mine in here:
            group = groups[number]
            self._streams.append(
                CallStream(
                    spec,
                    group,
                    mine,
                    self._name,
                    calls[number].of_host(mine),
                    edges=calls[number].edges(mine, _algorithm(spec, group)),
                    channels={rank: calls[number].channels(rank) for rank in mine},
                    epoch_ns=self._epoch_ns,
                    finish_s=observed.finish_s,
                    algorithm=_algorithm(spec, group),
                    dumped_s=observed.stuck_s + DUMPED_AFTER * spec.hang_s,
                    mute=frozenset(mute),
                    n_seconds=last_second + 1,
                    rng=np.random.default_rng([spec.seed, index, number]),
                )
            )
        self._announced = tuple(stream.communicator.id for stream in self._streams)
        self._markers = self._all_markers(timeline)
        self._n_markers_sent = 0
        self._changes = [change for change in observed.changes if change.rank in ranks]
        self._has_agent = not spec.source.dumps
        self._states = {
            rank: ProcessState(
                rank=rank,
                pid=FIRST_PID + rank,
                state="running" if self._has_agent else "unknown",
                since_ns=self._epoch_ns,
            )
            for rank in ranks
        }
        self._monitor = HostMonitor(spec, timeline, observed, self._name, ranks, self._clock_ns)

    def topology(self) -> Iterator[Event]:
        """Who is in each communicator, and which of them are here."""
        for stream in self._streams:
            yield Topology(
                job=self._spec.job,
                attempt=self._spec.attempt,
                time_ns=self._epoch_ns,
                host=self._name,
                communicator=stream.communicator.id,
                name=stream.communicator.name,
                is_world=stream.communicator.kind == "world",
                members=stream.communicator.members,
                host_ranks=stream.ranks,
                world_size=self._spec.layout.world_size,
                backend="gloo" if self._spec.source.run_ahead_calls == 0 else "nccl",
                timeout_s=600.0,
            )

    def second(self, second: int, *, is_last: bool) -> Iterator[Event]:
        """Everything that became final in one second of this host's clock, then the promise that it was all."""
        now_ns = self._spec.start_unix_ns + second * SECOND_NS
        if self._silent_ns is not None and now_ns >= self._silent_ns:
            yield from self.silence(second)
            return
        for stream in self._streams:
            yield from stream.rows(second)
        yield from self._markers_until(now_ns)
        for stream in self._streams:
            is_world = stream.communicator.kind == "world"
            yield stream.progress(second, now_ns, self._announced if is_world else (), is_last)
        if self._has_agent:
            yield from self._monitor.second(now_ns)
        yield from self._samples(now_ns, is_last)

    def silence(self, second: int) -> Iterator[Event]:
        """Ticks in the streams of a host whose agent says nothing: somebody else notices that time passes in them."""
        if self._silent_ns is None:
            return
        names = [stream.communicator.id for stream in self._streams] + [host_stream(self._spec.job, self._name)]
        for name in names:
            yield Tick(
                job=self._spec.job,
                attempt=self._spec.attempt,
                time_ns=self._spec.start_unix_ns + second * SECOND_NS,
                stream=name,
            )

    def _clock_ns(self, time_s: float) -> int:
        return self._epoch_ns + round(time_s * 1e9)

    def _all_markers(self, timeline: Timeline) -> list[_Marker]:
        markers = []
        for step, ends in enumerate(timeline.step_end_s):
            for rank in self._ranks:
                if np.isfinite(ends[rank]):
                    markers.append(_Marker(self._clock_ns(ends[rank]), rank, OPTIMIZER_STEP, step))
        for pause in timeline.pauses:
            names = _PAUSE_MARKERS[pause.kind]
            for name, times_s in zip(names, (pause.begin_s, pause.end_s), strict=True):
                markers += [
                    _Marker(self._clock_ns(times_s[rank]), rank, name, pause.after_step + 1) for rank in self._ranks
                ]
        return sorted(markers, key=lambda m: (m.time_ns, m.rank))

    def _markers_until(self, now_ns: int) -> Iterator[Event]:
        first = self._n_markers_sent
        after = first
        while after < len(self._markers) and self._markers[after].time_ns <= now_ns:
            after += 1
        self._n_markers_sent = after
        chosen = self._markers[first:after]
        if chosen:
            yield Markers(
                job=self._spec.job,
                attempt=self._spec.attempt,
                host=self._name,
                communicator=self._world.id,
                ranks=tuple(m.rank for m in chosen),
                names=tuple(m.name for m in chosen),
                steps=tuple(m.step for m in chosen),
                times_ns=tuple(m.time_ns for m in chosen),
            )

    def _samples(self, now_ns: int, is_last: bool) -> Iterator[Event]:
        """A sample at each change, and one at the full second."""
        while self._changes and self._clock_ns(self._changes[0].time_s) <= now_ns:
            changed_ns = self._clock_ns(self._changes[0].time_s)
            while self._changes and self._clock_ns(self._changes[0].time_s) == changed_ns:
                self._apply(self._changes.pop(0), changed_ns)
            if changed_ns < now_ns:
                yield self._sample(changed_ns, is_closed=False)
        yield self._sample(now_ns, is_closed=is_last)

    def _apply(self, change: StateChange, since_ns: int) -> None:
        if not self._has_agent:
            return
        self._states[change.rank] = ProcessState(
            rank=change.rank,
            pid=FIRST_PID + change.rank,
            state=change.state,
            since_ns=since_ns,
            exit_code=change.exit_code,
            signal=change.signal,
            detail=change.detail,
        )

    def _sample(self, time_ns: int, *, is_closed: bool) -> HostSample:
        why = "job killed" if self._was_killed else "job ended"
        return HostSample(
            job=self._spec.job,
            attempt=self._spec.attempt,
            time_ns=time_ns,
            host=self._name,
            processes=tuple(self._states.values()),
            closed=is_closed,
            closed_why=why if is_closed else "",
        )
