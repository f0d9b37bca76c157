"""What is known of a job besides its iterations, when somebody is held responsible for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pacehound.model.events import GroupOutlier
from pacehound.model.evidence.machines import Crowded, Gpu, LacksProcessor, Stack
from pacehound.model.evidence.transfers import SlowRoundsOfKind
from streams.rounds.clocks import ClockOffsets
from streams.rounds.round_columns import TransferKey
from streams.slow.connections import SlowConnection
from streams.slow.rates import SlowEdges


class CrowdOf(Protocol):
    """As `ProcessorTracker.crowd`, at one moment."""

    def __call__(
        self, ranks: Sequence[int], since_ns: int, min_share: float, *, is_apart: bool
    ) -> tuple[Crowded, ...] | None:
        """The host where no rank has the processors it wants; `None` while that is to be read."""
        ...


def _no_crowd(ranks: Sequence[int], since_ns: int, min_share: float, *, is_apart: bool) -> tuple[Crowded, ...] | None:
    return ()


@dataclass(frozen=True, slots=True)
class Observations:
    """What is known of the job besides its iterations."""

    communicators: Mapping[str, tuple[str, tuple[int, ...]]]  # name and members of each
    outliers: Callable[[], list[GroupOutlier]]  # compares the groups' transfers when it is called
    unseen: tuple[str, ...] = ()  # what could not be seen so far
    clocks: ClockOffsets = field(default_factory=ClockOffsets)  # how far the hosts' clocks are apart; none: one clock
    hosts: Mapping[int, str] = field(default_factory=dict)  # host of each rank, where known
    # what the rates say of a communicator since a time
    slow_edges: Callable[[str, int], SlowEdges | None] = lambda _communicator, _since_ns: None
    # what they say of a communicator where there is no time before: held against those of others like it
    uneven_edges: Callable[[str, Sequence[str]], SlowEdges | None] = lambda _communicator, _alike: None
    # what the kernel says of the connections among some ranks since a time
    connections: Callable[[Sequence[int], int], list[SlowConnection]] = lambda _ranks, _since_ns: []
    gpu_problems: Callable[[int], tuple[Gpu, ...]] = lambda _rank: ()  # what is wrong with a rank's GPU
    # which of some ranks get less of their host's processors since a time, by at least so much of each second
    shortages: Callable[[Sequence[int], int, float], dict[int, LacksProcessor]] = lambda _ranks, _since_ns, _share: {}
    # whether what would tell that of some ranks since a time is still to come
    awaits_processors: Callable[[Sequence[int], int], bool] = lambda _ranks, _since_ns: False
    # for what share of each second some ranks have lacked a processor since the start; `None`: it is yet to be read
    lacked: Callable[[Sequence[int]], dict[int, float] | None] = lambda _ranks: {}
    # a host where no rank has the processors it wants since a time; `None` while it is to be read
    crowd: CrowdOf = _no_crowd
    slow_rounds: Callable[[str], SlowRoundsOfKind | None] = lambda _communicator: None  # what CCL-D's detection says
    busy_in: Callable[[int, int], tuple[Stack, ...]] = lambda _rank, _since_ns: ()  # what its stack since a time shows
    rank_came_late: Callable[[str], bool] = lambda _communicator: False  # whether it says so of one
    # ranks in communicators whose calls were captured into graphs: they wait for each other in replays, unseen
    replaying: frozenset[int] = frozenset()


def members_of(key: TransferKey, observed: Observations) -> tuple[int, ...]:
    """The ranks of a communicator or pair; none where they are not known."""
    return key if isinstance(key, tuple) else observed.communicators.get(key, (key, ()))[1]
