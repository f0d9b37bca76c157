"""Composes the operators: stage one per communicator, stage two per job.

This is all of it in one process, for one bus; `app.py` runs the same two stages on Kafka. Events in, in the order of
the log, events out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import cast

from pacehound.errors import PartlyRefused
from pacehound.model.events import Watermark
from pacehound.model.flushes import Flush
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event, host_stream, route
from pacehound.settings import Settings
from streams.job.stage_two import StageTwo
from streams.rounds.hearing import conclude_flush
from streams.rounds.stage_one import OpenStream, StageOne, StageTwoInput
from streams.slow.base_times import base_times
from streams.snapshots.codec import MalformedState, StateCodec
from streams.snapshots.schema import state_codec

MAX_ENDED_JOBS = 1_000
"""Jobs that are over and whose late messages are still recognised as such."""


_KEY, _JOB, _COUNTS = "key ", "job ", "counts"
"""Names of the parts of its state."""


class Pipeline:
    """All operators of one worker.

    >>> from pacehound.settings import Settings
    >>> Pipeline(Settings()).streams()
    {}
    """

    def __init__(self, settings: Settings) -> None:
        base_times(settings.slow.base_times)  # what cannot be read is said at the start, not at the first job
        self._settings = settings
        self._keys: dict[str, StageOne] = {}
        self._jobs: dict[str, StageTwo] = {}
        self.counts: dict[str, int] = {}
        self._touched: set[str] = set()  # parts that are not as they were when `changed` was asked last

    @cached_property
    def _codec(self) -> StateCodec:
        return state_codec(self._settings)

    def on_event(self, event: Event) -> list[Event]:
        """One event of `calls` or `hosts`; what it leads to, in order.

        Raises
        ------
        InvalidEvent
            The event cannot be true, or belongs to nothing that is known; it has changed nothing.
        """
        job = self._jobs.get(event.job)
        if job is not None and job.has_ended(event.attempt):
            self._count("after_end")
            return []
        refused: PartlyRefused | None = None
        try:
            results = self._stage_one(event)
        except PartlyRefused as error:
            refused, results = error, [cast(StageTwoInput, result) for result in error.results]
        out: list[Event] = []
        for result in results:
            if isinstance(result, (Rounds, Watermark)):
                out.append(result)
            elif isinstance(result, PairRounds):
                out += result.by_pair()
            out += self._job(event.job).on_event(result)
        self._finish(event.job, event.attempt)
        if refused is not None:
            raise refused.with_results(out)
        return out

    def _stage_one(self, event: Event) -> list[StageTwoInput]:
        self._touched.add(_JOB + event.job)
        if isinstance(event, Flush):
            # Communicators are the keys here, however their hosts send them: they may do so each in its own way.
            stages: dict[str, StageOne] = {}

            def stage_of(communicator: str) -> StageOne:
                if communicator not in stages:
                    stages[communicator] = self._keys.get(communicator) or StageOne(self._settings)
                return stages[communicator]

            try:
                return conclude_flush(event, stage_of)
            finally:
                self._touched |= {_KEY + communicator for communicator in stages}
                self._keys |= {name: stage for name, stage in stages.items() if stage.communicator is not None}
        _, key = route(event)
        self._touched.add(_KEY + key)
        stage_one = self._keys.get(key) or StageOne(self._settings)
        results = stage_one.on_event(event)
        if stage_one.communicator is not None:
            self._keys[key] = stage_one
        return results

    def streams(self) -> dict[str, OpenStream]:
        """Every stream that is open, by name: who writes ticks must know where silence matters."""
        open_streams = {
            name: opened for name, stage_one in self._keys.items() if (opened := stage_one.open_stream()) is not None
        }
        for job in self._jobs.values():
            for attempt, in_job in job.attempts.items():
                for host in in_job.hosts:
                    stream = OpenStream(job=job.job, attempt=attempt, hosts=(host,), is_complete=True)
                    open_streams[host_stream(job.job, host)] = stream
        return open_streams

    def all_counts(self) -> dict[str, int]:
        """What was not used, by reason, over all open communicators."""
        counts = dict(self.counts)
        for stage_one in self._keys.values():
            assert stage_one.communicator is not None
            for name, number in stage_one.communicator.all_counts().items():
                counts[name] = counts.get(name, 0) + number
        in_jobs = [operator for job in self._jobs.values() for operator in job.attempts.values()]
        if repeated := sum(operator.repeated_host_events for operator in in_jobs):
            counts["repeated_host_events"] = repeated
        return counts

    def snapshot(self) -> bytes:
        """The state of every operator."""
        return self._codec.encode((self._keys, self._jobs, self.counts))

    @classmethod
    def restore(cls, snapshot: bytes, settings: Settings) -> Pipeline:
        """The pipeline as it was.

        Raises
        ------
        MalformedState
            The bytes are no snapshot of this schema. Replay, or start anew and say so; never go on with half a state.
        """
        pipeline = cls(settings)
        pipeline._keys, pipeline._jobs, pipeline.counts = pipeline._codec.decode(snapshot)
        return pipeline

    def changed(self, *, everything: bool = False) -> tuple[dict[str, bytes], set[str]]:
        """The parts of the state that have changed since this was asked last, or all, and the names of all parts.

        A part is a communicator or a job, so that what a job that is quiet keeps is not written again and again.
        """
        parts: dict[str, object] = {_KEY + name: stage_one for name, stage_one in self._keys.items()}
        parts |= {_JOB + name: job for name, job in self._jobs.items()}
        written = {
            name: self._codec.encode(part) for name, part in parts.items() if everything or name in self._touched
        }
        written[_COUNTS] = self._codec.encode(self.counts)
        self._touched.clear()
        return written, {*parts, _COUNTS}

    def take_back(self, parts: Mapping[str, bytes]) -> None:
        """Go on where the state stood of which these are the parts.

        Raises
        ------
        MalformedState
            One of them cannot be read by this version; nothing was taken.
        """
        found = {name: self._codec.decode(content) for name, content in parts.items()}
        for name, part in found.items():
            if not isinstance(part, dict if name == _COUNTS else StageOne if name.startswith(_KEY) else StageTwo):
                raise MalformedState(f"{name!r} is a {type(part).__name__}")
        self.counts = found.pop(_COUNTS, {})
        self._keys = {name.removeprefix(_KEY): part for name, part in found.items() if name.startswith(_KEY)}
        self._jobs = {name.removeprefix(_JOB): part for name, part in found.items() if name.startswith(_JOB)}

    def open_incidents(self) -> set[str]:
        """The ids of those that it follows; may be asked while another thread feeds it."""
        in_jobs = [operator for job in list(self._jobs.values()) for operator in list(job.attempts.values())]
        return {incident for operator in in_jobs for incident in operator.open_incidents()}

    def _job(self, job: str) -> StageTwo:
        if job not in self._jobs:
            self._jobs[job] = StageTwo(job, self._settings)
        return self._jobs[job]

    def _finish(self, job: str, attempt: int) -> None:
        """Forget the communicators of an attempt that has just ended, and the oldest of many jobs that are over."""
        if job not in self._jobs or not self._jobs[job].has_ended(attempt):
            if job in self._jobs and self._jobs[job].is_empty:
                del self._jobs[job]
            return
        for name, stage_one in list(self._keys.items()):
            operator = stage_one.communicator
            if operator is not None and (operator.job, operator.attempt) == (job, attempt):
                for reason, number in operator.all_counts().items():
                    self._count(reason, number)
                del self._keys[name]
        over = [name for name, known in self._jobs.items() if known.is_closed]
        for name in over[: max(len(over) - MAX_ENDED_JOBS, 0)]:
            del self._jobs[name]

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number
