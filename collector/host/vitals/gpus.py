"""GPUs, through NVML where its Python binding (nvidia-ml-py) and a driver are there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collector.host.rank_process import RankProcess
from pacehound.model.events import GpuReading

# nvml.h, nvmlClocksEventReason…: bits of one number. An idle GPU and a clock that somebody asked for are no trouble,
# but whoever reads should see them: a rank whose GPU idles waits.
REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip

_PCI = re.compile(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)")


class Gpus:
    """The GPUs of one host.

    What a GPU does not answer counts as 0. A driver that is not there at the first look is not asked again; one that is
    there is let go of with the process.

    Parameters
    ----------
    nvml
        The module `pynvml`; `None`: imported here if it is installed.

    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml if nvml is not None else _import()
        self._is_open = False

    def look(self, ranks: Sequence[RankProcess], xids: Mapping[str, int]) -> tuple[GpuReading, ...]:
        """What they say now.

        Parameters
        ----------
        ranks
            Whose processes to look for on each GPU. In a container NVML may know them by other pids; then no GPU has
            ranks.
        xids
            The last XID error by PCI address, as the kernel's log wrote it.

        """
        if self._nvml is None:
            return ()
        try:
            if not self._is_open:
                self._nvml.nvmlInit()
                self._is_open = True
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError:
            self._nvml = None
            return ()
        rank_of = {process.pid: process.rank for process in ranks}
        by_pci = {pci_key(address): xid for address, xid in xids.items()}
        readings = []
        for index in range(count):
            handle = self._ask("", self._nvml.nvmlDeviceGetHandleByIndex, index)
            if handle != "":
                readings.append(self._reading(handle, index, rank_of, by_pci))
        return tuple(readings)

    def _reading(self, gpu: Any, index: int, rank_of: Mapping[int, int], xids: Mapping[str, int]) -> GpuReading:
        nvml, ask = self._nvml, self._ask
        # The same answer under its newer and its older name.
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        bits = ask(0, reasons, gpu)
        running = ask((), nvml.nvmlDeviceGetComputeRunningProcesses, gpu)
        pci = ask(None, nvml.nvmlDeviceGetPciInfo, gpu)
        return GpuReading(
            uuid=_text(ask("", nvml.nvmlDeviceGetUUID, gpu)),
            index=index,
            model=_text(ask("", nvml.nvmlDeviceGetName, gpu)),
            ranks=tuple(sorted({rank_of[process.pid] for process in running if process.pid in rank_of})),
            throttle_reasons=tuple(name for bit, name in enumerate(REASONS) if bits >> bit & 1),
            sm_clock_mhz=ask(0, nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            max_sm_clock_mhz=ask(0, nvml.nvmlDeviceGetMaxClockInfo, gpu, nvml.NVML_CLOCK_SM),
            temperature_c=ask(0, nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            power_w=ask(0, nvml.nvmlDeviceGetPowerUsage, gpu) / 1000.0,
            ecc_uncorrected=ask(
                0,
                nvml.nvmlDeviceGetTotalEccErrors,
                gpu,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            xid=xids.get(pci_key(_text(pci.busId)), 0) if pci is not None else 0,
        )

    def _ask(self, otherwise: Any, question: Callable[..., Any], *about: Any) -> Any:
        """One answer, or `otherwise`: a GPU that has fallen off the bus answers nothing any more."""
        try:
            return question(*about)
        except self._nvml.NVMLError:
            return otherwise


def pci_key(address: str) -> str:
    """A PCI address without its function, whichever of two widths its domain is written in.

    >>> pci_key("00000000:C3:00.0") == pci_key("0000:c3:00")
    True
    """
    match = _PCI.search(address.lower())
    return ":".join(str(int(part, 16)) for part in match.groups()) if match else ""


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _import() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None
