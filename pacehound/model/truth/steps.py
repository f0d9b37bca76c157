"""What really happened to the step times of one series: the answers that findings are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

TrueKind = Literal["slow", "hang", "exit", "intermittent", "change", "planned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueChange:
    """One thing that happened to a series, for steps `onset <= step < end`.

    Attributes
    ----------
    kind
        `slow`, `hang`, `exit`: a fault. `intermittent`: some of its steps are slow, the level is not. `change`:
        another level that is no fault (a speed-up). `planned`: another level that the job's own plan made.
    onset
        The first step that was affected.
    settled
        The first step with the whole change; `None` where it is `onset` (an abrupt change). An onset that is found
        anywhere between the two is right.
    end
        The first step that was not affected any more; `None`: it lasts to the end.
    magnitude
        Relative change of the step time against the level before: +0.20 is 20 % slower; `None` for a hang or exit.
    is_required
        A perfect observer finds it. Otherwise it is too weak or too unclear to ask for: finding it is no mistake, and
        neither is missing it.
    is_explained
        The log itself says why (its batch size changed), so that nobody has to be told that the job is slow.
    culprits, links
        World ranks, or pairs of them, that are to blame; empty where nobody is, or where it is not known.

    """

    kind: TrueKind
    onset: int
    settled: int | None = None
    end: int | None = None
    magnitude: float | None = None
    is_required: bool = True
    is_explained: bool = False
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(TrueKind):
            raise ValueError(f"a change at step {self.onset} is of kind {self.kind!r}; known are {get_args(TrueKind)}")
        if self.end is not None and self.end <= self.onset:
            raise ValueError(f"a change at step {self.onset} ends at step {self.end}; it must last a step at least")
        if self.settled is not None and self.settled < self.onset:
            raise ValueError(f"a change at step {self.onset} is whole at step {self.settled}, before it began")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTruth:
    """All that happened to one series, in order of onset; nothing else should be found.

    Attributes
    ----------
    first_step, last_step
        The steps that it speaks of, both included.

    """

    first_step: int
    last_step: int
    changes: tuple[TrueChange, ...] = ()

    def __post_init__(self) -> None:
        if self.last_step < self.first_step:
            raise ValueError(f"a series from step {self.first_step} to {self.last_step} has no steps")
        onsets = [change.onset for change in self.changes]
        if onsets != sorted(onsets):
            raise ValueError(f"true changes must stand in order of their onsets, got {onsets}")

    def end_of(self, change: TrueChange) -> int:
        """The first step after it: its end, or that of the series."""
        return self.last_step + 1 if change.end is None else min(change.end, self.last_step + 1)

    @property
    def n_slow(self) -> int:
        """How many slow changes a perfect observer finds."""
        return sum(change.kind == "slow" and change.is_required for change in self.changes)
