"""Hold all ranks of a job at one round, for as long as somebody wants, and let them go: the controller's side; pure.

Two phases. Every rank is located and armed for a round that lies ahead of all of them; only when all are held is the
hold one. One rank that cannot, has passed the round, or goes on, is the end of it for all. While it lasts the agents
are told so again and again: a controller that dies holds nobody for longer than its last lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from actuators.control.roll_call import RollCall, is_final
from actuators.control.thresholds import (
    AHEAD_S,
    ARM_WITHIN_NS,
    GATHER_WITHIN_NS,
    KEEP_EVERY_NS,
    LEASE_MS,
    LOCATE_EVERY_NS,
    LOCATE_WITHIN_NS,
    MOST_TRIES,
    SILENT_AFTER_NS,
)
from pacehound.model.events.control import CommandResult
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.orders import ANY_TRAP, Hold, Keep, Locate, Release, What

TRY_AGAIN = ("it had passed the round", "the controller says nothing more")
"""What an agent says of a rank that was too fast, and where a lease ended that somebody was late to renew; see
collector/agent/holding.py."""

State = Literal["locating", "gathering", "held", "over"]


class HoldProcedure:
    """One hold, from the search for the ranks to its end; `step` says what is to be ordered next.

    Parameters
    ----------
    trap
        Names it; never used before.
    hold_ns
        It ends after so long at the latest.
    now_ns
        Monotonic time.

    Attributes
    ----------
    state
        `held` while all ranks stand still.
    reason
        Why it is over, or what it waits for.
    roll
        What each rank has said last, and who has not answered.
    held_since_ns
        When all were held; 0 before.

    """

    def __init__(self, trap: int, hold_ns: int, now_ns: int) -> None:
        self.trap = trap
        self.state: State = "locating"
        self.reason = "looking for the ranks"
        self.roll = RollCall()
        self.held_since_ns = 0
        self._hold_ns = hold_ns
        self._since_ns = now_ns
        self._next_ns = now_ns
        self._ahead_s = AHEAD_S
        self._tries = 1
        self._looks = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is held, and nothing will be."""
        return self.state == "over"

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        if self.is_over:
            return []
        for result in results:
            reason = self._hear(result, now_ns)
            may_try_again = self.state == "gathering" and self._tries < MOST_TRIES
            if may_try_again and reason.endswith(TRY_AGAIN):
                return self._again(now_ns)
            if reason:
                return self.end(reason, now_ns)
        if self.state == "locating":
            return self._locate(now_ns)
        if now_ns - self._since_ns > self._hold_ns + GATHER_WITHIN_NS:
            return self.end("the time that was asked for is over", now_ns)
        silent = sorted(host for host, heard_ns in self.roll.hosts.items() if now_ns - heard_ns > SILENT_AFTER_NS)
        if silent:
            return self.end(f"the agent on {', '.join(silent[:3])} says nothing more", now_ns)
        if self.state == "gathering":
            return self._gather(now_ns)
        if now_ns - self.held_since_ns >= self._hold_ns:
            return self.end("the time that was asked for is over", now_ns)
        return self._keep(now_ns, all_held=True)

    def end(self, reason: str, now_ns: int) -> list[What]:
        """Let everybody go."""
        had_armed = self.state in ("gathering", "held")
        self.state, self.reason = "over", reason
        return [Release(trap=self.trap)] if had_armed else []

    def _hear(self, result: CommandResult, now_ns: int) -> str:
        """Remember it; why it is the end, else nothing."""
        self.roll.hear(result, now_ns)
        if result.refused:
            is_ours = result.what == "locate" or (result.what in ("hold", "keep") and result.trap == self.trap)
            words = f"{result.host} has refused the order to {result.what}: {result.reason}"
            return words if is_ours and is_final(result) else ""
        if result.what == "release" and self.state != "locating" and result.trap in (ANY_TRAP, self.trap):
            return "somebody has let the ranks go"
        if self.state != "locating" and result.trap != self.trap:
            return ""  # of before
        self.roll.note_ranks(result)
        for answer in result.ranks:
            if answer.state == "absent":
                return answer.why
            if self.state != "locating" and answer.state in ("refused", "released"):
                return f"rank {answer.rank} was {answer.state}: {answer.why}"
        return ""

    def _again(self, now_ns: int) -> list[What]:
        """Once more, further ahead: a rank had only been too fast, or the controller too late."""
        released = Release(trap=self.trap)
        self.trap += 1
        self._tries += 1
        self._ahead_s *= 2
        self._looks, self._since_ns, self._next_ns = 0, now_ns, now_ns
        self.roll.ranks.clear()
        self.state, self.reason = "locating", "a rank had passed the round by the time it was told; once more"
        return [released]

    def _locate(self, now_ns: int) -> list[What]:
        if self._looks >= 2 and self.roll.is_complete and self._rates_known():
            limit_ns = self.roll.hold_limit_ns
            if limit_ns is not None and limit_ns < self._hold_ns:
                return self.end(too_short(limit_ns, self._hold_ns), now_ns)
            slowest_per_s = min(where.answer.per_s for where in self.roll.ranks.values())
            if slowest_per_s == 0.0:
                return self._wait_or_end(
                    now_ns, "no rank makes calls on the communicator of all ranks, so that there is no round to stop at"
                )
            fastest_per_s = max(where.answer.per_s for where in self.roll.ranks.values())
            furthest = max(where.answer.launched for where in self.roll.ranks.values())
            self.state, self.reason = "gathering", "waiting until all ranks have come to the round"
            self._since_ns, self._next_ns = now_ns, now_ns + KEEP_EVERY_NS
            self.roll.hosts = dict.fromkeys(self.roll.hosts, now_ns)
            round_number = furthest + max(round(self._ahead_s * fastest_per_s), 2)
            hold_ms = min((self._hold_ns + GATHER_WITHIN_NS) // 1_000_000, (1 << 31) - 1)
            return [Hold(trap=self.trap, round=round_number, hold_ms=hold_ms, lease_ms=LEASE_MS)]
        return self._wait_or_end(now_ns, self.roll.missing())

    def _wait_or_end(self, now_ns: int, reason: str) -> list[What]:
        self.reason = reason
        if now_ns - self._since_ns > LOCATE_WITHIN_NS:
            return self.end(reason, now_ns)
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + LOCATE_EVERY_NS
        self._looks += 1
        return [Locate()]

    def _gather(self, now_ns: int) -> list[What]:
        states = {rank: where.answer.state for rank, where in self.roll.ranks.items()}
        waiting = sorted(rank for rank, state in states.items() if state != "held")
        if not waiting:
            self.state, self.reason = "held", "all ranks are held"
            self.held_since_ns = now_ns
            self._next_ns = now_ns
            return self._keep(now_ns, all_held=True)
        unarmed = sorted(rank for rank, state in states.items() if state == "running")
        if unarmed and now_ns - self._since_ns > ARM_WITHIN_NS:
            return self.end(f"{ranks_words(unarmed)} did not come to a call within {ARM_WITHIN_NS / 1e9:g} s", now_ns)
        if now_ns - self._since_ns > GATHER_WITHIN_NS:
            return self.end(
                f"{ranks_words(waiting)} did not come to the round within {GATHER_WITHIN_NS / 1e9:g} s", now_ns
            )
        return self._keep(now_ns, all_held=False)

    def _keep(self, now_ns: int, *, all_held: bool) -> list[What]:
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + KEEP_EVERY_NS
        return [Keep(trap=self.trap, lease_ms=LEASE_MS, all_held=all_held)]

    def _rates_known(self) -> bool:
        return all(where.answer.launched > 0 for where in self.roll.ranks.values())


def too_short(limit_ns: int, needed_ns: int) -> str:
    """Why ranks are not held at all: to stand still in vain would cost them as much."""
    return (
        f"its ranks may stand still for {limit_ns / 1e9:g} s, a quarter of the time after which their process groups "
        f"give up; {needed_ns / 1e9:g} s are needed"
    )
