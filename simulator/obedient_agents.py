"""The agents of a simulated job: they obey the commands that real ones do, and answer as those do.

It is a `ControlWire` (pacehound/bus/control.py): signed orders in, results out. So whoever attends to jobs can be
tested in simulated time. Ranks are held, measured, and given orders to their scripts as their truth would have it. What
is simulated of an agent is what a controller can see of it; a process, a wrong clock or a network is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pacehound.errors import MalformedMessage
from pacehound.model.events import Command, CommandResult, RankAnswer, TrainerAnswer
from pacehound.model.events.control import RankState
from pacehound.model.orders import (
    ANY_TRAP,
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
    read_order,
)
from simulator.obedient_measuring import ObedientMeasuring
from simulator.obedient_scripts import ObedientScripts
from simulator.running_job import ROUNDS_PER_STEP, RunningJob

LOOKS_EVERY_NS = 100_000_000
"""An agent that is told something looks so often."""

REPORT_NS = 500_000_000


class Keys(Protocol):
    """The keys of those who may give orders (`pacehound.bus.signing.Keys`)."""

    def have_signed(self, command: Command) -> bool:
        """Whether one of them has signed it."""
        ...


class ObedientAgents:
    """All agents of one job.

    Parameters
    ----------
    name
        Of the job.
    job
        Its ranks.
    keys
        Whose orders are obeyed.
    hosts
        The ranks of each host.
    kinds
        Of orders that the scripts take.
    tells_micro_batches
        Whether the scripts say how many micro-batches they compute.

    Attributes
    ----------
    attempt
        Of the job.
    stopped
        Processes that are stopped, by rank.
    refused
        By reason, each command that was not obeyed.
    profiled_until_ns
        So long its machines are looked at closely.
    measuring
        The processes beside its ranks.
    scripts
        What was offered to them, and what they applied.

    """

    def __init__(
        self,
        name: str,
        job: RunningJob,
        keys: Keys,
        hosts: Sequence[Sequence[int]] = ((0,), (1,)),
        kinds: Sequence[str] = ("microbatches",),
        *,
        tells_micro_batches: bool = True,
    ) -> None:
        self.name, self.attempt, self.job, self._keys = name, 0, job, keys
        self.hosts = [tuple(ranks) for ranks in hosts]
        self.measuring = ObedientMeasuring(job, self.hosts)
        told = job.micro_batches if tells_micro_batches else 0
        self.scripts = ObedientScripts(job, kinds, told, self._tell_of_scripts)
        self.stopped: dict[int, int] = {}
        self.refused: list[str] = []
        self.profiled_until_ns = 0
        self.now_ns = 1
        self._start_ns: int | None = None
        self._seen: set[str] = set()
        self._number = 0
        self._results: list[CommandResult] = []
        self._next_report_ns = 0
        self._trap, self._lease_until_ns, self._hold_until_ns = 0, 0, 0

    def command(self, command: Command) -> None:
        """Obey it, or refuse it."""
        reason, order = "", None
        if not self._keys.have_signed(command):
            reason = "forged"
        else:
            try:
                order = read_order(command.order)
            except MalformedMessage:
                reason = "damaged"
        if order is not None:
            now_ns = self._unix_ns(order)
            if order.job != self.name:
                reason = "foreign"
            elif order.id in self._seen:
                reason = "replayed"
            elif order.expires_ns <= now_ns:
                reason = "expired"
            self._seen.add(order.id)
        if reason:
            self.refused.append(reason)
            self._say(order, refused=reason, reason=f"it is {reason}")
        elif order is not None:
            self._obey(order)

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What was answered since the last time."""
        found, self._results = self._results, []
        return found, after

    @property
    def is_holding(self) -> bool:
        """Whether ranks stand still, or are about to."""
        return self._trap != 0

    def advance(self, for_ns: int) -> None:
        """Let time pass: ranks go on, leases end, and where the ranks are is said."""
        while for_ns > 0:
            self._look(min(for_ns, LOOKS_EVERY_NS))
            for_ns -= LOOKS_EVERY_NS

    def _look(self, for_ns: int) -> None:
        self.now_ns += for_ns
        if self._trap and self.now_ns >= min(self._lease_until_ns, self._hold_until_ns):
            self._let_go("the controller says nothing more")
        self.job.advance(for_ns)
        self._tell_of_measuring()
        self.scripts.look(self.now_ns)
        if self.now_ns >= self._next_report_ns:
            self._next_report_ns = self.now_ns + REPORT_NS
            if self._trap:
                self._say(None, what="hold", trap=self._trap, ranks=True)
            self.scripts.say()

    def _obey(self, order: Order) -> None:
        match order.what:
            case Locate():
                self._say(order, ranks=True, rendezvous=True)
            case Hold() as what:
                if self._trap not in (0, what.trap):
                    self._cannot(order, "another hold is under way here")
                    return
                self._trap, self.job.stops_after = what.trap, what.round
                self._lease_until_ns = self.now_ns + what.lease_ms * 1_000_000
                self._hold_until_ns = self.now_ns + what.hold_ms * 1_000_000
                self._say(order, trap=what.trap, ranks=True)
            case Keep() as what:
                if what.trap != self._trap:
                    self._cannot(order, "there is no such hold here")
                    return
                self._lease_until_ns = self.now_ns + what.lease_ms * 1_000_000
            case Release() as what:
                if not self._trap or what.trap not in (ANY_TRAP, self._trap):
                    self._cannot(order, "there is no such hold here")
                    return
                self._say(order, trap=self._trap)
                self._let_go("")
            case Prepare() as what:
                if reason := self.measuring.prepare(what, self.now_ns):
                    self._cannot(order, reason)
            case Measure():
                self.measuring.go(self.now_ns)
            case Dismiss():
                self.measuring.dismiss()
            case Wake() as what:
                self._wake(order, what)
            case Profile() as what:
                self.profiled_until_ns = self.now_ns + what.for_ms * 1_000_000
                self._say(order, ranks=True)
            case Offer() | Apply() | Confirm() | Withdraw() as what:
                if reason := self.scripts.obey(what, self.now_ns):
                    self._cannot(order, reason)

    def _let_go(self, why: str) -> None:
        if why:
            self._say(None, what="hold", trap=self._trap, ranks=True, state="released", why=why)
        self._trap, self.job.stops_after = 0, None

    def _wake(self, order: Order, what: Wake) -> None:
        for number, own in enumerate(self.hosts):
            answers = []
            for rank, pid in what.processes:
                if rank not in own:
                    continue
                if (process := self.stopped.get(rank)) == pid:
                    del self.stopped[rank]
                    answers.append(RankAnswer(rank=rank, state="running"))
                else:
                    why = f"rank {rank} is process {process} by now, and not {pid}"
                    answers.append(RankAnswer(rank=rank, state="refused", why=why))
            self._say(order, only=number, answers=tuple(answers))

    def _tell_of_measuring(self) -> None:
        found = self.measuring.look(self.now_ns)
        if found is None:
            return
        for number, ranks in enumerate(self.hosts):
            ready = tuple(rank for rank in found.ready if rank in ranks)
            judged = found.judged if number == 0 else ()
            if ready or judged:
                self._say(None, what="prepare", only=number, trap=found.trap, ready=ready, judged=judged)

    def _cannot(self, order: Order, reason: str) -> None:
        what = order.what
        trap, ticket = getattr(what, "trap", 0), getattr(what, "ticket", 0)
        self._say(order, refused="cannot", reason=reason, trap=trap, ticket=ticket)

    def _tell_of_scripts(self, ticket: int, answer: Callable[[int], TrainerAnswer]) -> None:
        for number, ranks in enumerate(self.hosts):
            self._say(None, what="offer", only=number, ticket=ticket, trainers=tuple(map(answer, ranks)))

    def _say(
        self,
        order: Order | None,
        *,
        what: str = "",
        only: int | None = None,
        ranks: bool = False,
        answers: tuple[RankAnswer, ...] = (),
        state: RankState | None = None,
        why: str = "",
        rendezvous: bool = False,
        **said: Any,
    ) -> None:
        """One answer of each host, or of one."""
        standing: RankState = "running" if not self._trap else ("held" if self.job.is_still else "armed")
        for number, own in enumerate(self.hosts):
            if only not in (None, number):
                continue
            self._number += 1
            per_s = ROUNDS_PER_STEP / self.job.iteration_s
            standing_now = [
                RankAnswer(rank=rank, state=state or standing, launched=self.job.launched, per_s=per_s, why=why)
                for rank in own
            ]
            self._results.append(
                CommandResult(
                    job=self.name,
                    attempt=self.attempt,
                    time_ns=self.now_ns,
                    host=f"h{number}",
                    number=self._number,
                    order=order.id if order is not None else "",
                    what=order.what_name if order is not None else what,
                    incident=order.incident if order is not None else "",
                    world_size=len(self.job.slowness),
                    ranks=tuple(standing_now) if ranks else answers,
                    rendezvous=f"10.0.0.{number}:29400" if rendezvous else "",
                    **said,
                )
            )

    def _unix_ns(self, order: Order) -> int:
        """Its clock is right: the first order that comes says what time it is."""
        if self._start_ns is None:
            self._start_ns = order.issued_ns - self.now_ns
        return self._start_ns + self.now_ns
