"""Training ranks that answer their control blocks as collector/native/shim_trap.c does, in simulated time."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from collector.agent import control_block as at
from collector.agent.control_block import Command, Phase, Why
from collector.host.rank_process import RankProcess

DEAD_NS, GATHER_NS = 2_000_000_000, 20_000_000_000


class SimulatedRank:
    """One rank's process: it launches rounds, unless it is held."""

    def __init__(self, folder: Path, rank: int, *, attempt: int = 0, pid: int | None = None) -> None:
        self.process = RankProcess(attempt=attempt, rank=rank, pid=pid or 1000 + rank, start_ticks=7)
        self.is_alive = True
        self.held_since_ns = 0
        path = folder / f"{self.process.pid}.control"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(at.BLOCK_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), at.BLOCK_BYTES)
        at.HEADER.pack_into(self._map, 0, at.MAGIC, at.VERSION, self.process.pid, 7, rank)
        self._trap = 0
        self._phase = Phase.NONE

    @property
    def launched(self) -> int:
        """Rounds so far."""
        return self._long(at.WORLD_LAUNCHED)

    @property
    def is_held(self) -> bool:
        """Whether it stands still for a controller."""
        return self.is_alive and self._phase == Phase.HELD

    def step(self, now_ns: int, *, may_launch: bool) -> None:
        """Look at the block, as before a call; then launch a round, unless held or its peers are behind."""
        if not self.is_alive:
            return
        self._look(now_ns)
        if self._phase != Phase.HELD and may_launch:
            self._put(at.WORLD_LAUNCHED, self.launched + 1)

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()

    def _look(self, now_ns: int) -> None:
        trap = self._long(at.TRAP_ID)
        if trap == 0:
            return
        if trap != self._trap:
            self._trap = trap
            self._put(at.ARRIVED_NS, 0)
            if self._short(at.COMMAND) == Command.RELEASE:
                self._answer(Phase.REFUSED, Why.COMMAND)
            elif not self._is_lease_alive(now_ns):
                self._answer(Phase.REFUSED, Why.DEAD)
            elif self.launched > self._long(at.ROUND):
                self._answer(Phase.REFUSED, Why.PASSED)
            else:
                self._answer(Phase.ARMED, Why.NONE)
        if self._phase == Phase.ARMED:
            if not self._is_lease_alive(now_ns):
                self._answer(Phase.REFUSED, Why.DEAD)
            elif self._short(at.COMMAND) == Command.RELEASE:
                self._answer(Phase.RELEASED, Why.COMMAND)
            elif self.launched > self._long(at.ROUND):
                self.held_since_ns = now_ns
                self._put(at.ARRIVED_NS, now_ns)
                self._answer(Phase.HELD, Why.NONE)
        if self._phase == Phase.HELD:
            command, held_ns = self._short(at.COMMAND), now_ns - self.held_since_ns
            limit_ns = min(self._short(at.HOLD_MS) * 10**6, self._short(at.TIMEOUT_MS) * 250_000)
            if command not in (Command.GATHERING, Command.VALIDATING):
                self._answer(Phase.RELEASED, Why.COMMAND)
            elif not self._is_lease_alive(now_ns):
                self._answer(Phase.RELEASED, Why.DEAD)
            elif command != Command.VALIDATING and held_ns > GATHER_NS:
                self._answer(Phase.RELEASED, Why.LATE)
            elif held_ns > limit_ns:
                self._answer(Phase.RELEASED, Why.LIMIT)

    def _is_lease_alive(self, now_ns: int) -> bool:
        return now_ns - self._long(at.HEARTBEAT_NS) < DEAD_NS

    def _answer(self, phase: Phase, why: Why) -> None:
        self._phase = phase
        struct.pack_into("<II", self._map, at.PHASE, phase, why)
        self._put(at.ANSWERS_ID, self._trap)

    def _long(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self._map, offset)[0])

    def _short(self, offset: int) -> int:
        return int(struct.unpack_from("<I", self._map, offset)[0])

    def _put(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self._map, offset, value)
