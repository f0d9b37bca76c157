"""Whether a training process runs, is stopped, or has left, and how: from /proc and from pidfds.

The exit status of a process that is not our child can be learnt in two ways: from field 52 of `/proc/<pid>/stat`
while it is a zombie, and, on Linux 6.15 and later, from a pidfd that was opened before it was reaped. Where neither
works the status stays unknown, and what the process itself wrote before it left (PH_EXIT) has to do. A launcher that
looks at its ranks ten times a second (torchrun) leaves a zombie for 50 ms on average, so that whoever wants to see it
on an older kernel has to look when the pidfd says that the process has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
from dataclasses import dataclass
from pathlib import Path

from collector.host.kernel_files import read_text
from pacehound.model.events import RunState

PROC = Path("/proc")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""In which the kernel counts when processes have begun, and what processors do."""

# linux/pidfd.h: _IOWR(0xFF, 11, struct pidfd_info) with the first published size of 64 bytes.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_BYTES = 64
_PIDFD_INFO_EXIT = 1 << 3
_EXIT_STATUS_OFFSET = 60

_STATE, _PARENT, _START_TICKS, _EXIT_STATUS = 0, 1, 19, 49  # fields 3, 4, 22 and 52, counted after the command's ')'
_RUN_STATES: dict[str, RunState] = {"T": "stopped", "t": "stopped", "Z": "exited", "X": "exited", "x": "exited"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What /proc says about one process."""

    state: RunState
    parent: int
    start_ticks: int
    wait_status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One look at one process."""

    state: RunState
    exit_code: int | None = None
    signal: int | None = None


def parse_stat(text: str) -> ProcessStat:
    """The fields of `/proc/<pid>/stat` that matter here.

    The command may hold spaces and brackets, so fields count from the last `)`.

    Raises
    ------
    ValueError
        The text is no such line.

    """
    _, bracket, rest = text.rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) <= _EXIT_STATUS:
        raise ValueError(f"not a line of /proc/<pid>/stat: {text[:80]!r}")
    return ProcessStat(
        state=_RUN_STATES.get(fields[_STATE], "running"),
        parent=int(fields[_PARENT]),
        start_ticks=int(fields[_START_TICKS]),
        wait_status=int(fields[_EXIT_STATUS]),
    )


def read_stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """What /proc says about `pid`, `None` where there is no such process."""
    try:
        return parse_stat(read_text(proc / str(pid) / "stat"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def pid_here(own_pid: int, start_ticks: int, proc: Path = PROC) -> int | None:
    """The number that a process has here which knows itself as `own_pid`; `None` where there is no such process.

    They differ where the command of a run has begun a container whose processes are numbered anew.
    """
    with contextlib.suppress(OSError, ValueError):
        stat = read_stat(own_pid, proc)
        if stat is not None and stat.start_ticks == start_ticks:
            return own_pid
    return next((pid for pid in pids(proc) if _is_in_a_container(pid, own_pid, start_ticks, proc)), None)


def pids(proc: Path = PROC) -> list[int]:
    """Of all processes here."""
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def _is_in_a_container(pid: int, own_pid: int, start_ticks: int, proc: Path) -> bool:
    try:
        stat = read_stat(pid, proc)
        if stat is None or stat.start_ticks != start_ticks:
            return False
        lines = read_text(proc / str(pid) / "status").splitlines()
    except (OSError, ValueError):
        return False
    # From the outermost namespace that we see to its own.
    numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == str(own_pid)


def address_space(pid: int, proc: Path = PROC) -> int | None:
    """How many pages a process maps, used or not; `None` where that cannot be read."""
    try:
        return int(read_text(proc / str(pid) / "statm").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def environment_of(pid: int, proc: Path = PROC) -> list[tuple[bytes, bytes]]:
    """The variables with which a process was begun, in order; none where it is somebody else's, or gone."""
    try:
        entries = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
    pairs = (entry.partition(b"=") for entry in entries if entry)
    return [(name, value) for name, _, value in pairs]


def variables_of(pid: int, proc: Path = PROC) -> dict[str, str]:
    """The same as text; of two of one name the last."""
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment_of(pid, proc)}


def sighting_of_exit(wait_status: int) -> Sighting:
    """How a process left, from its wait status.

    >>> sighting_of_exit(7 << 8).exit_code, sighting_of_exit(9).signal
    (7, 9)
    """
    if os.WIFSIGNALED(wait_status):
        return Sighting(state="exited", signal=os.WTERMSIG(wait_status))
    return Sighting(state="exited", exit_code=os.WEXITSTATUS(wait_status))


class ProcessWatch:
    """One process, told from a later one with the same pid by when it started.

    Parameters
    ----------
    pid, start_ticks
        As its ring says.
    proc
        Where /proc is; another folder is a recorded tree, and no pidfd is opened then.

    """

    def __init__(self, pid: int, start_ticks: int, proc: Path = PROC) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self._proc = proc
        self._pidfd = self._open_pidfd() if proc == PROC else -1

    def look(self) -> Sighting:
        """How it is now; `unknown` where /proc does not let itself be read."""
        try:
            stat = read_stat(self.pid, self._proc)
        except (OSError, ValueError):
            if not self.has_ended():
                return Sighting(state="unknown")
            stat = None
        if stat is not None and stat.start_ticks == self.start_ticks:
            return sighting_of_exit(stat.wait_status) if stat.state == "exited" else Sighting(state=stat.state)
        wait_status = exit_status_of(self._pidfd) if self._pidfd >= 0 else None
        return Sighting(state="exited") if wait_status is None else sighting_of_exit(wait_status)

    @property
    def descriptor(self) -> int:
        """Can be read from the moment in which the process ends; -1 where there is none."""
        return self._pidfd

    def has_ended(self) -> bool:
        """Whether it has, as far as its pidfd tells."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Let go of the pidfd."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _open_pidfd(self) -> int:
        try:
            pidfd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):  # gone already, not allowed, or a kernel before 5.3
            return -1
        try:
            stat = read_stat(self.pid, self._proc)
        except (OSError, ValueError):
            stat = None
        if stat is None or stat.start_ticks != self.start_ticks:
            os.close(pidfd)
            return -1
        return pidfd


def exit_status_of(pidfd: int) -> int | None:
    """The wait status of a process that has been reaped, `None` where this kernel does not tell."""
    info = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info, True)
    except OSError:
        return None
    if not struct.unpack_from("=Q", info, 0)[0] & _PIDFD_INFO_EXIT:
        return None
    return int(struct.unpack_from("=i", info, _EXIT_STATUS_OFFSET)[0])
