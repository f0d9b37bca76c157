"""What the GPUs of the ranks say of themselves: it strengthens a name, and never makes one."""

from __future__ import annotations

import statistics
from functools import partial

from pacehound.model.events import GpuReading, HostVitals
from pacehound.model.evidence.machines import Gpu
from streams.slow.thresholds import HOT_C, LOW_CLOCK

_HARMLESS = frozenset({"", "none", "gpu_idle", "applications_clocks_setting", "display_clock_setting"})


class GpuStates:
    """The last reading of each rank's GPU, and the errors that it had when it was first read."""

    def __init__(self) -> None:
        self._now: dict[int, GpuReading] = {}
        self._first_ecc: dict[str, int] = {}

    def on_vitals(self, vitals: HostVitals) -> None:
        """What a host has read of its GPUs."""
        for reading in vitals.gpus:
            self._first_ecc.setdefault(reading.uuid, reading.ecc_uncorrected)
            for rank in reading.ranks:
                self._now[rank] = reading

    def problems(self, rank: int) -> tuple[Gpu, ...]:
        """What is wrong with a rank's GPU; nothing where it is well or unknown."""
        gpu = self._now.get(rank)
        if gpu is None:
            return ()
        has = partial(Gpu, rank=rank, name=gpu.uuid or str(gpu.index))
        found = []
        reasons = [reason for reason in gpu.throttle_reasons if reason not in _HARMLESS]
        if reasons:
            found.append(has(problem="throttles", reasons=tuple(reasons)))
        clocks = [other.sm_clock_mhz for r, other in self._now.items() if r != rank and other.sm_clock_mhz]
        if gpu.sm_clock_mhz and clocks and gpu.sm_clock_mhz < LOW_CLOCK * statistics.median(clocks):
            found.append(has(problem="clock", value=gpu.sm_clock_mhz, others=float(statistics.median(clocks))))
        errors = gpu.ecc_uncorrected - self._first_ecc[gpu.uuid]
        if errors > 0:
            found.append(has(problem="errors", value=errors))
        if gpu.xid:
            found.append(has(problem="xid", value=gpu.xid))
        if found and gpu.temperature_c >= HOT_C:
            found.append(has(problem="hot", value=gpu.temperature_c))
        return tuple(found)
