"""What the store remembers of earlier runs of a job."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.identity import event_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """The level of the iteration time changed at `step` by `log_ratio` (0.18 is 20 % slower)."""

    step: int
    log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The changes of level of an earlier run of a job, and how far it got.

    Attributes
    ----------
    name
        What to call it: the path of its log, or its attempt.
    last_step
        The last step it did.
    changes
        In order of their steps.

    """

    name: str
    last_step: int
    changes: tuple[LevelChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """What earlier runs of a job did, as the store remembers it; said once, when a run begins."""

    job: str
    attempt: int
    time_ns: int
    runs: tuple[EarlierRun, ...]

    def identity(self) -> str:
        """Names (job, attempt): it is said once."""
        return event_id("history", self.job, self.attempt)
