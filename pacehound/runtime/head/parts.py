"""What a head needs of its siblings, as protocols: it never imports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from pacehound.bus.control import HeadWire
from pacehound.model.events import Decision, EarlierRun, Incident, UsualRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event
from pacehound.runtime.event_loop import Worker
from pacehound.runtime.silence import OpenStream


class Pipeline(Protocol):
    """The operators, stage one and two, as one object (`streams.pipeline.Pipeline`)."""

    def on_event(self, event: Event) -> list[Event]:
        """Events concluded from the next event of the log; `RejectedMessage` for one that cannot be."""
        ...

    def streams(self) -> Mapping[str, OpenStream]:
        """Open streams, by name."""
        ...


class Keepable(Protocol):
    """A pipeline whose state can be kept (`streams.pipeline.Pipeline`)."""

    def changed(self, *, everything: bool = False) -> tuple[dict[str, bytes], set[str]]:
        """The parts of its state that have changed since this was asked last, or all; and the names of all parts."""
        ...

    def take_back(self, parts: Mapping[str, bytes]) -> None:
        """Go on where the state stood of which these are the parts; a `PacehoundError` where they cannot be read."""
        ...

    def open_incidents(self) -> set[str]:
        """The ids of those that it follows."""
        ...


class Store(Protocol):
    """Where history is asked for."""

    def incidents(self, job: str | None = None) -> list[Incident]:
        """The latest version of each incident."""
        ...

    def decisions(self) -> list[Decision]:
        """Every decision, taken or not."""
        ...

    def last_attempt(self, job: str) -> int | None:
        """The highest attempt of `job` that has anything stored; `None` when the job is not known."""
        ...

    def earlier_runs(self, job: str, before_attempt: int) -> list[EarlierRun]:
        """What the runs of `job` before this attempt did."""
        ...

    def usual_rounds(self) -> list[UsualRounds]:
        """What rounds of each kind take in the fleet."""
        ...

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's own named queries."""
        ...

    def answer(self, sql: str) -> pa.Table:
        """Rows of a statement that reads the history and nothing else."""
        ...

    def close(self) -> bool:
        """Give the store back; False where a question goes on all the same."""
        ...


class Tracer(Worker, Protocol):
    """Sends rounds, incidents and decisions to where traces go (`runtime.job_traces.JobTraces`)."""

    def on_rounds(self, rounds: Rounds) -> None:
        """Rounds do not pass over a head's bus; called by the thread of the pipeline."""
        ...

    def close(self) -> None:
        """Send what waits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that a head composes.

    Attributes
    ----------
    pipeline
        Calls and what hosts say in, findings and incidents out.
    store, writer
        Where history is asked for, and the worker that writes it.
    late_writer
        Another one, for what nobody waits for, or what a journal has; `None`: `writer` does that too.
    actuators
        Makes the worker that decides about incidents, and acts, from the way to the agents.
    alerts
        Reads incidents, too; `None` where nobody is to be told.
    traces
        `None` where nobody takes them.
    keepable
        The pipeline, where its state can be kept for a next head.

    """

    pipeline: Pipeline
    store: Store
    writer: Worker
    actuators: Callable[[HeadWire], Worker]
    alerts: Worker | None = None
    traces: Tracer | None = None
    late_writer: Worker | None = None
    keepable: Keepable | None = None
