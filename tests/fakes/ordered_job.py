"""A job whose scripts take orders, in simulated time: real sockets and tokens, a network that loses and reorders."""

from __future__ import annotations

import random
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from actuators.control.applying import ApplyProcedure
from collector.agent.trainer_listener import TrainerListener
from collector.agent.trainers import Trainers
from collector.host.rank_process import RankProcess
from pacehound.model.events import CommandResult
from pacehound.model.orders import Apply, Confirm, Offer, What, Withdraw
from pacehound.trainer import Control, Order
from pacehound.trainer.meeting import Peer, credentials

MS = 1_000_000
STEP_NS = 50 * MS
KIND = "microbatches"
AGREE_EVERY = 4


class Clock:
    """Stands in for the module `time` in a rank."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000 * MS

    def monotonic_ns(self) -> int:
        return self.now_ns


class Rank:
    """A process that makes steps; its all-reduce is the job's (`OrderedJob.together`)."""

    def __init__(self, folder: Path, rank: int, world_size: int, *, agrees: bool, micro_batches: int = 0) -> None:
        self.rank, self.is_alive, self.step = rank, True, 0
        self.applied: dict[int, int] = {}
        self.waits_with: int | None = None
        self.counts = [micro_batches] * world_size
        hello = {"rank": rank, "world_size": world_size, "attempt": 0, "micro_batches": micro_batches}
        self.control = Control(
            str(folder), [KIND], agree=(lambda _: [0, 0]) if agrees else None, agree_every=AGREE_EVERY, hello=hello
        )

    def arrive(self, *, agrees: bool) -> bool:
        """The first half of `Control.at_step`, and all of it where ranks do not agree; whether it waits for others."""
        if not agrees:
            self.note(self.control.at_step(self.step))
            return False
        control, step = self.control, self.step
        may_apply = 0 < control._point <= step
        ticket = control._before(step, may_apply=may_apply)
        if step >= control._point:
            control._point = (step // AGREE_EVERY + 1) * AGREE_EVERY
        if not may_apply:
            self.note(control._after(step, is_decided=False, is_agreed=False))
            return False
        self.waits_with = ticket
        return True

    def note(self, order: Order | None) -> None:
        if order is not None:
            assert order.ticket not in self.applied, "applied twice"
            self.applied[order.ticket] = self.step
            self.counts = order.payload or self.counts
        self.step += 1

    def die(self) -> None:
        self.is_alive = False
        self.control._agent.hang_up()


class Host:
    """An agent and its ranks."""

    def __init__(self, folder: Path, name: str, world_size: int) -> None:
        self.folder, self.name, self.world_size = folder, name, world_size
        self.ranks: list[Rank] = []
        self.meant: tuple[int, ...] = ()  # by orders; empty: all
        self.number = 0
        self.trainers: Trainers | None = None
        self.start()

    def start(self) -> None:
        """An agent begins; it knows of no offer. The kernel would say that all ranks are this process."""
        self.trainers = Trainers(TrainerListener(self.folder, self._who))

    def _who(self, connection: socket.socket) -> Peer:
        return Peer(0, credentials(connection).uid)

    def die(self) -> None:
        """What kill -9 does: the kernel hangs up, and nothing is said."""
        if self.trainers is not None:
            self.trainers.listener.close()
            self.trainers = None

    def look(self, orders: list[What], now_ns: int) -> list[CommandResult]:
        trainers = self.trainers
        if trainers is None:
            return []
        here = [one.rank for one in self.ranks if not self.meant or one.rank in self.meant]
        processes = [RankProcess(attempt=0, rank=rank, pid=100 + rank, start_ticks=1) for rank in here]
        trainers.look([])
        results = []
        for what in orders:
            reason = ""
            match what:
                case Offer():
                    reason = trainers.offer(what, "a test", 0, processes, now_ns, self.meant)
                case Apply():
                    reason = trainers.apply(what, now_ns)
                case Confirm():
                    reason = trainers.confirm(what)
                case Withdraw():
                    reason = trainers.withdraw(what)
            name = what.__struct_config__.tag
            if reason:
                refused: Any = {"refused": "cannot", "reason": reason, "what": name, "ticket": what.ticket}  # type: ignore[union-attr]
                results.append(replace(self._result(now_ns), **refused))
            elif isinstance(what, Withdraw):
                told = trainers.answers()
                results.append(replace(self._result(now_ns), what=name, ticket=what.ticket, trainers=told))
        if answers := trainers.step(now_ns):
            results.append(replace(self._result(now_ns), ticket=trainers.told_of, trainers=answers))
        late, trainers.late = trainers.late, []
        results += [replace(self._result(now_ns), ticket=ticket, trainers=(one,)) for ticket, one in late]
        return results

    def _result(self, now_ns: int) -> CommandResult:
        self.number += 1
        return CommandResult(
            job="j", attempt=0, time_ns=now_ns, host=self.name, number=self.number, world_size=self.world_size
        )


class Controller(Protocol):
    """Who gives orders, and hears what agents answer."""

    def step(self, results: list[CommandResult], now_ns: int) -> list[What]:
        """What they are told now."""
        ...


class OrderedJob:
    """All of it; `step` lets 50 ms pass.

    Parameters
    ----------
    agrees
        Ranks have an all-reduce of their own, and make their steps together.
    loss
        How many of the messages are lost, doubled, or delayed for long; without, they come within 0.6 s and in order.
    per_s
        Steps of the ranks, at most 20.
    micro_batches
        Of each rank, as long as no order says otherwise; 0: its script does not say.

    """

    def __init__(
        self,
        folder: Path,
        chance: random.Random,
        *,
        hosts: int,
        ranks: int,
        agrees: bool,
        loss: float,
        per_s: float,
        micro_batches: int = 0,
    ) -> None:
        self.clock = Clock()
        self._patched = mock.patch("pacehound.trainer.control.time", self.clock)
        self._patched.start()
        self._folder = folder
        self.chance, self.agrees, self.loss, self.per_s = chance, agrees, loss, per_s
        self.hosts: list[Host] = []
        for number in range(hosts):
            (folder / f"h{number}").mkdir(parents=True)
            self.hosts.append(Host(folder / f"h{number}", f"h{number}", hosts * ranks))
        self.ranks: list[Rank] = []
        for rank in range(hosts * ranks):
            host = self.hosts[rank // ranks]
            self.ranks.append(Rank(host.folder, rank, hosts * ranks, agrees=agrees, micro_batches=micro_batches))
            host.ranks.append(self.ranks[-1])
        self.controller: Controller | None = None
        self.network_is_up = True
        self._to_hosts: list[list[tuple[int, What]]] = [[] for _ in range(hosts)]
        self._to_controller: list[tuple[int, CommandResult]] = []
        self._last_ns: dict[object, int] = {}

    def order(self, ticket: int = 1) -> ApplyProcedure:
        self.controller = order = ApplyProcedure(ticket, KIND, "[1,2]", 20_000 * MS, self.clock.now_ns)
        return order

    def step(self) -> None:
        self.clock.now_ns += STEP_NS
        now_ns = self.clock.now_ns
        self._step_ranks()
        for number, host in enumerate(self.hosts):
            for result in host.look(self._arrived(self._to_hosts[number]), now_ns):
                self._send(self._to_controller, result, host.name)
        if self.controller is not None:
            for what in self.controller.step(self._arrived(self._to_controller), now_ns):
                for number in range(len(self.hosts)):
                    self._send(self._to_hosts[number], what, number)

    def _step_ranks(self) -> None:
        slowest = min(rank.step for rank in self.ranks)
        for rank in self.ranks:
            if not rank.is_alive or rank.waits_with is not None:
                continue
            # Without an all-reduce nobody waits for anybody, and all go at about the same pace.
            if (self.agrees and rank.step > slowest) or self.chance.random() > self.per_s * STEP_NS / 1e9:
                continue
            rank.arrive(agrees=self.agrees)
        if all(rank.waits_with is not None for rank in self.ranks if rank.step == slowest) and all(
            rank.is_alive and rank.step == slowest for rank in self.ranks
        ):
            self._together(slowest)

    def _together(self, step: int) -> None:
        """The all-reduce of all ranks; one that has died is waited for in vain."""
        tickets = {rank.waits_with for rank in self.ranks}
        for rank in self.ranks:
            is_agreed = len(tickets) == 1 and bool(rank.waits_with)
            rank.waits_with = None
            rank.note(rank.control._after(step, is_decided=True, is_agreed=is_agreed))

    def _send(self, queue: list[Any], message: Any, link: object) -> None:
        if not self.network_is_up:
            return
        if self.loss:
            for _ in range(self.chance.choices([0, 1, 2], [self.loss, 1 - 2 * self.loss, self.loss])[0]):
                most_ms = 8_000 if self.chance.random() < self.loss else 600
                queue.append((self.clock.now_ns + self.chance.randrange(20, most_ms) * MS, message))
            return
        at_ns = self.clock.now_ns + self.chance.randrange(20, 600) * MS
        self._last_ns[link, id(queue)] = at_ns = max(at_ns, self._last_ns.get((link, id(queue)), 0) + 1)
        queue.append((at_ns, message))

    def _arrived(self, queue: list[tuple[int, Any]]) -> list[Any]:
        due = sorted((one for one in queue if one[0] <= self.clock.now_ns), key=lambda one: one[0])
        queue[:] = [one for one in queue if one[0] > self.clock.now_ns]
        return [message for _, message in due]

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 1e9 / STEP_NS)):
            self.step()

    def close(self) -> None:
        for host in self.hosts:
            host.die()
        for rank in self.ranks:
            rank.die()
        self._patched.stop()
        shutil.rmtree(self._folder)
