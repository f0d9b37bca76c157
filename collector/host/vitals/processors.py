"""How the ranks get the processors of their host, from what the scheduler counts of their threads.

Other work on a host is one of the three causes of fail-slows that Falcon found in production (section 3): the rank
computes, or moves its data, for longer, and nothing in its calls tells why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from collector.host.kernel_files import read_text, text_of
from collector.host.processes import PROC, TICK_NS
from collector.host.rank_process import RankProcess
from collector.host.vitals.control_groups import control_groups
from collector.host.vitals.nics import SYS
from pacehound.model.events import HostProcessors, RankProcessors

_US = 1_000

# proc_stat(5): user nice system idle iowait irq softirq steal. The guests' time is in user's already.
_IDLE, _IOWAIT, _STEAL, _COLUMNS = 3, 4, 7, 8

SWEEP_EVERY = 12
"""Looks between two at threads that do nothing: a minute."""

_THROTTLED_V2 = re.compile(r"^throttled_usec (\d+)$", re.MULTILINE)
_THROTTLED_V1 = re.compile(r"^throttled_time (\d+)$", re.MULTILINE)


def are_waits_counted(proc: Path = PROC) -> bool:
    """Whether this kernel counts how long threads run and wait for a processor."""
    own = _Threads(os.getpid())
    own.look(proc / "self" / "task")
    return own.ran_ns > 0


class Processors:
    """The processors of one host, and what its ranks get of them; what the kernel does not tell is left out.

    Parameters
    ----------
    proc, sys
        Where /proc and /sys are.

    """

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc = proc
        self._groups = sys / "fs" / "cgroup"
        self._first_ticks: tuple[int, int] | None = None
        self._threads: dict[RankProcess, _Threads] = {}
        self._quotas: dict[RankProcess, _Quotas] = {}

    def host(self) -> HostProcessors | None:
        """All of them together."""
        try:
            lines = read_text(self._proc / "stat").splitlines()
            ticks = [int(word) for word in lines[0].split()[1:]]
        except (OSError, ValueError, IndexError):
            return None
        if len(ticks) < _COLUMNS:
            return None
        busy = sum(ticks[:_COLUMNS]) - ticks[_IDLE] - ticks[_IOWAIT] - ticks[_STEAL]
        first_busy, first_stolen = self._first_ticks = self._first_ticks or (busy, ticks[_STEAL])
        return HostProcessors(
            count=sum(1 for line in lines if re.match(r"cpu\d", line)),
            busy_ns=max(busy - first_busy, 0) * TICK_NS,
            stolen_ns=max(ticks[_STEAL] - first_stolen, 0) * TICK_NS,
        )

    def look(self, ranks: Sequence[RankProcess]) -> tuple[RankProcessors, ...]:
        """What each rank has got of them so far."""
        self._threads = {process: self._threads.get(process) or _Threads(process.pid) for process in ranks}
        self._quotas = {process: self._quotas.get(process) or self._quotas_of(process) for process in ranks}
        readings = []
        for process, threads in self._threads.items():
            threads.look(self._proc / str(process.pid) / "task")
            if threads.ran_ns:  # a kernel that keeps no such count shows zeros
                readings.append(
                    RankProcessors(
                        rank=process.rank,
                        pid=process.pid,
                        ran_ns=threads.ran_ns,
                        waited_ns=threads.waited_ns,
                        throttled_ns=self._quotas[process].throttled_ns(),
                    )
                )
        return tuple(readings)

    def _quotas_of(self, process: RankProcess) -> _Quotas:
        folders = control_groups(process.pid, "cpu", self._proc, self._groups)
        return _Quotas(folders[0] if folders else self._groups, self._groups)


class _Threads:
    """What the threads of one process have run and waited; those that left, as far as they were seen.

    A rank has hundreds of threads, of which few ever run: one that did nothing between two sweeps is not read until the
    next one. What it does meanwhile is counted then.
    """

    def __init__(self, pid: int) -> None:
        self.ran_ns = 0
        self.waited_ns = 0
        self._until_sweep = 1
        self._gap = pid % SWEEP_EVERY  # and then not those of all ranks at the same look
        self._before: dict[str, tuple[int, int]] = {}
        self._at_sweep: dict[str, tuple[int, int]] = {}
        self._idle: frozenset[str] = frozenset()

    def look(self, tasks: Path) -> None:
        try:
            names = os.listdir(tasks)
        except OSError:
            return
        is_sweep = self._until_sweep == 0
        if is_sweep:
            self._until_sweep, self._gap = self._gap, SWEEP_EVERY - 1
        else:
            self._until_sweep -= 1
        now: dict[str, tuple[int, int]] = {}
        for name in names:
            before = self._before.get(name, (0, 0))
            if name in self._idle and not is_sweep:
                now[name] = before
                continue
            try:
                with open(tasks / name / "schedstat", "rb", buffering=0) as file:
                    ran, waited = file.read().split()[:2]
                now[name] = int(ran), int(waited)
            except (OSError, ValueError):
                continue
            self.ran_ns += max(now[name][0] - before[0], 0)
            self.waited_ns += max(now[name][1] - before[1], 0)
        if is_sweep or not self._at_sweep:
            self._idle = frozenset(name for name, counts in now.items() if counts == self._at_sweep.get(name))
            self._at_sweep = now
        self._before = now


class _Quotas:
    """How long a control group, or one that it lies in (the most of them), was out of quota since the first look."""

    def __init__(self, group: Path, root: Path) -> None:
        paths = [folder / "cpu.stat" for folder in (group, *group.parents) if folder.is_relative_to(root)]
        self._first_ns = {path: ns for path in paths if (ns := _throttled_ns(path)) is not None}

    def throttled_ns(self) -> int:
        grown = [(_throttled_ns(path) or 0) - first_ns for path, first_ns in self._first_ns.items()]
        return max((*grown, 0))


def _throttled_ns(path: Path) -> int | None:
    text = text_of(path)
    if match := _THROTTLED_V2.search(text):
        return int(match[1]) * _US
    match = _THROTTLED_V1.search(text)
    return int(match[1]) if match else None
