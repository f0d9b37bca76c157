"""The ranks of a job that goes on in simulated time: it can be slow, stand still, and divide its work anew.

`simulate` makes a whole job of which nothing can be changed any more; this one makes step after step, and what somebody
orders meanwhile (simulator/obedient_agents.py) changes the next one. All ranks go in step, as a job does whose
iterations end with an all_reduce.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

ROUNDS_PER_STEP = 4
"""Collectives on the communicator of all ranks in each step."""


@dataclass(slots=True, kw_only=True)
class RunningJob:
    """A job of some ranks.

    Attributes
    ----------
    slowness
        By rank: how many times as long as a healthy one it takes for the same work; may be changed at any time.
    micro_batches
        What each computes in a step, as long as no order says otherwise.
    step_s
        A step of a healthy job with that distribution.
    counts
        Micro-batches of each rank now.
    launched
        Rounds so far.
    stops_after
        The round after which all ranks stand still; `None`: they go on.
    at_step
        Asked before each step.

    >>> job = RunningJob(slowness=[1.0, 2.0], micro_batches=8, step_s=0.1)
    >>> job.iteration_s
    0.2
    >>> job.advance(1_000_000_000)
    >>> job.step
    5

    """

    slowness: list[float]
    micro_batches: int = 8
    step_s: float = 0.1
    counts: list[int] = field(init=False)
    launched: int = 0
    stops_after: int | None = None
    at_step: Callable[[int], None] = lambda step: None
    _spare_ns: int = 0

    def __post_init__(self) -> None:
        self.counts = [self.micro_batches] * len(self.slowness)

    @property
    def iteration_s(self) -> float:
        """How long a step takes now: as long as its slowest rank."""
        longest = max(count * slowness for count, slowness in zip(self.counts, self.slowness, strict=True))
        return self.step_s * longest / self.micro_batches

    @property
    def step(self) -> int:
        """The one that goes on."""
        return self.launched // ROUNDS_PER_STEP

    @property
    def is_still(self) -> bool:
        """Whether all ranks stand at the round after which they were to stop."""
        return self.stops_after is not None and self.launched > self.stops_after

    def advance(self, for_ns: int) -> None:
        """Let time pass; what is left of it when all stand still is lost."""
        self._spare_ns += for_ns
        while not self.is_still and self._spare_ns >= (round_ns := round(self.iteration_s * 1e9 / ROUNDS_PER_STEP)):
            self._spare_ns -= round_ns
            self.launched += 1
            if self.launched % ROUNDS_PER_STEP == 0:
                self.at_step(self.step)
        if self.is_still:
            self._spare_ns = 0
