"""What is known of a job besides its iterations, gathered until somebody is held responsible for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pacehound.model.events import GroupOutlier, HostVitals, Progress, Topology
from pacehound.model.rounds import Rounds
from streams.slow.attribution.observations import Observations
from streams.slow.connections import ConnectionTracker
from streams.slow.gpu_state import GpuStates
from streams.slow.processors import ProcessorTracker
from streams.slow.rates import RateTracker
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

    def on_rounds(self, rounds: Rounds) -> None:
        """Closed rounds of one communicator."""
        self._transfers.add(rounds)
        self._rates.add(rounds)

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
            case _:
                pass

    def observed(
        self, moment: Moment, slow_rounds: Callable[[str], str], replaying: frozenset[int] = frozenset()
    ) -> Observations:
        """All of it, to be looked at when it is needed; `slow_rounds` says what CCL-D's detection has found."""
        outliers: Callable[[], list[GroupOutlier]] = partial(
            self._transfers.outliers, self._job, self._attempt, moment.now_ns
        )
        return Observations(
            communicators=moment.communicators,
            outliers=outliers,
            unseen=moment.unseen,
            clocks=moment.clocks,
            hosts=moment.host_of,
            slow_edges=self._rates.slow_edges,
            connections=self._connections.slow_links,
            gpu_problems=self._gpus.problems,
            shortages=self._processors.shortages,
            crowd=partial(self._processors.crowd, now_ns=moment.now_ns),
            slow_rounds=slow_rounds,
            replaying=replaying,
        )
