"""A controller of the trap for tests, as the control channel will be one: arm, gather, validate, release."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.agent.control_block import Command, ControlBlock, Phase, Why

GATHER_NS = 20_000_000_000


class NoWorldCollective(Exception):
    """The job has no collective of all ranks to stop at; its control channel's step must do."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt went: `validated`, `refused` or `late`, and what each rank answered last."""

    how: str
    answers: tuple[tuple[Phase, Why], ...]
    arrived_ns: tuple[int, ...] = ()
    round_number: int = -1


class Controller:
    """Of all ranks of a job, in the order of their ranks."""

    def __init__(self, blocks: Sequence[ControlBlock], timeout_ms: int = 600_000) -> None:
        self.blocks = blocks
        self.timeout_ms = timeout_ms
        self.trap_id = 0

    def next_round(self, ahead: int, patience_s: float = 2.0) -> int:
        """A round that no rank has come to yet.

        Raises
        ------
        NoWorldCollective
            No rank has launched one within an iteration's time.
        """
        before = [block.world_launched for block in self.blocks]
        deadline = time.monotonic() + patience_s
        while any(block.world_launched <= count for block, count in zip(self.blocks, before, strict=True)):
            if time.monotonic() > deadline:
                raise NoWorldCollective(f"world collectives launched: {before}, and none in {patience_s} s")
            time.sleep(0.001)
        return max(block.world_launched for block in self.blocks) + ahead

    def arm(self, round_number: int, hold_ms: int = 10_000) -> int:
        self.trap_id = time.monotonic_ns()
        for block in self.blocks:
            block.arm(
                self.trap_id, round_number, hold_ms=hold_ms, timeout_ms=self.timeout_ms, now_ns=time.monotonic_ns()
            )
        return self.trap_id

    def beat(self) -> None:
        for block in self.blocks:
            block.beat(time.monotonic_ns())

    def command(self, command: Command) -> None:
        for block in self.blocks:
            block.command(command)

    def answers(self) -> tuple[tuple[Phase, Why], ...]:
        return tuple(block.answer(self.trap_id) for block in self.blocks)

    def gather(self, gather_ns: int = GATHER_NS, each_look: Callable[[], None] = lambda: None) -> str:
        """Until all ranks are held and drained (`held`), one refuses (`refused`), or not all came in time (`late`)."""
        first_ns = 0
        while True:
            self.beat()
            each_look()
            now_ns, answers = time.monotonic_ns(), self.answers()
            phases = [phase for phase, _ in answers]
            if Phase.REFUSED in phases or Phase.RELEASED in phases:
                return "refused"
            if Phase.HELD in phases and not first_ns:
                first_ns = now_ns
            if all(phase == Phase.HELD and block.drained_ns for phase, block in zip(phases, self.blocks, strict=True)):
                return "held"
            if first_ns and now_ns - first_ns > gather_ns:
                return "late"
            time.sleep(0.001)

    def attempt(self, ahead: int, *, validate_s: float = 0.0, gather_ns: int = GATHER_NS) -> Outcome:
        """All of it, once."""
        round_number = self.next_round(ahead)
        self.arm(round_number)
        how = self.gather(gather_ns)
        if how == "held":
            how = "validated"
            self.command(Command.VALIDATING)
            until_ns = time.monotonic_ns() + int(validate_s * 1e9)
            while time.monotonic_ns() < until_ns:
                self.beat()
                time.sleep(0.001)
        arrived = tuple(block.arrived_ns for block in self.blocks)
        answers = self.answers()
        self.command(Command.RELEASE)
        return Outcome(how, answers, arrived, round_number)


def blocks_of(run_dir: Path, pids: Sequence[int]) -> list[ControlBlock]:
    """The control blocks of these processes, as soon as they are there."""
    deadline = time.monotonic() + 30
    paths = [run_dir / "control" / f"{pid}.control" for pid in pids]
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"{paths} are not there"
        time.sleep(0.005)
    return [ControlBlock(path) for path in paths]


def goes_on(blocks: Sequence[ControlBlock], timeout_s: float = 20.0, rounds: int = 2) -> bool:
    """Whether every rank comes so many rounds further."""
    goals = [block.world_launched + rounds for block in blocks]
    deadline = time.monotonic() + timeout_s
    while any(block.world_launched < goal for block, goal in zip(blocks, goals, strict=True)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True
