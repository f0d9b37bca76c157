"""The step that nobody gets out of, call by call: what one rank's departure from the common order does to all.

Unlike the steps before it, which are computed for all ranks at once, every rank has a program of its own here. Calls
match as they do in NCCL and gloo: the n-th call of a rank on a communicator meets the n-th of each other member,
whatever they are; where operation or size differ, or a member never comes, nobody gets out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.faults import DeadDevice, SymmetricHang, WrongCall
from simulator.members import groups_of
from simulator.program import Action, CommunicatorKind, StageProgram, Step, stage_steps
from simulator.spec import JobSpec

FloatArray = npt.NDArray[np.float64]

LastStep = WrongCall | DeadDevice | SymmetricHang


@dataclass(frozen=True, slots=True)
class _Coming:
    slot: int
    time_s: float
    signature: tuple[str, str]
    is_waited_for: bool


@dataclass(slots=True)
class _Meeting:
    """The n-th call on a communicator: who has come, with which call, and when."""

    came: dict[int, _Coming] = field(default_factory=dict)


@dataclass(slots=True)
class _Rank:
    rank: int
    stage: int
    cell: tuple[int, int]  # its place in the (dp, tp) grid of its stage
    todo: deque[tuple[Action | None, int, Step | None]]
    now: float
    made: dict[CommunicatorKind, int] = field(default_factory=dict)
    exchanged_s: float = -np.inf  # when its overlapping calls have ended
    n_exchanging: int = 0
    unsent: int = 0
    sent_s: float = -np.inf
    is_in_call: bool = False
    is_dead: bool = False


_FLUSH = (None, -1, None)


def slot_of(program: StageProgram, kind: CommunicatorKind, nth: int) -> int:
    """The slot of a rank's `nth` call of a step on its communicator of a kind; in a pipeline of its `nth` send."""
    slots = [index for index, slot in enumerate(program.slots) if slot.kind == kind and slot.op != "recv"]
    return slots[nth]


