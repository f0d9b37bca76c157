"""What an agent sees beside calls and processes: its GPUs, and what its ranks do instead of going on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pacehound.model.events import GpuReading, HostEvidence, HostVitals, RankStack, StackState
from simulator.faults import DeadDevice, SlowCompute, StuckRanks
from simulator.observed import Observed
from simulator.spec import STACKS_AFTER_S, JobSpec
from simulator.timing import Timeline, is_active

FIRST_PID = 10_000
VITALS_EVERY_NS = 2_000_000_000
XID_OFF_THE_BUS = 79

_FRAMES: dict[StackState, tuple[str, ...]] = {
    "in_call": ("synchronize (torch/cuda/streams.py:105)", "train_step (train.py:210)", "main (train.py:318)"),
    "data_loading": (
        "_try_get_data (torch/utils/data/dataloader.py:1243)",
        "__next__ (torch/utils/data/dataloader.py:701)",
        "main (train.py:301)",
    ),
    "lock": ("acquire (threading.py:1169)", "wait (threading.py:327)", "save_metrics (train.py:98)"),
    "storage": ("read (io.py:55)", "load_shard (dataset.py:77)", "main (train.py:301)"),
    "stopped": (),
    "unknown": ("wait (extension.so)", "train_step (train.py:210)", "main (train.py:318)"),
}
_LIBRARIES = {"ep": "DeepEP", "tp": "custom all-reduce"}


class HostMonitor:
    """The readings and stacks of one host.

    `clock_ns` turns true seconds since the start of the job into the time on the clock of the host.
    """

    def __init__(
        self,
        spec: JobSpec,
        timeline: Timeline,
        observed: Observed,
        host: str,
        ranks: tuple[int, ...],
        clock_ns: Callable[[float], int],
    ) -> None:
        self._spec = spec
        self._timeline = timeline
        self._observed = observed
        self._host = host
        self._ranks = ranks
        self._clock_ns = clock_ns
        is_stuck = np.isfinite(observed.stuck_s) and spec.has_stacks
        self._stuck_ns = clock_ns(observed.stuck_s) if np.isfinite(observed.stuck_s) else None
        self._looks_ns = clock_ns(observed.stuck_s + STACKS_AFTER_S) if is_stuck else None
        self._next_ns = 0

    def second(self, now_ns: int) -> Iterator[HostVitals | HostEvidence]:
        """What is sent at the end of a second."""
        if self._spec.has_vitals and now_ns >= self._next_ns:
            self._next_ns = now_ns + VITALS_EVERY_NS
            yield HostVitals(
                job=self._spec.job,
                attempt=self._spec.attempt,
                time_ns=now_ns,
                host=self._host,
                gpus=tuple(self._gpu(index, rank, now_ns) for index, rank in enumerate(self._ranks)),
            )
        if self._looks_ns is not None and now_ns >= self._looks_ns:
            self._looks_ns = None
            yield HostEvidence(
                job=self._spec.job,
                attempt=self._spec.attempt,
                time_ns=now_ns,
                host=self._host,
                reason=f"nothing has moved for {STACKS_AFTER_S:.0f} s",
                stacks=tuple(self._stack(rank) for rank in self._ranks),
                kernel_log=tuple(
                    f"NVRM: Xid (PCI:0000:{index:02x}:00): {XID_OFF_THE_BUS}, GPU has fallen off the bus."
                    for index, rank in enumerate(self._ranks)
                    if self._spec.has_vitals and self._is_dead(rank)
                ),
            )

    def _gpu(self, index: int, rank: int, now_ns: int) -> GpuReading:
        is_slow = any(
            isinstance(fault, SlowCompute) and rank in fault.ranks and self._is_going_on(fault, now_ns)
            for fault in self._spec.faults
        )
        is_dead = self._is_dead(rank) and self._stuck_ns is not None and now_ns >= self._stuck_ns
        return GpuReading(
            uuid=f"GPU-{rank:08x}",
            index=index,
            ranks=(rank,),
            throttle_reasons=("hw_thermal_slowdown",) if is_slow else (),
            sm_clock_mhz=900 if is_slow else 1_755,
            max_sm_clock_mhz=1_980,
            temperature_c=91 if is_slow else 62,
            power_w=310.0 if is_slow else 620.0,
            xid=XID_OFF_THE_BUS if is_dead else 0,
        )

    def _is_going_on(self, fault: SlowCompute, now_ns: int) -> bool:
        begun = np.searchsorted(self._timeline.begin_s[:, self._ranks[0]], self._seconds(now_ns), side="right")
        return bool(begun > 0) and is_active(fault, int(begun) - 1)

    def _seconds(self, now_ns: int) -> float:
        return (now_ns - self._clock_ns(0.0)) / 1e9

    def _is_dead(self, rank: int) -> bool:
        return any(isinstance(fault, DeadDevice) and fault.rank == rank for fault in self._spec.faults)

    def _stack(self, rank: int) -> RankStack:
        unseen = tuple(_LIBRARIES[kind] for kind in self._spec.source.unseen if kind in _LIBRARIES)
        # Where a library that nobody sees is loaded, its waiting ranks look like this; nothing tells a call from work.
        doing: StackState = "unknown" if unseen else "in_call"
        for fault in self._spec.faults:
            if isinstance(fault, StuckRanks) and rank in fault.ranks:
                doing = fault.doing
        if any(change.rank == rank and change.state == "stopped" for change in self._observed.changes):
            doing = "stopped"
        return RankStack(
            rank=rank,
            pid=FIRST_PID + rank,
            taken_by="proc" if doing == "stopped" else "py-spy",
            frames=_FRAMES.get(doing, ()),
            doing=doing,
            libraries=unseen,
        )
