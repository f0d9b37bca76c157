"""What is known of a job at one moment, the same for all of its watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pacehound.model.events import Instant, IterationSample
from streams.rounds.clocks import ClockOffsets
from streams.rounds.divergence import LastIterations
from streams.rounds.round_columns import RoundColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A job at one moment of event time; watches read it, and keep nothing of it.

    Attributes
    ----------
    now_ns
        A fixed multiple of event time, or the end of an iteration.
    step
        The last optimizer step that all ranks have ended; `None` before the first.
    step_time_s
        Median of the last iterations; 0 before the first.
    recurring_s
        How long what recurs takes where nothing has counted as an iteration yet; 0 where it has recurred too seldom.
    n_iterations
        Seen so far.
    is_paused
        Some rank is in a checkpoint or an evaluation.
    finished_ns
        When the first rank ended the last iteration that all have ended; reports from before are out of date.
    is_prompt
        Time has come to the end of a long iteration, and somebody waits for what follows from it: what takes long and
        is not urgent has time until the next whole tick.
    is_host_late
        A host has not reported for a while and is not silent for good: its last report may be out of date.
    unseen
        Sentences about what could not be seen so far, put together when it is called.
    communicators
        Name and members of each.
    clocks
        How far those of the hosts are apart, as exactly as transfers are timed.
    rough_clocks
        The same where it is known to tenths of a second at least, put together when it is called.
    host_of, ranks_of
        The host of each rank, the ranks of each host.
    silent_since_ns
        The last word of hosts that have not been heard of for longer than is usual.
    given_up
        Hosts that nobody waits for any more.
    last_iterations
        The calls of this iteration and of the one before, put together when it is called.
    """

    now_ns: int
    step: int | None = None
    step_time_s: float = 0.0
    recurring_s: float = 0.0
    n_iterations: int = 0
    world_size: int = 0
    is_paused: bool = False
    finished_ns: int = 0
    is_prompt: bool = False
    is_host_late: bool = False
    unseen: Callable[[], tuple[str, ...]] = tuple
    communicators: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    clocks: ClockOffsets = field(default_factory=ClockOffsets)
    rough_clocks: Callable[[], ClockOffsets] = ClockOffsets
    host_of: Mapping[int, str] = field(default_factory=dict)
    ranks_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    silent_since_ns: Mapping[str, int] = field(default_factory=dict)
    given_up: AbstractSet[str] = frozenset()
    last_iterations: Callable[[], LastIterations | None] = lambda: None

    @property
    def at(self) -> Instant:
        """The moment as findings name it."""
        return Instant(step=self.step, time_ns=self.now_ns)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One finished iteration of a job.

    `rounds` are those of a stretch of time that holds it; two iterations of one stretch have the same columns.
    `with_it` are the samples of all iterations that are looked at in one step of time with it, in order: what is asked
    of each of them alike may be asked at once.
    """

    previous: IterationSample
    sample: IterationSample
    rounds: RoundColumns
    with_it: Sequence[IterationSample] = ()
