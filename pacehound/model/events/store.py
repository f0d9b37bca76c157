"""What the store remembers of earlier runs, of a job and of the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """The level of the iteration time changed at `step` by `log_ratio` (0.18 is 20 % slower)."""

    step: Int64
    log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The changes of level of an earlier run of a job, how far it got, and its pace.

    Attributes
    ----------
    name
        What to call it: the path of its log, or its attempt.
    last_step
        The last step it did.
    changes
        In order of their steps.
    step_time_s
        Median of its iterations but the first ones and planned pauses; 0 where too few are known.
    world_size, hosts
        Its shape: how many ranks on how many hosts; 0 where it is not known.

    """

    name: str
    last_step: Int64
    changes: tuple[LevelChange, ...]
    step_time_s: float = 0.0
    world_size: Int64 = 0
    hosts: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualRounds:
    """How long rounds of one kind usually take in the fleet (CCL-D's T_base).

    Attributes
    ----------
    op, size_bytes
        The operation, and its size as `Rounds` says it.
    source
        Who saw the calls: sources differ in what they take for a start and an end.
    n_ranks, n_hosts
        Of the communicator.
    host_kind
        What its hosts are, all of them (`kind_of_host`).
    longest_s
        The mean over rounds of the longest duration among the ranks.

    """

    op: str
    size_bytes: Int64
    source: str
    n_ranks: Int64
    n_hosts: Int64
    host_kind: str
    longest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """What earlier runs of a job and of the fleet did, as the store remembers it; said once, when a run begins."""

    job: str
    attempt: Int64
    time_ns: Int64
    runs: tuple[EarlierRun, ...]
    usual: tuple[UsualRounds, ...] = ()

    def identity(self) -> str:
        """Names (job, attempt): it is said once."""
        return event_id("history", self.job, self.attempt)


WARM_UP_STEPS = 20
"""The first steps of a run compile and fill caches: they say nothing of its pace."""

PACE_STEPS = 100
"""So many others must be known to say what it is."""
