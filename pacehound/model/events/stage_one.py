"""What stage one of the streams says of one communicator or host to stage two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64


@dataclass(frozen=True, slots=True, order=True)
class CallSignature:
    """What a rank calls, as far as its peers must call the same; fields that may differ, or are unknown, are empty.

    `count` and `root` are -1 there. With `algorithm` and `protocol` it is the operation type set of CCL-D (5.1).
    """

    op: str
    count: Int64 = -1
    dtype: str = ""
    redop: str = ""
    root: Int64 = -1
    algorithm: str = ""
    protocol: str = ""

    def __str__(self) -> str:
        size = f" of {self.count} {self.dtype}".rstrip() if self.count >= 0 else ""
        redop = f" ({self.redop})" if self.redop else ""
        root = f" with root {self.root}" if self.root >= 0 else ""
        way = " ".join(filter(None, (self.algorithm, self.protocol)))
        return f"{self.op}{size}{redop}{root}{f' by {way}' if way else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureMismatch:
    """Ranks have met in one round of a communicator with different calls.

    `called` holds what each rank called, in order of ranks; `time_ns` is when the last of them entered.
    """

    job: str
    attempt: Int64
    time_ns: Int64
    communicator: str
    seq: Int64
    called: tuple[tuple[Int64, CallSignature], ...]

    def identity(self) -> str:
        """Names (job, attempt, communicator, seq, who is in it)."""
        return event_id(
            "mismatch", self.job, self.attempt, self.communicator, self.seq, [rank for rank, _ in self.called]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Stage one to stage two: nothing earlier than `time_ns` will come from this stream any more.

    Of a host's stream it holds once its word of `behind_ns` has been heard (`pacehound.model.flushes.Heartbeat`).
    """

    job: str
    attempt: Int64
    time_ns: Int64
    stream: str
    behind_ns: Int64 = 0

    def identity(self) -> str:
        """Names (job, attempt, stream, time)."""
        return event_id("watermark", self.job, self.attempt, self.stream, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSample:
    """One iteration of a job: when each rank ended it and how long it took.

    Attributes
    ----------
    step
        Optimizer steps of the job before this one; for recurring periods, periods since the first one seen.
    ranks, ends_ns
        World ranks that reported and when each ended the iteration; equal lengths.
    step_time_s
        Median over the ranks of the time since the iteration before; 0 for the first one.
    boundary
        What marks an iteration: `optimizer_step` (the instrument saw it) or `period` (the calls recur).
    planned
        A checkpoint or an evaluation fell into it, by the job's own markers.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    communicator: str
    step: Int64
    ranks: tuple[Int64, ...]
    ends_ns: tuple[Int64, ...]
    step_time_s: float
    boundary: Literal["optimizer_step", "period"]
    planned: str = ""

    def identity(self) -> str:
        """Names (job, attempt, communicator, step)."""
        return event_id("iteration", self.job, self.attempt, self.communicator, self.step)
