"""Measure the ranks of a job that runs: processes are started beside them, the job is held, they measure; pure.

The processes start while the job goes on, for that takes the longest. Then all ranks are held at one round
(actuators/control/holding.py), everybody measures at the same moments, and the ranks go on as soon as the result is
there, or the time for it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from actuators.control.holding import HoldProcedure, too_short
from actuators.control.roll_call import RollCall
from actuators.control.thresholds import LOCATE_EVERY_NS, LOCATE_WITHIN_NS
from actuators.validation.peers import with_peers
from actuators.validation.processes import Processes
from actuators.validation.thresholds import BUDGET_S, LEAST_MEASURE_S, MEASURE_S, START_WITHIN_NS
from pacehound.errors import InvalidInput
from pacehound.model.events.control import CommandResult, JudgedRanks
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.orders import Dismiss, Locate, Measure, Prepare, What

State = Literal["locating", "starting", "holding", "measuring", "over"]

_BUDGET_NS = round(BUDGET_S * 1e9)
_AROUND_NS = round((BUDGET_S - MEASURE_S) * 1e9)
"""Ranks are gathered before, and the result is told after."""
_LEAST_BUDGET_NS = round(LEAST_MEASURE_S * 1e9) + _AROUND_NS


class ValidationProcedure:
    """One validation; `step` says what is to be ordered next.

    Parameters
    ----------
    trap
        Names the hold; never used before.
    now_ns
        Monotonic time.
    only
        Who is to be judged: these ranks and their peers are measured; empty: all. Held are all in any case.
    groups
        Members of the job's communicators, as far as they are known: they tell who is whose peer.

    Attributes
    ----------
    reason
        What it waits for, or why it is over.
    held_ns
        For how long the ranks stood still.

    """

    def __init__(
        self, trap: int, now_ns: int, *, only: Sequence[int] = (), groups: Sequence[Sequence[int]] = ()
    ) -> None:
        self.state: State = "locating"
        self.reason = "looking for the ranks"
        self.held_ns = 0
        self._trap, self._only, self._groups = trap, only, groups
        self._roll = RollCall()
        self._processes = Processes(trap)
        self._hold: HoldProcedure | None = None
        self._budget_ns = _BUDGET_NS
        self._since_ns = self._next_ns = now_ns

    @property
    def is_over(self) -> bool:
        """Whether nothing is held or measured, and nothing will be."""
        return self.state == "over"

    @property
    def judged(self) -> tuple[JudgedRanks, ...] | None:
        """What was found; `None` before, and where nothing could be measured."""
        return self._processes.judged

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        if self.is_over:
            return []
        heard = list(results)
        for result in heard:
            self._roll.hear(result, now_ns)
            if result.what == "locate" and not result.refused:
                self._roll.note_ranks(result)
            if reason := self._processes.hear(result):
                return self.end(reason, now_ns)
        if self.state == "locating":
            return self._locate(now_ns)
        orders = self._processes.renew(now_ns)
        if self.state == "starting":
            return [*orders, *self._start(now_ns)]
        return [*orders, *self._measure(heard, now_ns)]

    def end(self, reason: str, now_ns: int) -> list[What]:
        """Let everybody go."""
        orders: list[What] = []
        if self._hold is not None:
            if self._hold.held_since_ns and not self._hold.is_over:
                self.held_ns = now_ns - self._hold.held_since_ns
            orders += self._hold.end(reason, now_ns)
        if self.state in ("starting", "holding", "measuring"):
            orders.append(Dismiss(trap=self._trap))
        self.state, self.reason = "over", reason
        return orders

    def _locate(self, now_ns: int) -> list[What]:
        if self._roll.is_complete:
            return self._begin(now_ns)
        self.reason = self._roll.missing()
        if now_ns - self._since_ns > LOCATE_WITHIN_NS:
            return self.end(self.reason, now_ns)
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + LOCATE_EVERY_NS
        return [Locate()]

    def _begin(self, now_ns: int) -> list[What]:
        world_size = self._roll.world_size
        self._budget_ns = min(_BUDGET_NS, self._roll.hold_limit_ns or _BUDGET_NS)
        if self._budget_ns < _LEAST_BUDGET_NS:
            return self.end(too_short(self._budget_ns, _LEAST_BUDGET_NS), now_ns)
        try:
            ranks = with_peers(self._only, self._groups, world_size) if self._only else ()
        except InvalidInput as error:
            return self.end(str(error), now_ns)
        first = ranks[0] if ranks else 0
        rendezvous = self._roll.rendezvous.get(self._roll.ranks[first].host, "") if first in self._roll.ranks else ""
        if not rendezvous:
            return self.end(f"the host of rank {first} does not say where it can be reached", now_ns)
        self.state, self.reason = "starting", "starting a process beside each rank"
        self._since_ns = now_ns
        prepare = Prepare(trap=self._trap, rendezvous=rendezvous, world_size=len(ranks) or world_size, ranks=ranks)
        return self._processes.start(prepare, now_ns)

    def _start(self, now_ns: int) -> list[What]:
        waiting = self._processes.waiting
        if waiting and now_ns - self._since_ns > START_WITHIN_NS:
            within_s = START_WITHIN_NS / 1e9
            return self.end(f"beside {ranks_words(waiting)} nothing was ready within {within_s:g} s", now_ns)
        if waiting:
            return []
        self.state = "holding"
        self._hold = HoldProcedure(self._trap, self._budget_ns, now_ns)
        return self._measure([], now_ns)

    def _within_ms(self) -> int:
        """For what is measured, where that is less than usual."""
        is_shorter = self._budget_ns < _BUDGET_NS
        return (self._budget_ns - _AROUND_NS) // 1_000_000 if is_shorter else 0

    def _measure(self, heard: list[CommandResult], now_ns: int) -> list[What]:
        assert self._hold is not None
        orders = self._hold.step(heard, now_ns)
        if self._hold.is_over:
            what = "no result in time" if self.state == "measuring" else "not held"
            return [*orders, *self.end(f"{what}: {self._hold.reason}", now_ns)]
        self.reason = self._hold.reason
        if self.state == "holding" and self._hold.state == "held":
            self.state = "measuring"
            orders.append(Measure(trap=self._trap, within_ms=self._within_ms()))
        if self.state == "measuring":
            self.reason = "measuring"
            self.held_ns = now_ns - self._hold.held_since_ns
        return orders
