"""Names of the system calls in which a process may be found waiting."""

from __future__ import annotations

import platform

_X86_64 = {
    0: "read", 1: "write", 2: "open", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 16: "ioctl", 17: "pread64",
    18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 24: "sched_yield", 35: "nanosleep", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 73: "flock", 74: "fsync",
    75: "fdatasync", 76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 87: "unlink", 202: "futex",
    208: "io_getevents", 217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat",
    262: "newfstatat", 264: "renameat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 285: "fallocate",
    288: "accept4", 295: "preadv", 296: "pwritev", 306: "syncfs", 316: "renameat2", 326: "copy_file_range",
    332: "statx", 426: "io_uring_enter", 437: "openat2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 38: "renameat", 45: "truncate",
    46: "ftruncate", 47: "fallocate", 56: "openat", 61: "getdents64", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 80: "fstat",
    82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
    124: "sched_yield", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
    260: "wait4", 267: "syncfs", 276: "renameat2", 285: "copy_file_range", 291: "statx", 426: "io_uring_enter",
    437: "openat2", 449: "futex_waitv",
}  # fmt: skip
_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def name_of(number: int, machine: str = "") -> str:
    """The name of a system call on `machine` (this one, if empty); its number where it is not listed here.

    >>> name_of(202, "x86_64"), name_of(98, "aarch64"), name_of(999, "x86_64")
    ('futex', 'futex', 'system call 999')
    """
    return _NAMES.get(machine or platform.machine(), {}).get(number, f"system call {number}")
