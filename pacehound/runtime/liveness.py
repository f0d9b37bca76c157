"""Whether a process's loop still turns."""

from __future__ import annotations

import threading

from pacehound.clock import Clock

STILL_AFTER_S = 30.0
"""A loop that has not turned for so long is ill."""


class Pulse:
    """Beaten by a loop, felt by whoever asks after the process's health; thread-safe.

    Examples
    --------
    >>> from pacehound.clock import ManualClock
    >>> clock = ManualClock()
    >>> pulse = Pulse(clock)
    >>> pulse.beat()
    >>> pulse.complaint()
    ''
    >>> clock.advance_s(31)
    >>> pulse.complaint()
    'the loop has not turned for 31 s'

    """

    def __init__(self, clock: Clock, still_after_s: float = STILL_AFTER_S) -> None:
        self._clock = clock
        self._still_after_s = still_after_s
        self._lock = threading.Lock()
        self._last_s = clock.monotonic_s()
        self._trouble = ""

    def beat(self) -> None:
        """The loop has turned, and nothing is in its way."""
        with self._lock:
            self._last_s = self._clock.monotonic_s()
            self._trouble = ""

    def trouble(self, reason: str) -> None:
        """The loop cannot get on, and why."""
        with self._lock:
            self._trouble = reason

    def complaint(self) -> str:
        """Why this process is not healthy; empty when it is."""
        with self._lock:
            still_s = self._clock.monotonic_s() - self._last_s
            if still_s <= self._still_after_s:
                return ""
            return f"the loop has not turned for {still_s:.0f} s" + (f": {self._trouble}" if self._trouble else "")
