"""Holds the ranks of this host for a controller that is somewhere else (collector/native/shim_trap.c does the holding).

The controller's lease is passed on to the control blocks: while it lasts they are told that somebody lives, and when it
has ended the hold is. An agent that dies tells them nothing more, and they end it by themselves after two seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from collector.agent.control_block import Command, ControlBlock, Phase, UnreadableControl, Why
from collector.host.rank_process import RankProcess
from pacehound.model.events.calls_of_hosts import HOLD_BEGIN, HOLD_END
from pacehound.model.events.control import RankAnswer, RankState
from pacehound.model.orders import ANY_TRAP, Hold, Keep, Release

REPORT_NS = 500_000_000
"""So often the controller hears of a hold in which nothing changes: it knows by it that this agent lives."""

UNTOLD_TIMEOUT_MS = 60_000
"""Of process groups that do not say theirs: less than anybody sets, so that a quarter of it is safe."""

_NO_BLOCK = "it has no control block: `pacehound doctor --build` on its host, and start the job again"
_STATES: dict[Phase, RankState] = {
    Phase.NONE: "running", Phase.ARMED: "armed", Phase.HELD: "held", Phase.RELEASED: "released",
    Phase.REFUSED: "refused",
}  # fmt: skip
_WHY = {
    Why.COMMAND: "as it was told", Why.DEAD: "the controller says nothing more", Why.LATE: "not all ranks had come",
    Why.LIMIT: "as long as a hold may last", Why.PASSED: "it had passed the round", Why.ABORT: "a group was aborted",
    Why.NO_WORLD: "it is in no group of all ranks", Why.NO_LIMIT: "the hold has no limit",
}  # fmt: skip


class Mark(NamedTuple):
    """A rank began to stand still, or went on; `name` as in MARKER_NAMES, monotonic time."""

    process: RankProcess
    name: str
    time_ns: int


@dataclass(slots=True)
class _Held:
    """One process, and what is known of how fast it goes."""

    process: RankProcess
    block: ControlBlock
    seen_ns: int = 0
    seen_launched: int = 0
    per_s: float = 0.0
    is_marked: bool = False

    def look(self, now_ns: int) -> None:
        launched = self.block.world_launched
        if now_ns > self.seen_ns:
            if self.seen_ns:
                self.per_s = max(launched - self.seen_launched, 0) / ((now_ns - self.seen_ns) / 1e9)
            self.seen_ns, self.seen_launched = now_ns, launched


class Holder:
    """The control blocks of one host's ranks.

    Parameters
    ----------
    folder
        `<run folder>/control`.

    Attributes
    ----------
    trap
        The hold that is under way; 0: none.
    marks
        When ranks began to stand still, and went on: taken away by whoever tells of it, for they were not slow.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[int, _Held] = {}
        self.trap = 0
        self._round = 0
        self.marks: list[Mark] = []
        self._trapped: list[_Held] = []
        self._why_so_short = ""
        self._lease_until_ns = 0
        self._next_report_ns = 0
        self._said: tuple[tuple[int, RankState], ...] = ()

    @property
    def is_holding(self) -> bool:
        """Whether ranks stand still, or are about to."""
        return self.trap != 0

    def locate(self, processes: Iterable[RankProcess], timeout_ms: int, now_ns: int) -> tuple[RankAnswer, ...]:
        """How far each rank is, and for how long it may be held; what has no control block is `absent`."""
        answers = []
        for process in processes:
            held = self._open(process)
            if isinstance(held, str):
                answers.append(RankAnswer(rank=process.rank, state="absent", why=held))
                continue
            held.look(now_ns)
            answers.append(replace(self._answer(held), hold_limit_ms=_hold_limit_ms(timeout_ms)))
        return tuple(answers)

    def hold(self, what: Hold, processes: Iterable[RankProcess], timeout_ms: int, now_ns: int) -> str:
        """Arm every one of the processes, or none; why it cannot be, else nothing."""
        if self.trap and what.trap != self.trap:
            return "another hold is under way here"
        opened = [self._open(process) for process in processes]
        reasons = [one for one in opened if isinstance(one, str)]
        if reasons:
            return reasons[0]
        self._trapped = [one for one in opened if isinstance(one, _Held)]
        self.trap, self._round = what.trap, what.round
        self._lease_until_ns = now_ns + what.lease_ms * 1_000_000
        self._next_report_ns = 0
        timeout_ms = timeout_ms or UNTOLD_TIMEOUT_MS
        self._why_so_short = ""
        if _hold_limit_ms(timeout_ms) < what.hold_ms:
            self._why_so_short = f", a quarter of the {timeout_ms / 1e3:g} s after which its process groups give up"
        for held in self._trapped:
            held.block.arm(what.trap, what.round, hold_ms=what.hold_ms, timeout_ms=timeout_ms, now_ns=now_ns)
        return ""

    def keep(self, what: Keep, now_ns: int) -> str:
        """The controller lives."""
        if what.trap != self.trap:
            return "there is no such hold here"
        self._lease_until_ns = now_ns + what.lease_ms * 1_000_000
        if what.all_held:
            for held in self._trapped:
                held.block.command(Command.VALIDATING)
        return ""

    def release(self, what: Release, now_ns: int) -> str:
        """End the hold."""
        if not self.trap or what.trap not in (ANY_TRAP, self.trap):
            return "there is no such hold here"
        self._let_go(now_ns)
        return ""

    def step(self, alive: frozenset[int], now_ns: int) -> tuple[RankAnswer, ...]:
        """Pass the lease on, or end a hold whose lease is over; what the controller is to hear now, else nothing.

        A rank whose process is not among those `alive` is `absent`: the others wait for nothing.
        """
        if not self.trap:
            return ()
        is_over = now_ns >= self._lease_until_ns
        for held in self._trapped:
            if is_over:
                held.block.command(Command.RELEASE)
            else:
                held.block.beat(now_ns)
        self._mark(now_ns)
        answers = tuple(
            answer if held.process.pid in alive else replace(answer, state="absent", why=_gone(held.process))
            for held, answer in zip(self._trapped, self.answers(now_ns), strict=True)
        )
        states = tuple((answer.rank, answer.state) for answer in answers)
        if is_over or all(state in ("released", "refused") for _, state in states):
            self._let_go(now_ns)
            return tuple(_let_go_by_itself(one) if is_over else one for one in answers)
        if states == self._said and now_ns < self._next_report_ns:
            return ()
        self._said, self._next_report_ns = states, now_ns + REPORT_NS
        return answers

    def answers(self, now_ns: int) -> tuple[RankAnswer, ...]:
        """Where each rank of the hold is."""
        for held in self._trapped:
            held.look(now_ns)
        return tuple(self._answer(held) for held in self._trapped)

    def close(self) -> None:
        """Nobody stays held by an agent that leaves."""
        for held in self._trapped:
            held.block.command(Command.RELEASE)
        for held in self._known.values():
            held.block.close()
        self._known.clear()

    def _mark(self, now_ns: int) -> None:
        for held in self._trapped:
            phase, _ = held.block.answer(self.trap)
            if phase == Phase.HELD and not held.is_marked:
                held.is_marked = True
                self.marks.append(Mark(held.process, HOLD_BEGIN, min(held.block.arrived_ns, now_ns)))
            elif phase != Phase.HELD:
                self._mark_end(held, now_ns)

    def _mark_end(self, held: _Held, now_ns: int) -> None:
        if held.is_marked:
            held.is_marked = False
            self.marks.append(Mark(held.process, HOLD_END, now_ns))

    def _let_go(self, now_ns: int) -> None:
        for held in self._trapped:
            held.block.command(Command.RELEASE)
            self._mark_end(held, now_ns)
        self.trap, self._trapped, self._said = 0, [], ()

    def _answer(self, held: _Held) -> RankAnswer:
        launched = held.block.world_launched
        phase, why = held.block.answer(self.trap) if self.trap else (Phase.NONE, Why.NONE)
        if self.trap and phase == Phase.NONE and launched > self._round:
            # As it will say at its next call, if it comes to one: in the one it is in it waits for those that are held.
            phase, why = Phase.REFUSED, Why.PASSED
        return RankAnswer(
            rank=held.process.rank,
            state=_STATES[phase],
            launched=launched,
            per_s=held.per_s,
            held_ns=held.block.arrived_ns if phase == Phase.HELD else 0,
            why=_WHY.get(why, "") + (self._why_so_short if why is Why.LIMIT else ""),
        )

    def block_of(self, process: RankProcess) -> ControlBlock | str:
        """The control block of a process, or why there is none."""
        found = self._open(process)
        return found if isinstance(found, str) else found.block

    def _open(self, process: RankProcess) -> _Held | str:
        known = self._known.get(process.pid)
        if known is not None and known.process.start_ticks == process.start_ticks:
            return known
        try:
            own_pid = process.pid if process.own_pid is None else process.own_pid
            block = ControlBlock(self._folder / f"{own_pid}.control")
        except FileNotFoundError:
            return f"rank {process.rank} cannot be held: {_NO_BLOCK}"
        except (UnreadableControl, OSError) as error:
            return f"rank {process.rank} cannot be held: {error}"
        if block.start_ticks != process.start_ticks:
            block.close()
            return f"rank {process.rank} cannot be held: its control block is another process's"
        if known is not None:
            known.block.close()
        self._known[process.pid] = _Held(process, block)
        return self._known[process.pid]


def _hold_limit_ms(timeout_ms: int) -> int:
    """A quarter of what its process groups wait, as collector/native/shim_trap.c has it."""
    return (timeout_ms or UNTOLD_TIMEOUT_MS) // 4


def _let_go_by_itself(answer: RankAnswer) -> RankAnswer:
    """The lease was over; what the rank had answered by then is not what comes of it."""
    return replace(answer, state="released", held_ns=0, why=answer.why or _WHY[Why.DEAD])


def _gone(process: RankProcess) -> str:
    return f"the process of rank {process.rank} has ended"
