"""Giving way to more urgent work on the same processors."""

from __future__ import annotations

import contextlib
import os


def give_way(niceness: int) -> None:
    """Lower the priority of this process: where processors are scarce it gets them when others leave them.

    Where the kernel groups processes by session (sched(7), autogroup), niceness counts only among those of a session:
    a process with one of its own would get as much of a busy processor as all others together. So the group of a
    session that this process leads is lowered, too. Another one is not ours: whoever else was started from that shell,
    a training run perhaps, would give way with us, and go on doing so when we have ended.
    """
    os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(niceness))
