"""What is to be said about the step times of one series: slow, intermittent, changed, or planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pacehound.events import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One row of step times.

    Attributes
    ----------
    step
        The last step it covers.
    n_steps
        How many steps it covers; `step_time_s` is their mean.
    time_ns
        When it ended; 0 if unknown.
    step_time_s
        Seconds per step.
    work
        What is known of the work of these steps (`global_batch_size` …).
    planned
        Names what was announced within them (`checkpoint`, `evaluation`), else empty.

    """

    step: int
    time_ns: int
    step_time_s: float
    n_steps: int = 1
    work: Mapping[str, float] = field(default_factory=dict)
    planned: str = ""


class StepWatch:
    """Follows one series of step times (being built)."""

    def __init__(
        self, *, job: str, attempt: int = 0, source: str = "", min_change: float = 0.10, small_changes: bool = True
    ) -> None:
        raise NotImplementedError

    def update(self, row: StepTime) -> list[Finding]:
        """Take the next row; versions of findings that it completes (same id, growing `version`)."""
        raise NotImplementedError

    @property
    def planned(self) -> tuple[Finding, ...]:
        """What was learnt to be planned: patterns, spells that recur, changes that earlier runs had too."""
        raise NotImplementedError
