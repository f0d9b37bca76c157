"""The agents of a job of two hosts with a rank each, as a controller hears them."""

from __future__ import annotations

from pacehound.model.events import CommandResult, JudgedRanks, RankAnswer
from pacehound.model.events.control import RankState
from pacehound.model.orders import Hold, Locate, Measure, Prepare, Release, What

JUDGED = (
    JudgedRanks(ranks=(1,), hosts=("h1",), verdict="culprit", measured="memory", ratio=2.0, reason="2 times"),
    JudgedRanks(ranks=(0,), hosts=("h0",), verdict="cleared", measured="memory", ratio=1.0, reason="1 times"),
)


class Agents:
    """Two hosts with a rank each, that answer at once."""

    def __init__(
        self, silent: str = "", *, refuses: str = "", fails: bool = False, hold_limits_ms: tuple[int, int] = (0, 0)
    ) -> None:
        self.silent, self.refuses, self.fails = silent, refuses, fails
        self.hold_limits_ms = hold_limits_ms
        self.orders: list[What] = []
        self.launched = 100
        self.state: RankState = "running"
        self.trap = self.validation = 0

    def answers(self, orders: list[What]) -> list[CommandResult]:
        self.orders += orders
        self.launched += 5
        found = []
        for order in orders:
            what = type(order).__name__.lower()
            if what == self.refuses:
                trap = getattr(order, "trap", 0)
                found += [self.result(host, what, refused="cannot", reason="it is full", trap=trap) for host in (0, 1)]
                continue
            if isinstance(order, Locate):
                found += [self.result(host, what, rendezvous=f"10.0.0.{host}:29400") for host in (0, 1)]
            if isinstance(order, Prepare) and self.silent != "ready":
                self.validation = order.trap
                found += [self.result(host, what, ready=(host,), trap=order.trap) for host in (0, 1)]
            if isinstance(order, Hold):
                self.state, self.trap = "held", order.trap
            if isinstance(order, Measure) and self.fails:
                words = "the process beside rank 0 ended with 1: no memory"
                found.append(self.result(0, "prepare", failed=words, trap=self.validation))
            elif isinstance(order, Measure) and self.silent != "result":
                found.append(self.result(0, "prepare", judged=JUDGED, trap=self.validation))
            if isinstance(order, Release):
                self.state = "released"
        if self.trap:
            found += [self.result(host, "hold", trap=self.trap) for host in (0, 1)]
        return found

    def result(self, host: int, what: str, **said: object) -> CommandResult:
        limit_ms = self.hold_limits_ms[host] if what == "locate" else 0
        answer = RankAnswer(rank=host, state=self.state, launched=self.launched, per_s=50.0, hold_limit_ms=limit_ms)
        return CommandResult(
            job="j", attempt=0, time_ns=1, host=f"h{host}", number=1, what=what, world_size=2, ranks=(answer,), **said
        )  # type: ignore[arg-type]
