"""Carries out what a controller orders, and says what became of it; one step at a time, like the agent."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from collector.agent.holding import Holder
from collector.agent.measuring import Measuring
from collector.agent.obedience import Obedience, Refusal
from collector.agent.profiling import Profiling
from collector.agent.trainers import Trainers
from collector.agent.waking import wake
from collector.host.rank_process import RankProcess
from pacehound.model.events.control import Command, CommandResult, RankAnswer, Refused, TrainerAnswer
from pacehound.model.orders import (
    ANY_ATTEMPT,
    Answer,
    Apply,
    Confirm,
    Dismiss,
    Hold,
    Keep,
    Locate,
    Measure,
    Offer,
    Order,
    Prepare,
    Profile,
    Release,
    Wake,
    Withdraw,
)

logger = logging.getLogger("pacehound.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """What an order is carried out upon.

    Attributes
    ----------
    processes
        The ranks that are there.
    timeouts_ms
        The smallest timeout of a process group, by attempt; none where no group has said.
    world_sizes
        How many ranks the job has, by attempt.
    now_ns, unix_ns
        Monotonic and Unix time.

    """

    processes: tuple[RankProcess, ...]
    timeouts_ms: Mapping[int, int]
    world_sizes: Mapping[int, int]
    now_ns: int
    unix_ns: int


class OrderBook:
    """Takes commands, obeys those that may be, and answers each."""

    def __init__(
        self,
        obedience: Obedience,
        holder: Holder,
        measuring: Measuring,
        profiling: Profiling,
        trainers: Trainers,
        job: str,
        host: str,
        address: str = "127.0.0.1",
    ) -> None:
        self.obedience = obedience
        self.holder = holder
        self.measuring = measuring
        self.profiling = profiling
        self.trainers = trainers
        self._address = address
        self._preparing: Order | None = None
        self._job, self._host = job, host
        self._number = 0
        self._holding: Order | None = None
        self._offered: Order | None = None

    def take(self, commands: Iterable[Command], host: HostNow) -> list[CommandResult]:
        """Carry them out, in order."""
        return [result for command in commands if (result := self._take(command, host)) is not None]

    def step(self, host: HostNow) -> list[CommandResult]:
        """What is to be said of a hold that goes on, or has ended, of what was measured, and of what scripts answer."""
        return [*self._step_hold(host), *self._step_measuring(host), *self._step_trainers(host)]

    @property
    def is_busy(self) -> bool:
        """Whether something goes on that has to be looked after."""
        return self.holder.is_holding or self.measuring.trap != 0 or self.trainers.is_busy

    def _step_measuring(self, host: HostNow) -> list[CommandResult]:
        news, order = self.measuring.look(host.now_ns), self._preparing
        if news is None or order is None:
            return []
        result = self._result(host, order, trap=news.trap)
        return [replace(result, ready=news.ready, judged=news.judged, failed=news.failed)]

    def _step_trainers(self, host: HostNow) -> list[CommandResult]:
        answers, order = self.trainers.step(host.now_ns), self._offered
        results = []
        if answers and order is not None:
            results.append(self._result(host, order, ticket=self.trainers.told_of, trainers=answers))
        late, self.trainers.late = self.trainers.late, []
        for ticket, answer in late:
            attempt = max(self.trainers.attempts, default=0)
            results.append(self._result(host, None, attempt=attempt, ticket=ticket, trainers=(answer,)))
        if (asked := self.trainers.question(host.now_ns)) is not None:
            attempt, question = asked
            results.append(replace(self._result(host, None, attempt=attempt), what="recovery", asked=question))
        return results

    def _step_hold(self, host: HostNow) -> list[CommandResult]:
        order, trap = self._holding, self.holder.trap
        ranks = self.holder.step(frozenset(process.pid for process in host.processes), host.now_ns)
        if not self.holder.is_holding:
            self._holding = None
        if order is None or not ranks:
            return []
        return [self._result(host, order, ranks=ranks, trap=trap)]

    def close(self) -> None:
        """The agent leaves."""
        self.measuring.dismiss()
        self.holder.close()
        self.trainers.close()

    def _take(self, command: Command, host: HostNow) -> CommandResult | None:
        attempts = frozenset(process.attempt for process in host.processes) | self.trainers.attempts
        found = self.obedience.admit(command, attempts, host.unix_ns)
        if isinstance(found, Order) and found.attempt == ANY_ATTEMPT:
            found = msgspec.structs.replace(found, attempt=max(attempts, default=0))
        if isinstance(found, Refusal):
            return self._refused(host, command, found)
        reason, ranks = self._carry_out(found, host)
        if reason:
            return self._refused(host, command, Refusal(refused="cannot", reason=reason, order=found))
        if isinstance(found.what, (Keep, Prepare, Offer, Apply, Confirm, Answer)):
            return None  # where the ranks are is said twice a second, and when it changes; answers are for others
        logger.info("order %s: %s of %s, for: %s", found.id, found.what_name, command.key[:8], found.why)
        if isinstance(found.what, Withdraw):
            return self._result(host, found, ticket=found.what.ticket, trainers=self.trainers.answers())
        result = self._result(host, found, ranks=ranks, trap=getattr(found.what, "trap", None))
        if isinstance(found.what, Locate):
            result = replace(result, rendezvous=f"{self._address}:{free_port()}")
        return result

    def _carry_out(self, order: Order, host: HostNow) -> tuple[str, tuple[RankAnswer, ...]]:
        processes = [
            process
            for process in host.processes
            if process.attempt == order.attempt and (not order.ranks or process.rank in order.ranks)
        ]
        timeout_ms = host.timeouts_ms.get(order.attempt, 0)
        match order.what:
            case Locate(idle=True) | Prepare(hosts=(_, *_)) if host.processes:
                return "a job runs here", ()
            case Locate():
                return "", self.holder.locate(processes, timeout_ms, host.now_ns)
            case Hold() as what:
                reason = self.holder.hold(what, processes, timeout_ms, host.now_ns)
                if not reason:
                    self._holding = order
            case Keep() as what:
                reason = self.holder.keep(what, host.now_ns)
            case Release() as what:
                reason = self.holder.release(what, host.now_ns)
            case Prepare() as what:
                reason = self.measuring.prepare(what, processes, host.now_ns)
                self._preparing = self._preparing if reason else order
            case Measure() as what:
                reason = self.measuring.go(what.trap, what.within_ms)
            case Dismiss():
                reason = ""
                self.measuring.dismiss()
            case Profile() as what:
                self.profiling.begin(what, host.unix_ns, processes, order.why, host.now_ns)
                return "", self.holder.locate(processes, timeout_ms, host.now_ns)
            case Offer() as what:
                reason = self.trainers.offer(what, order.why, order.attempt, processes, host.now_ns, order.ranks)
                self._offered = self._offered if reason else order
            case Apply() as what:
                reason = self.trainers.apply(what, host.now_ns)
                self._offered = self._offered if reason else order
            case Confirm() as what:
                reason = self.trainers.confirm(what)
            case Withdraw() as what:
                reason = self.trainers.withdraw(what)
            case Wake() as what:
                return "", wake(what, processes)
            case Answer():
                return "", ()
        return reason, self.holder.answers(host.now_ns)

    def _refused(self, host: HostNow, command: Command, refusal: Refusal) -> CommandResult:
        order = refusal.order
        what = f"{order.what_name} {order.id}" if order is not None else "a command"
        logger.warning("%s of key %s is refused (%s): %s", what, command.key[:8], refusal.refused, refusal.reason)
        trap, ticket = (getattr(order.what, name, 0) if order is not None else 0 for name in ("trap", "ticket"))
        refused, reason = refusal.refused, refusal.reason
        return self._result(
            host, order, refused=refused, reason=reason, attempt=command.attempt, trap=trap, ticket=ticket
        )

    def _result(
        self,
        host: HostNow,
        order: Order | None,
        *,
        refused: Refused | None = None,
        reason: str = "",
        ranks: tuple[RankAnswer, ...] = (),
        attempt: int = 0,
        trap: int | None = None,
        ticket: int = 0,
        trainers: tuple[TrainerAnswer, ...] = (),
    ) -> CommandResult:
        self._number = max(self._number + 1, host.unix_ns)  # larger than those of an agent before
        attempt = order.attempt if order is not None else attempt
        attempt = max(attempt, 0)  # of an order for any, where none is here
        return CommandResult(
            job=self._job,
            attempt=attempt,
            time_ns=host.unix_ns,
            host=self._host,
            number=self._number,
            order=order.id if order is not None else "",
            what=order.what_name if order is not None else "",
            incident=order.incident if order is not None else "",
            refused=refused or "",
            reason=reason,
            world_size=max(host.world_sizes.get(attempt, 0), self.trainers.world_size(attempt)),
            trap=trap if trap is not None else self.holder.trap,
            ranks=ranks,
            ticket=ticket,
            trainers=trainers,
        )


def free_port() -> int:
    """One that nobody listens at just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def address_towards(host: str) -> str:
    """By which address of this machine another one reaches it, as the way to `host` tells; nothing is sent.

    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    family, _, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)
        address = str(probe.getsockname()[0])
    return f"[{address}]" if family == socket.AF_INET6 else address