class Play:
    """One step, rank by rank; `run` fills `arrival` and `end`.

    Ranks begin at `now`, shape `(pp, dp, tp)`. `compute`, `transfer_s`, `arrival` and `end` are lists by stage, of
    shapes `(n_computations, dp, tp)` and `(n_slots, dp, tp)`; what never happens stays infinite.
    """

    def __init__(
        self,
        spec: JobSpec,
        programs: list[StageProgram],
        steps: list[Step],
        fault: LastStep,
        now: FloatArray,
        compute: list[FloatArray],
        transfer_s: list[FloatArray],
        arrival: list[FloatArray],
        end: list[FloatArray],
    ) -> None:
        self._spec = spec
        self._programs = programs
        self._fault = fault
        self._compute = compute
        self._transfer_s = transfer_s
        self._arrival = arrival
        self._end = end
        self._groups = groups_of(spec)
        self._meetings: dict[tuple[CommunicatorKind, int, int], _Meeting] = {}
        self._sent: dict[tuple[int, int], deque[tuple[int, float]]] = {}
        self._ended_s: dict[tuple[CommunicatorKind, int], float] = {}
        by_stage = stage_steps(programs, steps)
        self._ranks = [self._rank(rank, by_stage, now) for rank in range(spec.layout.world_size)]
        self._ready = deque(self._ranks)

    def _rank(self, rank: int, by_stage: list[list[Step]], now: FloatArray) -> _Rank:
        tp_index, dp_index, stage = self._spec.layout.position(rank)
        program = self._programs[stage]
        todo: list[tuple[Action | None, int, Step | None]] = [(s.action, s.index, s) for s in by_stage[stage]]
        todo.append(_FLUSH)
        todo += [(Action.TP, index, None) for index in program.tail]  # any collective that is waited for
        todo.append((Action.TP, len(program.slots) - 1, None))
        fault = self._fault
        if isinstance(fault, WrongCall) and fault.rank == rank:
            wrong = slot_of(program, fault.kind, fault.nth)
            at = next(i for i, (action, index, _) in enumerate(todo) if action in _CALLS and index == wrong)
            if fault.what == "skip":
                del todo[at]
            elif fault.what == "order":
                todo[at], todo[-1] = todo[-1], todo[at]
        return _Rank(rank, stage, (dp_index, tp_index), deque(todo), float(now[stage, dp_index, tp_index]))

    def run(self) -> None:
        """Let every rank go on until it waits for somebody, until nobody can."""
        while self._ready:
            rank = self._ready.popleft()
            while rank.todo and not rank.is_in_call and not rank.is_dead and self._goes_on(rank):
                pass

    def _goes_on(self, rank: _Rank) -> bool:
        """Do the next thing of a rank; false where it has to wait (it is taken up again when that has come)."""
        action, index, step = rank.todo[0]
        if action is Action.COMPUTE:
            rank.now += float(self._compute[rank.stage][(index, *rank.cell)])
        elif action is None:
            if rank.unsent or rank.n_exchanging:
                return False
            rank.now = max(rank.now, rank.sent_s, rank.exchanged_s)
        elif action is Action.SEND:
            assert step is not None
            self._arrival[rank.stage][(index, *rank.cell)] = rank.now
            rank.unsent += 1
            peer = self._peer(rank, step.peer)
            self._sent.setdefault((rank.rank, peer.rank), deque()).append((index, rank.now))
            self._ready.append(peer)
        elif action is Action.RECV:
            assert step is not None
            self._arrival[rank.stage][(index, *rank.cell)] = rank.now
            peer = self._peer(rank, step.peer)
            sent = self._sent.get((peer.rank, rank.rank))
            if not sent:
                return False
            slot, sent_s = sent.popleft()
            rank.now = max(rank.now, sent_s) + float(self._transfer_s[rank.stage][(index, *rank.cell)])
            self._end[rank.stage][(index, *rank.cell)] = rank.now
            self._end[peer.stage][(slot, *peer.cell)] = rank.now
            peer.unsent -= 1
            peer.sent_s = max(peer.sent_s, rank.now)
            self._ready.append(peer)
        else:
            rank.todo.popleft()
            self._meet(rank, index, is_waited_for=action is not Action.DP)
            return True
        rank.todo.popleft()
        return True

    def _peer(self, rank: _Rank, stage: int) -> _Rank:
        layout = self._spec.layout
        dp_index, tp_index = rank.cell
        return self._ranks[layout.rank(tp_index, dp_index, stage)]

    def _meet(self, rank: _Rank, slot: int, *, is_waited_for: bool) -> None:
        """A rank comes to a collective; the last one to come lets all of them out, if they agree."""
        call = self._programs[rank.stage].slots[slot]
        kind = call.kind
        self._arrival[rank.stage][(slot, *rank.cell)] = rank.now
        place = self._groups.place[kind][rank.rank]
        members = self._groups.members[kind][place]
        nth = rank.made.get(kind, 0)
        rank.made[kind] = nth + 1
        meeting = self._meetings.setdefault((kind, place, nth), _Meeting())
        meeting.came[rank.rank] = _Coming(slot, rank.now, self._signature(rank, slot), is_waited_for)
        rank.n_exchanging += not is_waited_for
        rank.is_in_call = is_waited_for
        came = meeting.came
        if len(came) < len(members) or len({coming.signature for coming in came.values()}) > 1:
            return
        fault = self._fault
        if isinstance(fault, SymmetricHang) and (fault.kind, fault.group, 0) == (kind, place, nth):
            return
        began_s = max(coming.time_s for coming in came.values())
        began_s = max(began_s, self._ended_s.get((kind, place), -np.inf))
        first = self._ranks[members[0]]
        ended_s = began_s + float(self._transfer_s[first.stage][(came[first.rank].slot, *first.cell)])
        self._ended_s[kind, place] = ended_s
        for member, coming in came.items():
            other = self._ranks[member]
            if self._dies_in(other, coming.slot):
                other.is_dead = True
                continue
            self._end[other.stage][(coming.slot, *other.cell)] = ended_s
            if coming.is_waited_for:
                other.is_in_call, other.now = False, ended_s
            else:
                other.n_exchanging -= 1
                other.exchanged_s = max(other.exchanged_s, ended_s)
            self._ready.append(other)

    def _signature(self, rank: _Rank, slot: int) -> tuple[str, str]:
        call, fault = self._programs[rank.stage].slots[slot], self._fault
        is_wrong = (
            isinstance(fault, WrongCall)
            and fault.rank == rank.rank
            and fault.what in ("op", "larger", "smaller")
            and slot == slot_of(self._programs[rank.stage], fault.kind, fault.nth)
        )
        # Tokens may be of any number; an all_to_all of other sizes is no mismatch.
        size = "" if call.kind == "ep" else str(call.size_bytes)
        return (call.op, f"{size} wrong" if is_wrong else size)

    def _dies_in(self, rank: _Rank, slot: int) -> bool:
        fault = self._fault
        return (
            isinstance(fault, DeadDevice)
            and fault.rank == rank.rank
            and slot == slot_of(self._programs[rank.stage], fault.kind, 0)
        )


_CALLS = (Action.TP, Action.EP, Action.DP, Action.SEND)
