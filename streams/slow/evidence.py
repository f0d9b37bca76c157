"""What is known of a job besides its iterations, gathered until somebody is held responsible for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pacehound.model.events import GroupOutlier, HostEvidence, HostVitals, Progress, RankStack, Topology
from pacehound.model.evidence.machines import Stack
from streams.rounds.round_table import RoundTable
from streams.slow.attribution.observations import Observations
from streams.slow.connections import ConnectionTracker
from streams.slow.gpu_state import GpuStates
from streams.slow.processors import ProcessorTracker
from streams.slow.rates import RateTracker
from streams.slow.role import busy_in
from streams.slow.slow_rounds import SlowRounds
from streams.slow.transfer_times import TransferTracker
from streams.watching.moment import Moment
from streams.watching.watch import Heard


class SlowEvidence:
    """Transfers and rates of communicators, connections, GPUs and processors of hosts."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._transfers = TransferTracker()
        self._rates = RateTracker()
        self._connections = ConnectionTracker()
        self._gpus = GpuStates()
        self._processors = ProcessorTracker()
        self._stacks: dict[int, tuple[int, RankStack]] = {}  # by rank: when the last one was taken

    def on_rounds(self, arrived: RoundTable) -> None:
        """Closed rounds of all communicators."""
        self._transfers.add(arrived)
        self._rates.add(arrived)

    def hear(self, event: Heard) -> None:
        """Who is in a communicator, over which edges it sends, and what hosts have read of their machines."""
        match event:
            case Topology():
                self._rates.on_topology(event)
            case Progress():
                self._rates.on_progress(event)
            case HostVitals():
                self._connections.on_vitals(event)
                self._gpus.on_vitals(event)
                self._processors.on_vitals(event)
            case HostEvidence():
                self._stacks.update({stack.rank: (event.time_ns, stack) for stack in event.stacks})
            case _:
                pass

    def _busy_in(self, rank: int, since_ns: int) -> tuple[Stack, ...]:
        time_ns, stack = self._stacks.get(rank, (-1, None))
        return busy_in(stack) if stack is not None and time_ns >= since_ns else ()

    def observed(
        self, moment: Moment, slow_rounds: SlowRounds, replaying: frozenset[int] = frozenset()
    ) -> Observations:
        """All of it, to be looked at when it is needed; `slow_rounds` says what CCL-D's detection has found."""
        outliers: Callable[[], list[GroupOutlier]] = partial(
            self._transfers.outliers, self._job, self._attempt, moment.now_ns
        )
        return Observations(
            communicators=moment.communicators,
            outliers=outliers,
            unseen=moment.unseen(),
            clocks=moment.clocks,
            hosts=moment.host_of,
            slow_edges=self._rates.slow_edges,
            uneven_edges=self._rates.uneven_edges,
            connections=self._connections.slow_links,
            gpu_problems=self._gpus.problems,
            shortages=self._processors.shortages,
            crowd=partial(self._processors.crowd, now_ns=moment.now_ns),
            awaits_processors=partial(self._processors.are_awaited, now_ns=moment.now_ns),
            lacked=self._processors.lacked,
            slow_rounds=slow_rounds.of_communicator,
            busy_in=self._busy_in,
            rank_came_late=slow_rounds.rank_came_late,
            replaying=replaying,
        )
