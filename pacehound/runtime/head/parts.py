"""What a head needs of its siblings, as protocols: it never imports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from pacehound.bus import Message
from pacehound.model.events import DeadLetter, Decision, EarlierRun, Incident
from pacehound.model.routing import Event
from pacehound.runtime.silence import OpenStream


class Pipeline(Protocol):
    """The operators, stage one and two, as one object (`streams.pipeline.Pipeline`)."""

    def on_event(self, event: Event) -> list[Event]:
        """Events concluded from the next event of the log; `RejectedMessage` for one that cannot be."""
        ...

    def streams(self) -> Mapping[str, OpenStream]:
        """Open streams, by name."""
        ...


class Store(Protocol):
    """Where history is kept; only the worker that owns it writes."""

    def write(self, messages: Sequence[Message]) -> Sequence[DeadLetter]:
        """Take these messages and return what of them does not fit; writing one again changes nothing."""
        ...

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

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> pa.Table:
        """Rows of a reading statement."""
        ...

    def close(self) -> None:
        """Give the store back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that a head composes.

    Attributes
    ----------
    decide
        An incident in, decisions out (observe mode).
    alert
        Tells somebody about an incident; may take its time and may fail.
    close
        Called before the store is closed: whoever is still being told has a moment left.

    """

    pipeline: Pipeline
    store: Store
    decide: Callable[[Incident], list[Decision]]
    alert: Callable[[Incident], object]
    close: Callable[[], object] = lambda: None
