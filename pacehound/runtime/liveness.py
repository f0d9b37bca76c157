"""Whether a process's loop still turns."""

from __future__ import annotations

import threading

from pacehound.clock import Clock

STILL_AFTER_S = 30.0
"""A loop that has not turned for so long is ill."""


class Liveness:
    """A loop marks itself alive, and whoever asks after the process's health is told; thread-safe.

    Examples
    --------
    >>> from pacehound.clock import ManualClock
    >>> clock = ManualClock()
    >>> liveness = Liveness(clock)
    >>> liveness.mark_alive()
    >>> liveness.problem()
    ''
    >>> clock.advance_s(31)
    >>> liveness.problem()
    'the loop has not turned for 31 s'

    """

    def __init__(self, clock: Clock, still_after_s: float = STILL_AFTER_S) -> None:
        self._clock = clock
        self._still_after_s = still_after_s
        self._lock = threading.Lock()
        self._last_s = clock.monotonic_s()
        self._stuck_reason = ""

    def mark_alive(self) -> None:
        """The loop has turned, and nothing is in its way."""
        with self._lock:
            self._last_s = self._clock.monotonic_s()
            self._stuck_reason = ""

    def mark_stuck(self, reason: str) -> None:
        """The loop cannot get on, and why."""
        with self._lock:
            self._stuck_reason = reason

    def problem(self) -> str:
        """Why this process is not healthy; empty when it is."""
        with self._lock:
            still_s = self._clock.monotonic_s() - self._last_s
            if still_s <= self._still_after_s:
                return ""
            reason = f": {self._stuck_reason}" if self._stuck_reason else ""
            return f"the loop has not turned for {still_s:.0f} s{reason}"
