"""What every rank of a pipeline stage does in one iteration, in order: the 1F1B schedule of Megatron.

All ranks of a stage run the same program, so that one step of it is one NumPy operation over the stage's
(data, tensor) grid.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from pacehound.model.topology import Layout

CommunicatorKind = Literal["world", "tp", "dp", "ep", "pp"]


class Action(enum.Enum):
    """One kind of step. A data-parallel call among them is not waited for: it overlaps with what follows."""

    COMPUTE = enum.auto()
    TP = enum.auto()
    EP = enum.auto()
    DP = enum.auto()
    SEND = enum.auto()
    RECV = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One call that each rank of a stage makes in each iteration.

    `peer_offset` is the peer's stage minus the own one (point-to-point only), `size_bytes` the payload per rank.
    """

    kind: CommunicatorKind
    op: str
    size_bytes: int
    dtype: str
    peer_offset: int = 0


@dataclass(slots=True)
class StageProgram:
    """Slots and computations of one stage."""

    slots: list[Slot] = field(default_factory=list)  # the calls, in order
    compute_s: list[float] = field(default_factory=list)  # duration of each computation, without jitter
    slot_after: list[int] = field(default_factory=list)  # for each computation, the index of the next call behind it
    # for each computation, whether it takes longer where the experts of a rank have more to do
    is_expert: list[bool] = field(default_factory=list)
    micro_batch: list[int] = field(default_factory=list)  # for each computation, which one it belongs to
    last_backward: int = 0  # index of the first computation of the last backward pass
    # the data-parallel calls behind the pipeline's end; the last slot is the small all_reduce over the world
    tail: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the whole job: a computation (by index), or a call (by slot) of a stage.

    A send or receive knows the stage of its peer, and a receive the slot of the send that it completes.
    """

    stage: int
    action: Action
    index: int
    peer: int = -1
    peer_slot: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much each part of an iteration computes and moves, per rank; `JobSpec` says what each is."""

    micro_batches: int
    forward_s: float
    backward_s: float
    optimizer_s: float
    tp_calls: int
    tp_bytes: int
    pp_bytes: int
    dp_bytes: int
    dp_buckets: int
    is_sharded: bool
    ep: int = 1
    ep_bytes: int = 0
    expert_s: float = 0.0
    overlaps: bool = False


def stage_order(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """The 1F1B order of a stage: `("forward" | "backward", micro-batch)`.

    >>> stage_order(0, 2, 2)
    [('forward', 0), ('forward', 1), ('backward', 0), ('backward', 1)]
    """
    warm_up = min(stages - stage - 1, micro_batches)
    order = [("forward", m) for m in range(warm_up)]
    for m in range(micro_batches - warm_up):
        order += [("forward", warm_up + m), ("backward", m)]
    return order + [("backward", m) for m in range(micro_batches - warm_up, micro_batches)]


def build(layout: Layout, work: Work) -> tuple[list[StageProgram], list[Step]]:
    """The program of each stage, and all pipeline steps of an iteration in an order that respects dependencies.

    The data-parallel calls that do not overlap, the world's all_reduce and the optimizer follow behind these steps.
    """
    programs = [StageProgram() for _ in range(layout.pp)]
    queues: list[deque[Step]] = [deque() for _ in range(layout.pp)]
    for stage, program in enumerate(programs):
        order = stage_order(stage, layout.pp, work.micro_batches)
        for index, (phase, micro_batch) in enumerate(order):
            is_last = index == len(order) - 1
            _add_pass(stage, layout, work, phase == "forward", is_last, program, queues[stage])
            program.micro_batch += [micro_batch] * (len(program.compute_s) - len(program.micro_batch))
        if layout.dp > 1:
            ops = ("reduce_scatter", "all_gather") if work.is_sharded else ("all_reduce",)
            for op in ops[1:] if work.overlaps else ops:
                program.tail += range(len(program.slots), len(program.slots) + work.dp_buckets)
                program.slots += [_gradient_slot(work, op)] * work.dp_buckets
        program.slots.append(Slot(kind="world", op="all_reduce", size_bytes=8, dtype="float32"))
    return programs, _in_dependency_order(queues)


def stage_steps(programs: list[StageProgram], steps: list[Step]) -> list[list[Step]]:
    """The steps of each stage by themselves, in its own order."""
    by_stage: list[list[Step]] = [[] for _ in programs]
    for step in steps:
        by_stage[step.stage].append(step)
    return by_stage


def _gradient_slot(work: Work, op: str) -> Slot:
    return Slot(kind="dp", op=op, size_bytes=work.dp_bytes // work.dp_buckets, dtype="bfloat16")


def _add_pass(
    stage: int,
    layout: Layout,
    work: Work,
    is_forward: bool,
    is_last: bool,
    program: StageProgram,
    queue: deque[Step],
) -> None:
    toward = 1 if is_forward else -1
    compute_s = (work.forward_s if is_forward else work.backward_s) / work.tp_calls

    def call(action: Action, slot: Slot) -> None:
        peer = stage + slot.peer_offset if slot.peer_offset else -1
        queue.append(Step(stage, action, len(program.slots), peer))
        program.slots.append(slot)

    def compute(duration_s: float, is_expert: bool) -> None:
        queue.append(Step(stage, Action.COMPUTE, len(program.compute_s)))
        program.compute_s.append(duration_s)
        program.slot_after.append(len(program.slots))
        program.is_expert.append(is_expert)

    if 0 <= stage - toward < layout.pp:
        call(
            Action.RECV,
            Slot(kind="pp", op="recv", size_bytes=work.pp_bytes, dtype="bfloat16", peer_offset=-toward),
        )
    if is_last:
        program.last_backward = len(program.compute_s)
    n_ready = 0
    for chunk in range(work.tp_calls):
        compute(compute_s, is_expert=False)
        if layout.tp > 1:
            call(Action.TP, Slot(kind="tp", op="all_reduce", size_bytes=work.tp_bytes, dtype="bfloat16"))
        if work.ep > 1:
            tokens = Slot(kind="ep", op="all_to_all", size_bytes=work.ep_bytes, dtype="bfloat16")
            call(Action.EP, tokens)  # to the experts
            compute((1 if is_forward else 2) * work.expert_s / work.tp_calls, is_expert=True)
            call(Action.EP, tokens)  # and back
        while is_last and work.overlaps and layout.dp > 1 and n_ready < work.dp_buckets * (chunk + 1) // work.tp_calls:
            call(Action.DP, _gradient_slot(work, "reduce_scatter" if work.is_sharded else "all_reduce"))
            n_ready += 1
    if 0 <= stage + toward < layout.pp:
        call(
            Action.SEND,
            Slot(kind="pp", op="send", size_bytes=work.pp_bytes, dtype="bfloat16", peer_offset=toward),
        )


def _in_dependency_order(queues: list[deque[Step]]) -> list[Step]:
    order: list[Step] = []
    sent: dict[tuple[int, int], deque[int]] = {}  # (sender, receiver) -> slots of sends that wait for a receive
    while any(queues):
        done = len(order)
        for queue in queues:
            while queue:
                step = queue[0]
                if step.action is Action.SEND:
                    sent.setdefault((step.stage, step.peer), deque()).append(step.index)
                elif step.action is Action.RECV:
                    waiting = sent.get((step.peer, step.stage))
                    if not waiting:
                        break
                    step = replace(step, peer_slot=waiting.popleft())
                order.append(step)
                queue.popleft()
        if len(order) == done:
            raise RuntimeError(f"the schedule never ends: stages wait for each other at {[q[0] for q in queues if q]}")
    return order
