"""Composes the operators: stage one per communicator, stage two per job.

Runs the same in one process (memory bus) and, later, under Faust: events in, in the order of the log, events out.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from pacehound import __version__
from pacehound.calls import CallBatch
from pacehound.errors import InvalidEvent
from pacehound.events import (
    HostEvidence,
    HostSample,
    HostVitals,
    JobHistory,
    Markers,
    Progress,
    Tick,
    Topology,
    Watermark,
)
from pacehound.rounds import Rounds
from pacehound.routing import HOST_STREAM, Event, host_stream
from pacehound.settings import Settings
from streams.communicator import CommunicatorOperator, StageOneEvent
from streams.job import JobOperator

_JobKey = tuple[str, int]

MAX_ENDED_JOBS = 1_000
"""Ended jobs whose late messages are still recognised as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStream:
    """A stream that is not closed: who must be heard in it for time to go on."""

    job: str
    attempt: int
    hosts: tuple[str, ...]
    is_complete: bool


class Pipeline:
    """All operators of one worker.

    >>> from pacehound.settings import Settings
    >>> Pipeline(Settings()).streams()
    {}
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._communicators: dict[str, CommunicatorOperator] = {}
        self._jobs: dict[_JobKey, JobOperator] = {}
        self._ended: dict[_JobKey, None] = {}
        self.counts: dict[str, int] = {}

    def on_event(self, event: Event) -> list[Event]:
        """One event of `calls` or `hosts`; what it leads to, in order.

        Raises
        ------
        InvalidEvent
            The event cannot be true, or belongs to nothing that is known; it has changed nothing.

        """
        key = (event.job, event.attempt)
        if key in self._ended:
            self._count("after_end")
            return []
        match event:
            case HostSample() if key not in self._jobs and not event.processes:
                return []  # its command has joined no process group: another host of the job may yet
            case HostSample():
                return self._finish(key, list(self._job(key).on_host(event)))
            case HostVitals() | HostEvidence():
                if key in self._jobs:
                    self._jobs[key].on_witness(event)
                return []
            case JobHistory():
                self._job(key).on_history(event)
                return []
            case Tick() if event.stream.startswith(HOST_STREAM):
                return self._finish(key, list(self._job(key).on_host_silence(event.stream, event.time_ns)))
            case Topology():
                operator = self._communicators.get(event.communicator) or CommunicatorOperator(event, self._lateness_ns)
                announced = operator.on_topology(event)
                self._communicators[event.communicator] = operator
                return self._forward(key, announced)
            case Tick():
                known = self._communicators.get(event.stream)
                return self._forward(key, known.on_tick(event)) if known else []
            case CallBatch():
                return self._forward(key, self._communicator(event).on_calls(event))
            case Markers():
                return self._forward(key, self._communicator(event).on_markers(event))
            case Progress():
                return self._forward(key, self._communicator(event).on_progress(event))
            case _:
                raise InvalidEvent(f"{type(event).__name__} is no input of the streams")

    def streams(self) -> dict[str, OpenStream]:
        """Every stream that is open, by name: who writes ticks must know where silence matters."""
        open_streams = {
            name: OpenStream(
                job=operator.job, attempt=operator.attempt, hosts=operator.hosts, is_complete=operator.is_complete
            )
            for name, operator in self._communicators.items()
            if not operator.is_closed
        }
        for (job, attempt), operator in self._jobs.items():
            for host in operator.hosts:
                stream = OpenStream(job=job, attempt=attempt, hosts=(host,), is_complete=True)
                open_streams[host_stream(job, host)] = stream
        return open_streams

    def all_counts(self) -> dict[str, int]:
        """What was not used, by reason, over all open communicators."""
        counts = dict(self.counts)
        for operator in self._communicators.values():
            for name, number in operator.all_counts().items():
                counts[name] = counts.get(name, 0) + number
        return counts

    def snapshot(self) -> bytes:
        """The state of every operator, marked with the version that can read it."""
        state = (self._communicators, self._jobs, self._ended, self.counts)
        return pickle.dumps((__version__, self._settings, state), protocol=5)

    @classmethod
    def restore(cls, snapshot: bytes) -> Pipeline:
        """The pipeline as it was.

        Raises
        ------
        ValueError
            Another version wrote the snapshot. Replay, or start anew and say so; never go on with half a state.

        """
        version, settings, state = pickle.loads(snapshot)
        if version != __version__:
            raise ValueError(f"the snapshot was written by version {version}, this is {__version__}")
        pipeline = cls(settings)
        pipeline._communicators, pipeline._jobs, pipeline._ended, pipeline.counts = state
        return pipeline

    def _communicator(self, event: CallBatch | Markers | Progress) -> CommunicatorOperator:
        operator = self._communicators.get(event.communicator)
        if operator is None:
            raise InvalidEvent(
                f"{type(event).__name__} of host {event.host!r} on communicator {event.communicator}, "
                "which no topology has announced"
            )
        return operator

    def _job(self, key: _JobKey) -> JobOperator:
        if key not in self._jobs:
            self._jobs[key] = JobOperator(*key, self._settings)
        return self._jobs[key]

    def _forward(self, key: _JobKey, stage_one: list[StageOneEvent]) -> list[Event]:
        job = self._job(key)
        out: list[Event] = []
        for event in stage_one:
            if isinstance(event, (Rounds, Watermark)):
                out.append(event)
            out += job.on_stage_one(event)
        return self._finish(key, out)

    def _finish(self, key: _JobKey, out: list[Event]) -> list[Event]:
        job = self._jobs[key]
        if job.ended:
            for name in [n for n, o in self._communicators.items() if (o.job, o.attempt) == key]:
                for reason, number in self._communicators.pop(name).all_counts().items():
                    self._count(reason, number)
            del self._jobs[key]
            self._ended[key] = None
            while len(self._ended) > MAX_ENDED_JOBS:
                del self._ended[next(iter(self._ended))]
        return out

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number
