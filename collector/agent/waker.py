"""What the agent's loop sleeps on: time, and whoever wakes it.

On a machine whose processors belong to a training job a look at nothing is dear: each one wakes a sleeping thread.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Collection


class Waker:
    """Any thread and any signal handler wakes whoever waits, also when it wakes before he waits.

    >>> waker = Waker()
    >>> waker.wake(), waker.wait(60.0), waker.wait(0.0)
    (None, True, False)

    It is never closed: threads that never return may wake it until the process ends.
    """

    def __init__(self) -> None:
        self._ready, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def wake(self) -> None:
        """End the wait that goes on, or the next one."""
        with contextlib.suppress(BlockingIOError):  # it is full of rings that nobody has heard: that is enough
            os.write(self._bell, b"\0")

    def wait(self, timeout_s: float, also: Collection[int] = ()) -> bool:
        """Sleep for so long, or until somebody wakes it or one of these descriptors can be read; whether that was."""
        poll = select.poll()
        for descriptor in (self._ready, *also):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(timeout_s * 1e3)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._ready, 4096):
                pass
        return bool(ready)
