"""Lets the agent read this process's stack where the kernel is strict (Yama, `kernel.yama.ptrace_scope` = 1).

There a process may read the memory of those below it alone, and the agent stands beside the ranks, not above them.
What they have in common is the launcher: a rank names it, and with it everything that the launcher has started, as
those who may read it. Nobody else gains anything, and the usual checks of the user stay.
"""

from __future__ import annotations

import os

_PR_SET_PTRACER = 0x59616D61
_MOST_ANCESTORS = 64


def allow(launcher: str) -> bool:
    """Let the launcher's processes read this one; whether the kernel has noted it (without Yama it need not).

    Parameters
    ----------
    launcher
        Its pid. One that is none of our ancestors is of another process by now, or of another container.

    """
    if not launcher.isdigit() or int(launcher) not in ancestors(os.getpid()):
        return False
    import ctypes  # torch has imported it already

    prctl = ctypes.CDLL(None).prctl
    return bool(prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(launcher)), 0, 0, 0) == 0)


def ancestors(pid: int) -> list[int]:
    """The pids above a process, nearest first, as far as /proc tells.

    >>> ancestors(os.getpid())[0] == os.getppid()
    True
    """
    found: list[int] = []
    while pid > 1 and len(found) < _MOST_ANCESTORS:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                pid = int(stat.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        found.append(pid)
    return found
