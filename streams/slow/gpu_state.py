"""What the GPUs of the ranks say of themselves: it strengthens a name, and never makes one."""

from __future__ import annotations

import statistics

from pacehound.model.events import GpuReading, HostVitals
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

    def problems(self, rank: int) -> tuple[str, ...]:
        """What is wrong with a rank's GPU, as sentences; nothing where it is well or unknown."""
        gpu = self._now.get(rank)
        if gpu is None:
            return ()
        name = f"GPU {gpu.uuid or gpu.index} of rank {rank}"
        sentences = []
        reasons = [reason for reason in gpu.throttle_reasons if reason not in _HARMLESS]
        if reasons:
            sentences.append(f"{name} throttles: {', '.join(reasons)}")
        clocks = [other.sm_clock_mhz for r, other in self._now.items() if r != rank and other.sm_clock_mhz]
        if gpu.sm_clock_mhz and clocks and gpu.sm_clock_mhz < LOW_CLOCK * statistics.median(clocks):
            sentences.append(f"{name} runs at {gpu.sm_clock_mhz} MHz, the others at {statistics.median(clocks):.0f}")
        errors = gpu.ecc_uncorrected - self._first_ecc[gpu.uuid]
        if errors > 0:
            sentences.append(f"{name} has {errors} new uncorrected memory errors")
        if gpu.xid:
            sentences.append(f"{name} has reported XID {gpu.xid}")
        if sentences and gpu.temperature_c >= HOT_C:
            sentences.append(f"{name} is at {gpu.temperature_c} C")
        return tuple(sentences)
