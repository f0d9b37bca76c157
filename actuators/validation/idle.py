"""Measure hosts on which no job runs; pure.

Each of them has an agent (`pacehound run` of a command that waits). They are named by who answers, as many as were
asked for; processes meet there as they would beside ranks, and nobody is held.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from actuators.control.roll_call import RollCall, is_final
from actuators.control.thresholds import LOCATE_EVERY_NS, LOCATE_WITHIN_NS
from actuators.validation.processes import Processes
from actuators.validation.thresholds import BUDGET_S, RESULT_WITHIN_NS, START_WITHIN_NS
from pacehound.model.events.control import CommandResult, JudgedRanks
from pacehound.model.orders import Dismiss, Locate, Measure, Prepare, What


class IdleValidation:
    """One validation of so many hosts; `step` says what is to be ordered next.

    Parameters
    ----------
    trap
        Names it; never used before.
    n_hosts, per_host
        How many hosts there are, and how many processes measure on each.
    now_ns
        Monotonic time.

    Attributes
    ----------
    reason
        What it waits for, or why it is over.

    """

    def __init__(self, trap: int, n_hosts: int, per_host: int, now_ns: int) -> None:
        self.state: Literal["locating", "starting", "measuring", "over"] = "locating"
        self.reason = "looking for the hosts"
        self._trap, self._n_hosts, self._per_host = trap, n_hosts, per_host
        self._roll = RollCall()
        self._processes = Processes(trap)
        self._since_ns = self._next_ns = now_ns

    @property
    def is_over(self) -> bool:
        """Whether nothing is measured, and nothing will be."""
        return self.state == "over"

    @property
    def judged(self) -> tuple[JudgedRanks, ...] | None:
        """What was found; `None` before, and where nothing could be measured. Ranks are numbered host by host."""
        return self._processes.judged

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        if self.is_over:
            return []
        for result in results:
            self._roll.hear(result, now_ns)
            if is_final(result) and result.what == "locate":
                return self.end(f"{result.host} has refused the order to locate: {result.reason}")
            if reason := self._processes.hear(result):
                return self.end(reason)
        if self.state == "locating":
            return self._locate(now_ns)
        renewed = self._processes.renew(now_ns)
        if self.state == "starting":
            return [*renewed, *self._start(now_ns)]
        if now_ns - self._since_ns > BUDGET_S * 1e9 + RESULT_WITHIN_NS:
            return self.end("no result in time")
        return renewed

    def end(self, reason: str, now_ns: int = 0) -> list[What]:
        """Measure no more."""
        had_begun = self.state in ("starting", "measuring")
        self.state, self.reason = "over", reason
        return [Dismiss(trap=self._trap)] if had_begun else []

    def _locate(self, now_ns: int) -> list[What]:
        hosts = sorted(self._roll.rendezvous)
        if len(hosts) == self._n_hosts:
            self.state, self.reason = "starting", f"starting {self._per_host} processes on each of {len(hosts)} hosts"
            self._since_ns = now_ns
            prepare = Prepare(
                trap=self._trap,
                rendezvous=self._roll.rendezvous[hosts[0]],
                world_size=len(hosts) * self._per_host,
                hosts=tuple(hosts),
                per_host=self._per_host,
            )
            return self._processes.start(prepare, now_ns)
        self.reason = f"{len(hosts)} of {self._n_hosts} hosts have answered: {', '.join(hosts) or self._roll.missing()}"
        if len(hosts) > self._n_hosts or now_ns - self._since_ns > LOCATE_WITHIN_NS:
            return self.end(self.reason)
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + LOCATE_EVERY_NS
        return [Locate(idle=True)]

    def _start(self, now_ns: int) -> list[What]:
        waiting = len(self._processes.waiting)
        if waiting and now_ns - self._since_ns > START_WITHIN_NS:
            return self.end(f"{waiting} processes were not ready within {START_WITHIN_NS / 1e9:g} s")
        if waiting:
            return []
        self.state, self.reason, self._since_ns = "measuring", "measuring", now_ns
        return [Measure(trap=self._trap)]
