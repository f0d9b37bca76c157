"""What goes wrong in a simulated job, and what a perfect observer would say about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pacehound.model.events import Cause, FindingKind, Instant, StackState
from simulator.program import CommunicatorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCompute:
    """Ranks whose computation takes `factor` times as long, for steps `from_step <= step < to_step`."""

    ranks: tuple[int, ...]
    factor: float
    from_step: int
    to_step: int | None = None

    def __post_init__(self) -> None:
        if self.factor <= 1.0:
            raise ValueError(f"slow computation has factor {self.factor}; it must be more than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """A link between two ranks, both directions, with `bandwidth_factor` of its bandwidth left.

    With 0 nothing passes any more: everybody enters and nobody finishes.
    """

    link: tuple[int, int]
    bandwidth_factor: float
    from_step: int
    to_step: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.bandwidth_factor < 1.0:
            raise ValueError(f"a slow link keeps {self.bandwidth_factor} of its bandwidth; it must be in [0, 1)")
        if self.bandwidth_factor == 0.0 and self.to_step is not None:
            raise ValueError("a link that is down stops the job, so that there is no step at which it could return")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRank:
    """SIGSTOP in the middle of a step; SIGCONT after `resume_after_s`, or never."""

    rank: int
    step: int
    resume_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRank:
    """A process that leaves in the middle of a step, with an exit code or by a signal.

    With `peers_fail_after_s` the others find their connections closed and leave too, innocent, with exit code 1;
    without it they hang until the job is killed.
    """

    rank: int
    step: int
    exit_code: int | None = None
    signal: int | None = None
    peers_fail_after_s: float | None = None

    def __post_init__(self) -> None:
        if (self.exit_code is None) == (self.signal is None):
            raise ValueError("a process leaves with an exit code or by a signal: give exactly one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """All ranks save a checkpoint or evaluate after every `every_steps` steps, and say so with markers."""

    kind: Literal["checkpoint", "evaluation"]
    every_steps: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryNth:
    """Every `every_steps` steps some ranks (all where none is named) lose `extra_s`, as garbage collection does."""

    every_steps: int
    extra_s: float
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """One step in which some ranks lose `extra_s`: jitter, no finding."""

    ranks: tuple[int, ...]
    step: int
    extra_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPauses:
    """From a step on every rank loses `extra_s` with this probability in each step: the job is slow, and nobody is."""

    probability: float
    extra_s: float
    from_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLateness:
    """A rank whose last backward pass begins slowly and catches up within the pass.

    It comes late to the first gradient buckets and in time to the last: where gradients are exchanged while the
    backward pass computes, that costs nothing. `share` of a computation moves from the pass's end to its begin.
    """

    rank: int
    share: float
    from_step: int

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"a share of {self.share} of a computation cannot move; it must be in (0, 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckRanks:
    """Ranks that never begin a step: their processes are stopped, or run and wait for something that is no call.

    `doing` is what a look at their stacks would tell.
    """

    ranks: tuple[int, ...]
    step: int
    doing: StackState = "data_loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentHost:
    """A host whose agent says nothing any more from a step on; with `is_gone` its ranks are gone, too."""

    host: int
    step: int
    is_gone: bool


WrongKind = Literal["op", "larger", "smaller", "skip", "order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCall:
    """A rank that departs from the common order of calls in one step, which nobody gets out of."""

    rank: int
    step: int
    # `op`: another operation; `larger`, `smaller`: another size; `skip`: it leaves the call out and goes on; `order`:
    # it makes the last call of `kind` in this step only after the world's, which all others make behind it. (The
    # order matters only between groups that share more than one rank.)
    what: WrongKind
    kind: CommunicatorKind  # on which of its communicators
    nth: int = -1  # which of its calls (in a pipeline: sends) there in this step, counted from 0; -1 is the last one

    def __post_init__(self) -> None:
        if self.what == "order" and self.nth != -1:
            raise ValueError("the last call of a step changes places with the world's; no other one can")
        if self.kind == "pp" and self.what != "skip":
            raise ValueError(f"a send can be left out; {self.what!r} is for what a group does together")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadDevice:
    """A device that dies in the middle of a step.

    Its peers have completed the call in which it dies, and it has not. Its host does not notice, and goes on
    launching as far as it may run ahead.
    """

    rank: int
    step: int
    kind: CommunicatorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricHang:
    """A collective which all members enter and nobody leaves, with nothing to tell them apart.

    `group` is the place of the communicator among those of its kind.
    """

    kind: CommunicatorKind
    group: int
    step: int


Fault = (
    SlowCompute
    | SlowLink
    | StopRank
    | ExitRank
    | Pause
    | EveryNth
    | Spike
    | RandomPauses
    | HiddenLateness
    | StuckRanks
    | SilentHost
    | WrongCall
    | DeadDevice
    | SymmetricHang
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFinding:
    """One finding that a perfect observer would report."""

    # as in `pacehound.model.events.Finding`. A slow or dead link has no culprit rank; an exit has no cause, for the
    # state of the process says it all
    kind: FindingKind
    cause: Cause | None
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    victims: tuple[int, ...] = ()
    # the first step that was affected and the first that was not any more (`None`: it lasts). A finding of recurring
    # pauses begins with the first of them. Times are true times, without the clock offset of any host
    onset: Instant
    relief: Instant | None = None
    # mean step time while it lasted over mean step time of the quiet steps, minus 1; `None` for a hang or exit
    magnitude: float | None = None
    # step time beyond that of the quiet steps, summed while it lasted; 0 for a hang that never ends
    excess_s: float = 0.0
    pages: bool = True  # would wake somebody. Planned pauses and what recurs by itself would not


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What happened in a simulated job: nothing else should be found, and all of it should."""

    findings: tuple[ExpectedFinding, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Nobody should be woken."""
        return not any(finding.pages for finding in self.findings)
