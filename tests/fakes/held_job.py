"""A job of several hosts in simulated time: ranks, an agent's orders on each host, a controller, and a slow network."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

from actuators.control.holding import HoldProcedure
from collector.agent.holding import Holder
from collector.agent.measuring import Measuring
from collector.agent.obedience import Obedience
from collector.agent.orders import HostNow, OrderBook
from collector.agent.profiling import Profiling
from collector.agent.trainer_listener import TrainerListener
from collector.agent.trainers import Trainers
from pacehound.bus.signing import Keys, Signer
from pacehound.model.events import Command, CommandResult
from pacehound.model.orders import new_order
from tests.fakes.held_ranks import SimulatedRank

JOB = "j"
STEP_NS = 10_000_000
MS = 1_000_000
TIMEOUT_MS = 600_000
EPOCH_NS = 1_800_000_000_000_000_000


class Host:
    """An agent and its ranks."""

    def __init__(self, name: str, ranks: list[SimulatedRank], folder: Path, world_size: int, key: str) -> None:
        self.name, self.ranks = name, ranks
        self._folder, self._world_size, self._key = folder, world_size, key
        self.orders: OrderBook | None = None
        self.start()

    def start(self) -> None:
        """An agent begins; it knows nothing of holds."""
        holder = Holder(self._folder)
        self.orders = OrderBook(
            Obedience(Keys([self._key]), JOB, self.name),
            holder,
            Measuring(self._folder / "measuring", self.name),
            Profiling(holder.block_of, None, lambda until_ns, now_ns: None),
            Trainers(TrainerListener(self._folder)),
            JOB,
            self.name,
        )

    def step(self, commands: list[Command], now_ns: int) -> list[CommandResult]:
        """The agent's step, where it lives."""
        if self.orders is None:
            return []
        host = HostNow(
            processes=tuple(rank.process for rank in self.ranks if rank.is_alive),
            timeouts_ms={0: TIMEOUT_MS},
            world_sizes={0: self._world_size},
            now_ns=now_ns,
            unix_ns=EPOCH_NS + now_ns,
        )
        return [*self.orders.take(commands, host), *self.orders.step(host)]


class HeldJob:
    """All of it; `step` lets 10 ms pass.

    Parameters
    ----------
    hosts, ranks_per_host
        How large it is.
    rounds_per_s
        How fast its ranks launch rounds.
    chance
        Draws delays; commands and answers take 20 to 600 ms, in order for each host.

    """

    def __init__(
        self, folder: Path, chance: random.Random, *, hosts: int = 2, ranks_per_host: int = 2, rounds_per_s: float = 50
    ) -> None:
        n_ranks = hosts * ranks_per_host
        self.ranks = [SimulatedRank(folder / f"host{rank // ranks_per_host}", rank) for rank in range(n_ranks)]
        self.signer = Signer.drawn()
        self.hosts = [
            Host(
                f"host{host}",
                self.ranks[host * ranks_per_host :][:ranks_per_host],
                folder / f"host{host}",
                n_ranks,
                self.signer.key,
            )
            for host in range(hosts)
        ]
        self.now_ns = 1_000_000_000
        self.controller: HoldProcedure | None = None
        self._chance = chance
        self._every = max(round(1e9 / rounds_per_s / STEP_NS), 1)
        self._number = 0
        self._to_hosts: list[deque[tuple[int, Command]]] = [deque() for _ in range(hosts)]
        self._to_controller: list[deque[tuple[int, CommandResult]]] = [deque() for _ in range(hosts)]
        self._last_ns = [0] * (2 * hosts)

    def hold(self, hold_s: float) -> HoldProcedure:
        """A controller begins."""
        self.controller = HoldProcedure(1 + self.now_ns, round(hold_s * 1e9), self.now_ns)
        return self.controller

    def step(self) -> None:
        """10 ms."""
        self.now_ns += STEP_NS
        slowest = min((rank.launched for rank in self.ranks), default=0)
        is_due = self.now_ns // STEP_NS % self._every == 0
        for rank in self.ranks:
            # A round ends when all have come to it: nobody is more than one ahead. A dead rank is waited for.
            rank.step(self.now_ns, may_launch=is_due and rank.launched <= slowest)
        for number, host in enumerate(self.hosts):
            arrived = []
            while self._to_hosts[number] and self._to_hosts[number][0][0] <= self.now_ns:
                arrived.append(self._to_hosts[number].popleft()[1])
            for result in host.step(arrived, self.now_ns):
                at_ns = self._later(len(self.hosts) + number)
                self._to_controller[number].append((at_ns, result))
        results = []
        for waiting in self._to_controller:
            while waiting and waiting[0][0] <= self.now_ns:
                results.append(waiting.popleft()[1])
        if self.controller is not None:
            for what in self.controller.step(results, self.now_ns):
                self._number += 1
                order = new_order(
                    what,
                    job=JOB,
                    attempt=0,
                    issuer="a",
                    number=self._number,
                    now_ns=EPOCH_NS + self.now_ns,
                    lives_ns=10_000_000_000,
                    why="a test",
                )
                command = self.signer.signed(order)
                for number in range(len(self.hosts)):
                    self._to_hosts[number].append((self._later(number), command))

    def _later(self, link: int) -> int:
        at_ns = max(self.now_ns + self._chance.randrange(20, 600) * MS, self._last_ns[link] + 1)
        self._last_ns[link] = at_ns
        return at_ns

    def close(self) -> None:
        """Let go of the files."""
        for host in self.hosts:
            if host.orders is not None:
                host.orders.close()
        for rank in self.ranks:
            rank.close()
