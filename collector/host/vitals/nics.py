"""Network interfaces and InfiniBand ports: whether they are up, and their error counters, from /sys."""

from __future__ import annotations

from pathlib import Path

from collector.host.kernel_files import text_of
from pacehound.model.events import NicReading

SYS = Path("/sys")

_LOOPBACK = "lo"
# Pieces of the counters' names that mean that something went wrong. What merely counts traffic is left out: it would
# change with every look and say nothing.
_TROUBLE = (
    "err", "drop", "discard", "carrier_down", "fifo", "overrun", "link_downed", "recovery", "timeout", "out_of_",
    "retry", "nak", "seq_err",
)  # fmt: skip


class Nics:
    """The interfaces of one host.

    Those with hardware behind them, where there are any: a container host has hundreds of virtual ones. Counters tell
    how far they have grown since the first look, and nothing where they have not: what went wrong at boot, weeks ago,
    is no evidence.

    Parameters
    ----------
    sys
        Where /sys is.

    """

    def __init__(self, sys: Path = SYS) -> None:
        self._sys = sys
        self._first: dict[tuple[str, str], int] = {}

    def look(self) -> tuple[NicReading, ...]:
        """What they say now; nothing where /sys does not tell."""
        return tuple(
            NicReading(name=nic.name, state=nic.state, errors=self._grown(nic))
            for nic in (*self._interfaces(), *self._infiniband())
        )

    def _grown(self, nic: NicReading) -> dict[str, int]:
        grown = {}
        for counter, count in nic.errors.items():
            first = self._first.setdefault((nic.name, counter), count)
            if count < first:  # its driver began anew
                first = self._first[nic.name, counter] = 0
            if count > first:
                grown[counter] = count - first
        return grown

    def _interfaces(self) -> list[NicReading]:
        folders = [folder for folder in _folders(self._sys / "class" / "net") if folder.name != _LOOPBACK]
        with_hardware = [folder for folder in folders if (folder / "device").exists()]
        readings = []
        for folder in with_hardware or folders:
            errors = _counters(folder / "statistics")
            errors["carrier_down_count"] = _number(folder / "carrier_down_count")
            readings.append(NicReading(name=folder.name, state=text_of(folder / "operstate"), errors=errors))
        return readings

    def _infiniband(self) -> list[NicReading]:
        readings = []
        for device in _folders(self._sys / "class" / "infiniband"):
            for port in _folders(device / "ports"):
                state = text_of(port / "state").rpartition(":")[2].strip().lower()  # "4: ACTIVE"
                errors = {**_counters(port / "counters"), **_counters(port / "hw_counters")}
                readings.append(NicReading(name=f"{device.name}/{port.name}", state=state, errors=errors))
        return readings


def _counters(folder: Path) -> dict[str, int]:
    counters = {}
    for path in _folders(folder):
        if any(piece in path.name.lower() for piece in _TROUBLE):
            counters[path.name] = _number(path)
    return counters


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _number(path: Path) -> int:
    text = text_of(path)
    return int(text) if text.isdigit() else 0
