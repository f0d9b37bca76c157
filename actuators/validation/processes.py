"""The processes that measure, from the order to start them to what they found, whoever is held meanwhile; pure."""

from __future__ import annotations

from actuators.control.roll_call import is_final
from actuators.validation.thresholds import RENEW_EVERY_NS
from pacehound.model.events.control import CommandResult, JudgedRanks
from pacehound.model.orders import Prepare, What


class Processes:
    """Those of one validation.

    Parameters
    ----------
    trap
        Names it; never used before.

    Attributes
    ----------
    judged
        What was found; `None` before, and where nothing could be measured.

    """

    def __init__(self, trap: int) -> None:
        self.judged: tuple[JudgedRanks, ...] | None = None
        self._trap = trap
        self._prepare: Prepare | None = None
        self._ready: set[int] = set()
        self._next_ns = 0

    def start(self, prepare: Prepare, now_ns: int) -> list[What]:
        """Order them; they end by themselves where the order is not renewed."""
        self._prepare, self._next_ns = prepare, now_ns + RENEW_EVERY_NS
        return [prepare]

    def renew(self, now_ns: int) -> list[What]:
        """They are still wanted."""
        if self._prepare is None or now_ns < self._next_ns:
            return []
        return self.start(self._prepare, now_ns)

    def hear(self, result: CommandResult) -> str:
        """What an agent has answered; why the validation is over, else nothing."""
        if is_final(result) and result.what in ("prepare", "measure"):
            return f"{result.host} has refused the order to {result.what}: {result.reason}"
        if result.trap != self._trap:
            return ""
        self._ready.update(result.ready)
        if result.failed:
            return f"{result.host}: {result.failed}"
        if result.judged:
            self.judged = result.judged
            return "measured"
        return ""

    @property
    def waiting(self) -> list[int]:
        """Whose process is not ready."""
        assert self._prepare is not None
        expected = self._prepare.ranks or range(self._prepare.world_size)
        return sorted(set(expected) - self._ready)
