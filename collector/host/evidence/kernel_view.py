"""What the kernel says of a process: whether its main thread runs, and what it waits in. Nothing is stopped for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from collector.host.evidence.syscalls import name_of
from collector.host.kernel_files import text_of
from collector.host.processes import PROC

_STATE, _UTIME, _STIME = 0, 11, 12  # fields 3, 14 and 15 of a stat file, counted after the command's ')'
_ON_A_FILE = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "flock",
    "ftruncate", "fallocate", "fstat", "getdents64", "recvfrom", "recvmsg", "sendto", "sendmsg", "accept", "accept4",
    "connect", "ioctl", "syncfs",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of one process.

    Attributes
    ----------
    state
        The letter of its main thread's state; empty where there is none to be read.
    thread_ticks, process_ticks
        CPU time used by the main thread and by all of them, in clock ticks.
    syscall
        What the main thread waits in; empty while it runs or where that may not be read.
    target
        What the file descriptor of that system call is, where it has one.
    wait_channel
        The kernel's function in which it sleeps; empty while it runs or where that may not be read.

    """

    state: str = ""
    thread_ticks: int = 0
    process_ticks: int = 0
    syscall: str = ""
    target: str = ""
    wait_channel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """Two readings put together: what the process waited in at the second, and how much CPU it used in between.

    Shares are CPU seconds per second of time: 1.0 is one core.
    """

    state: str = ""
    syscall: str = ""
    target: str = ""
    wait_channel: str = ""
    thread_share: float = 0.0
    process_share: float = 0.0

    def frame(self) -> str:
        """The kernel's part of a stack, innermost; empty where it waits in nothing that can be named."""
        if not self.syscall:
            return ""
        about = ", ".join(part for part in (self.target, self.wait_channel) if part)
        return f"{self.syscall} (kernel: {about})" if about else f"{self.syscall} (kernel)"


def read(pid: int, proc: Path = PROC) -> Reading:
    """One reading; empty for a process that is gone, and without what may not be read."""
    folder = proc / str(pid)
    main = folder / "task" / str(pid)
    thread, process = _fields(main / "stat"), _fields(folder / "stat")
    syscall, target = _syscall(text_of(folder / "syscall"), folder)
    wait_channel = text_of(folder / "wchan")
    return Reading(
        state=thread[_STATE] if thread else "",
        thread_ticks=_ticks(thread),
        process_ticks=_ticks(process),
        syscall=syscall,
        target=target,
        wait_channel="" if wait_channel == "0" else wait_channel,
    )


def put_together(first: Reading, second: Reading, window_s: float) -> KernelView:
    """What two readings of a process, `window_s` apart, say together.

    A system call that it was in at only one of them is not what it waits in.
    """
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    is_same = (first.syscall, first.target) == (second.syscall, second.target)
    return KernelView(
        state=second.state,
        syscall=second.syscall if is_same else "",
        target=second.target if is_same else "",
        wait_channel=second.wait_channel if is_same else "",
        thread_share=max(second.thread_ticks - first.thread_ticks, 0) / ticks_per_s / window_s,
        process_share=max(second.process_ticks - first.process_ticks, 0) / ticks_per_s / window_s,
    )


def uses_gpu(pid: int, proc: Path = PROC) -> bool:
    """Whether it has a device of an NVIDIA driver mapped."""
    return "/dev/nvidia" in text_of(proc / str(pid) / "maps")


def _syscall(line: str, folder: Path) -> tuple[str, str]:
    fields = line.split()
    if not fields or not fields[0].isdigit():
        return "", ""  # `running`, or `-1` in no system call
    name = name_of(int(fields[0]))
    if name not in _ON_A_FILE or len(fields) < 2:
        return name, ""
    try:
        target = os.readlink(folder / "fd" / str(int(fields[1], 16)))
        return name, os.fsencode(target).decode(errors="replace")  # a path may hold any bytes, an event may not
    except (OSError, ValueError):
        return name, ""


def _fields(path: Path) -> list[str]:
    fields = text_of(path).rpartition(")")[2].split()
    return fields if len(fields) > _STIME else []


def _ticks(fields: list[str]) -> int:
    return int(fields[_UTIME]) + int(fields[_STIME]) if fields else 0
