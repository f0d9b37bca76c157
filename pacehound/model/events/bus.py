"""What any process that reads a topic may add to it: ticks of silent streams, and dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field

from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has reached `time_ns` and the stream was silent: only what stands in the log may close a silence."""

    job: str
    attempt: Int64
    time_ns: Int64
    stream: str

    def identity(self) -> str:
        """Names (job, attempt, stream, time)."""
        return event_id("tick", self.job, self.attempt, self.stream, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be processed: its bytes, where it stood, and why.

    Attributes
    ----------
    key
        Its key; bytes of a foreign key that are no UTF-8 are replaced.
    replayed_ns
        When its bytes were put on their topic again; 0 while they were not. A letter that was replayed is said once
        more, with this set.

    """

    source_topic: str
    partition: Int64
    offset: Int64
    time_ns: Int64
    error: str
    reason: str
    payload: bytes = field(repr=False)
    job: str = ""
    attempt: Int64 = 0
    key: str = ""
    replayed_ns: Int64 = 0

    def identity(self) -> str:
        """Names (topic, partition, offset)."""
        return event_id("dead-letter", self.source_topic, self.partition, self.offset)
