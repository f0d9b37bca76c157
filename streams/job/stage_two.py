"""Stage two on one job: all its attempts, from what stage one says of its communicators and hosts."""

from __future__ import annotations

from pacehound.errors import InvalidEvent
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import (
    HostEvidence,
    HostSample,
    HostVitals,
    IterationSample,
    JobHistory,
    Markers,
    Progress,
    SignatureMismatch,
    Tick,
    Topology,
    Watermark,
)
from pacehound.model.evidence.leaving import JobShape
from pacehound.model.operations import Operations
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import HOST_STREAM, Event
from pacehound.settings import Settings
from streams.job.operator import JobOperator, StageTwoEvent
from streams.job.returns import Returns

MAX_ENDED_ATTEMPTS = 1_000
"""Ended attempts whose late messages are still recognised as such."""


class StageTwo:
    """One job.

    Attributes
    ----------
    attempts
        The operators of those that go on.
    late
        Events of attempts that have ended; they are not used.

    Examples
    --------
    >>> stage = StageTwo("j", Settings())
    >>> stage.on_event(Tick(job="j", attempt=0, time_ns=5, stream="host:j/h"))
    []
    >>> list(stage.attempts)
    [0]
    """

    def __init__(self, job: str, settings: Settings) -> None:
        self.job = job
        self._settings = settings
        self.attempts: dict[int, JobOperator] = {}
        self._ended: dict[int, None] = {}
        self._returns = Returns(job)
        self.late = 0

    @property
    def is_closed(self) -> bool:
        """No attempt goes on, and one has."""
        return not self.attempts and bool(self._ended)

    @property
    def is_empty(self) -> bool:
        """Nothing of any attempt has been of use."""
        return not self.attempts and not self._ended

    def shed(self) -> None:
        """What is left of a job that is over is small already."""

    def has_ended(self, attempt: int) -> bool:
        """Nothing of this attempt is used any more."""
        return attempt in self._ended

    def on_event(self, event: Event | PairRounds) -> list[StageTwoEvent]:
        """One event of stage one; what it leads to, in order.

        Raises
        ------
        InvalidEvent
            It is no event that stage one makes.
        """
        if event.attempt in self._ended:
            self.late += 1
            return []
        self._returns.on_event(event)
        said = self._returns.told(self._on_event(event))
        if isinstance(event, (HostSample, Topology)):
            said += self._returns.news(event.time_ns, self._layout)
        return said

    def _layout(self, attempt: int) -> JobShape | None:
        operator = self.attempts.get(attempt)
        return None if operator is None else operator.layout

    def _on_event(self, event: Event | PairRounds) -> list[StageTwoEvent]:
        match event:
            case Conclusions():
                return self._on_conclusions(event)
            case HostSample() if event.attempt not in self.attempts and not event.processes:
                return []  # its command has joined no process group: another host of the job may yet
            case HostSample():
                return self._finish(event.attempt, self._attempt(event.attempt).on_host(event))
            case HostVitals() | HostEvidence():
                operator = self.attempts.get(event.attempt)
                return [] if operator is None else self._finish(event.attempt, operator.on_host_report(event))
            case Operations():
                if event.attempt in self.attempts:
                    self.attempts[event.attempt].on_operations(event)
                return []
            case JobHistory():
                self._attempt(event.attempt).on_history(event)
                return []
            case Tick() if event.stream.startswith(HOST_STREAM):
                operator = self._attempt(event.attempt)
                return self._finish(event.attempt, operator.on_host_silence(event.stream, event.time_ns))
            case (
                Rounds() | PairRounds() | SignatureMismatch() | IterationSample() | Progress()
                | Topology() | Markers() | Watermark()
            ):  # fmt: skip
                return self._finish(event.attempt, self._attempt(event.attempt).on_stage_one(event))
            case _:
                raise InvalidEvent(f"{type(event).__name__} is no input of stage two")

    def _on_conclusions(self, event: Conclusions) -> list[StageTwoEvent]:
        """What stage one says at once, in order."""
        said: list[StageTwoEvent] = []
        for one in event.said:
            operator = self.attempts.get(event.attempt)
            # Of thousands of these many come at once, and most lead to nothing.
            if operator is not None and isinstance(one, (Rounds, PairRounds, Progress)):
                operator.on_stage_one(one)  # no time passes with them, and nothing follows yet
            elif operator is not None and isinstance(one, Watermark):
                said += self._returns.told(self._finish(event.attempt, operator.on_stage_one(one)))
            else:
                said += self.on_event(one)
        return said

    def _attempt(self, attempt: int) -> JobOperator:
        if attempt not in self.attempts:
            self.attempts[attempt] = JobOperator(self.job, attempt, self._settings)
        return self.attempts[attempt]

    def _finish(self, attempt: int, out: list[StageTwoEvent]) -> list[StageTwoEvent]:
        if self.attempts[attempt].ended:
            del self.attempts[attempt]
            self._ended[attempt] = None
            while len(self._ended) > MAX_ENDED_ATTEMPTS:
                del self._ended[next(iter(self._ended))]
        return out
