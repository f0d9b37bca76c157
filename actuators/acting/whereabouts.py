"""On which hosts the ranks of a job are, as their agents say; pure."""

from __future__ import annotations

from collections.abc import Iterable

from actuators.control.roll_call import RollCall
from actuators.control.thresholds import LOCATE_EVERY_NS, LOCATE_WITHIN_NS
from pacehound.model.events.control import CommandResult
from pacehound.model.orders import Locate, What


class Whereabouts:
    """From the question to the answers of all ranks, or of those that have answered in time."""

    def __init__(self, now_ns: int) -> None:
        self._roll = RollCall()
        self._until_ns, self._next_ns = now_ns + LOCATE_WITHIN_NS, now_ns
        self.is_over = False

    @property
    def host_of(self) -> dict[int, str]:
        """By rank."""
        return {rank: where.host for rank, where in self._roll.ranks.items()}

    @property
    def n_ranks(self) -> int:
        """Of the job."""
        return max(self._roll.world_size, len(self._roll.ranks))

    @property
    def missing(self) -> str:
        """Who has not answered."""
        return self._roll.missing()

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        for result in results:
            self._roll.hear(result, now_ns)
            self._roll.note_ranks(result)
        self.is_over = self._roll.is_complete or now_ns >= self._until_ns
        if self.is_over or now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + LOCATE_EVERY_NS
        return [Locate()]
