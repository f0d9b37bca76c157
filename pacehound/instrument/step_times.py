"""When the operations of a recorded step were: by the host's clock here, by the device's in `cuda_times`."""

from __future__ import annotations

import time
from typing import Any, Protocol


class StepTimes(Protocol):
    """Instants of one recorded step.

    What is handed out is a number that `ns` turns into a time once `look` has said that all of them are known; 0
    stands for an instant that is not known and never will be. Nothing here blocks, and nothing raises.

    Attributes
    ----------
    is_device
        Instants are those of the device, which the host is ahead of.
    spoilt
        Why nothing of this step can be told; empty while all is well.

    """

    is_device: bool
    spoilt: str

    def now(self) -> int:
        """When all that the calling thread has launched by now is over."""

    def transferred(self, work: Any, kind: int) -> int:
        """When a send or receive is over that the script has just waited for.

        `kind` is its operation type; transfers of one kind end in the order in which they are waited for.
        """

    def cannot_see(self, p2p_op: Any) -> str:
        """Why the end of such a send or receive cannot be told; empty if it can."""

    def look(self, at_most: int) -> bool:
        """Whether all instants are known, or the step is spoilt; at most so many of them are looked at now."""

    def ns(self, instant: int) -> int:
        """Monotonic time of the host, in nanoseconds."""


class HostTimes:
    """On a CPU operations run as they are called: an instant is the host's own."""

    is_device = False
    spoilt = ""

    def now(self) -> int:
        return time.monotonic_ns()

    def transferred(self, work: Any, kind: int) -> int:
        return time.monotonic_ns()

    def cannot_see(self, p2p_op: Any) -> str:
        return ""

    def look(self, at_most: int) -> bool:
        return True

    def ns(self, instant: int) -> int:
        return instant
