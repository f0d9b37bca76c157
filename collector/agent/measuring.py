"""Processes beside this host's ranks that measure for a validation (`actuators.validation.process`), and their end.

Each runs on the processors and in the control group of its rank, so that it gets what its rank gets. It waits at a
gate until the ranks are held. All of them end with this agent, with the order for it, or by themselves when their time
is up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from collector.host.processes import variables_of
from collector.host.rank_process import RankProcess
from pacehound.model.events.control import JudgedRanks
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.model.orders import Prepare

PROGRAM = "actuators.validation.process"
_ROOT = Path(__file__).resolve().parents[2]
_CGROUPS = Path("/sys/fs/cgroup")
_RANKS_OWN = ("CUDA_VISIBLE", "NCCL_", "GLOO_", "LD_LIBRARY_PATH")
_LAST_LINES = 3
_MOST_LOG_BYTES = 4_096

LEASE_NS = 15_000_000_000
"""The controller says every two seconds that it lives; processes that nobody waits for end, and make room. Nobody is
held by it (collector/agent/holding.py), so that it may be longer than a host needs whose processors are all taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringNow:
    """What changed since the last look; of which validation."""

    trap: int
    ready: tuple[int, ...] = ()
    judged: tuple[JudgedRanks, ...] = ()
    failed: str = ""


class _Seat(NamedTuple):
    """Who is measured: by which number it goes and in which place it measures; `pid` where it is a rank's."""

    rank: int
    place: int
    pid: int | None = None


class _Beside(NamedTuple):
    """A process, and the files that take members of its rank's groups."""

    process: subprocess.Popen[bytes]
    groups: tuple[Path, ...]


class Measuring:
    """Those of one validation at a time.

    Parameters
    ----------
    folder
        Of their files, made anew for each validation.
    host
        By which name this host goes.

    Attributes
    ----------
    trap
        The validation that is under way; 0: none.

    """

    def __init__(self, folder: Path, host: str) -> None:
        self._folder, self._host = folder, host
        self._processes: dict[int, _Beside] = {}
        self._ready: tuple[int, ...] = ()
        self._heard_ns = 0
        self.trap = 0

    def prepare(self, what: Prepare, processes: Iterable[RankProcess], now_ns: int) -> str:
        """Start them, or hear that they are still wanted; why it cannot be, else nothing."""
        if self.trap not in (0, what.trap):
            return "another validation is under way here"
        self._heard_ns = now_ns
        if self.trap:
            return ""
        self._clear()
        try:
            self._folder.mkdir(mode=0o700)
            address, _, port = what.rendezvous.rpartition(":")
            for local_rank, seat in enumerate(self._seats(what, processes)):
                environ = _environment(seat.pid) | {
                    "RANK": str(seat.place),
                    "LOCAL_RANK": str(local_rank),
                    "WORLD_SIZE": str(what.world_size),
                    "MASTER_ADDR": address.strip("[]"),
                    "MASTER_PORT": port,
                    "PACEHOUND_HOST_NAME": self._host,
                    "PACEHOUND_RANK": str(seat.rank),
                }
                self._start(seat, environ)
        except OSError as error:
            self.dismiss()
            return f"no process can be started beside the ranks: {error}"
        self.trap = what.trap
        return ""

    def go(self, trap: int, within_ms: int) -> str:
        """Open the gate: from now on each is one of its rank's group, and has no more of a processor than the rank.

        On the gate stands within how many milliseconds they are to have measured; 0: as long as they take.
        """
        if not self.trap or trap != self.trap:
            return "there is no such validation here"
        for beside in self._processes.values():
            for members in beside.groups:
                with contextlib.suppress(OSError):
                    members.write_text(str(beside.process.pid))
        scratch = self._folder / "gate.new"
        scratch.write_text(str(within_ms))
        scratch.replace(self._folder / "gate")
        return ""

    def look(self, now_ns: int) -> MeasuringNow | None:
        """What is new, else nothing."""
        trap = self.trap
        if not trap:
            return None
        if now_ns - self._heard_ns > LEASE_NS:
            self.dismiss()
            return MeasuringNow(trap=trap, failed="the controller says nothing more")
        statuses = {rank: beside.process.poll() for rank, beside in self._processes.items()}
        ended = [(rank, status) for rank, status in statuses.items() if status not in (None, 0)]
        if ended:
            rank, status = ended[0]
            said = self._last_words(rank)
            self.dismiss()
            return MeasuringNow(trap=trap, failed=f"the process beside rank {rank} ended with {status}: {said}")
        ready = tuple(rank for rank in self._processes if (self._folder / f"{rank}.ready").exists())
        answer = self._folder / "judged.json"
        if answer.exists():
            try:
                found = msgspec.json.decode(answer.read_bytes(), type=tuple[JudgedRanks, ...])
            except (OSError, *UNREADABLE_JSON) as error:
                self.dismiss()
                return MeasuringNow(trap=trap, failed=f"what was measured cannot be read: {error}")
            self.dismiss()
            return MeasuringNow(trap=trap, judged=found)
        if ready != self._ready:
            self._ready = ready
            return MeasuringNow(trap=trap, ready=ready)
        return None

    def dismiss(self) -> None:
        """End all of them."""
        for beside in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                beside.process.kill()
        for beside in self._processes.values():
            beside.process.wait()
        self._processes, self._ready, self.trap = {}, (), 0
        self._clear()

    def _seats(self, what: Prepare, processes: Iterable[RankProcess]) -> list[_Seat]:
        """Of this host."""
        if what.hosts:
            first = what.hosts.index(self._host) * what.per_host if self._host in what.hosts else what.world_size
            return [_Seat(place, place) for place in range(first, min(first + what.per_host, what.world_size))]
        places = {rank: place for place, rank in enumerate(what.ranks)}
        return [
            _Seat(one.rank, places.get(one.rank, one.rank), one.pid)
            for one in sorted(processes, key=lambda one: one.rank)
            if not places or one.rank in places
        ]

    def _start(self, seat: _Seat, environ: dict[str, str]) -> None:
        with (self._folder / f"{seat.rank}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, "--beside", str(self._folder)],
                env=environ,
                cwd="/",
                stdin=subprocess.PIPE,  # closed with this agent: then they end
                stdout=log,
                stderr=log,
            )
        # To load its libraries in the group would take from the rank what little it may have.
        self._processes[seat.rank] = _Beside(process, tuple(_groups_of(seat.pid)) if seat.pid is not None else ())
        if seat.pid is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(process.pid, os.sched_getaffinity(seat.pid))

    def _last_words(self, rank: int) -> str:
        try:
            text = (self._folder / f"{rank}.log").read_bytes()[-_MOST_LOG_BYTES:].decode(errors="replace")
        except OSError:
            return "nothing"
        return " | ".join(text.strip().splitlines()[-_LAST_LINES:]) or "nothing"

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment(pid: int | None) -> dict[str, str]:
    """The agent's own, with what says which devices and network the rank has."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PACEHOUND_")}
    for key, value in (variables_of(pid) if pid is not None else {}).items():
        if key.startswith(_RANKS_OWN) and not key.startswith("NCCL_PROFILER"):
            environ[key] = value
    environ.pop("LD_PRELOAD", None)
    return environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}


def _groups_of(pid: int) -> list[Path]:
    """The files that take members of a process's groups of processors (v1: `cpu` and `cpuset`; v2: the one)."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = [one for one in controllers.split(",") if one in ("", "cpu", "cpuset")]
        found += [_CGROUPS / name / path.lstrip("/") / "cgroup.procs" for name in names]
    return found
