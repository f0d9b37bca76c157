"""Time comes in through here, so that everything else can be tested without waiting."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Where a shell takes the time from; operators never see one."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds, comparable between hosts as well as their clocks are."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards, for deadlines within one process."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until it is told to move.

    >>> clock = ManualClock(time_ns=5)
    >>> clock.advance_s(2.0)
    >>> clock.now_ns()
    2000000005
    """

    time_ns: int = 0

    def now_ns(self) -> int:
        """The time it was set to."""
        return self.time_ns

    def monotonic_s(self) -> float:
        """The same time in seconds."""
        return self.time_ns / 1e9

    def advance_s(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        if seconds < 0:
            raise ValueError(f"a clock cannot be moved back by {-seconds} s")
        self.time_ns += round(seconds * 1e9)


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One reading of the monotonic and the Unix clock of a host, taken together.

    Everything on a host is timed with the monotonic clock, which a step of the Unix clock does not move,
    and mapped to Unix time by one pair for the life of a job, so that durations stay exact.

    >>> ClockPair(monotonic_ns=100, unix_ns=1_000).to_unix_ns(130)
    1030
    """

    monotonic_ns: int
    unix_ns: int

    @classmethod
    def read(cls) -> ClockPair:
        """Read both clocks; the Unix reading is bracketed so that a pause between them does not count."""
        best: ClockPair | None = None
        width_ns = 0
        for _ in range(5):
            before = time.monotonic_ns()
            unix = time.time_ns()
            after = time.monotonic_ns()
            if best is None or after - before < width_ns:
                best, width_ns = cls((before + after) // 2, unix), after - before
        assert best is not None
        return best

    def to_unix_ns(self, monotonic_ns: int) -> int:
        """Map a monotonic reading of this host to Unix time."""
        return monotonic_ns - self.monotonic_ns + self.unix_ns
