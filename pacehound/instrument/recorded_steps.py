"""The operations of one recorded step, and how they are written once their times are known."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pacehound.instrument import layout
from pacehound.instrument.recorder import Recorder
from pacehound.instrument.step_times import StepTimes

_NO_HANDLE = bytes(16)

# Positions in OPTYPES of pacehound/model/operations.py.
FORWARD, BACKWARD = 0, 1
FORWARD_SEND, FORWARD_RECV, BACKWARD_SEND, BACKWARD_RECV = 2, 3, 4, 5
PARAMS_GATHER, GRADS_SCATTER = 6, 7
OPTIMIZER = 12


class Op:
    """One operation of the step that is being recorded: instants of its `StepTimes`, 0 while unknown."""

    __slots__ = ("chunk", "end", "micro_batch", "n_open", "optype", "pipeline", "stage", "start")

    def __init__(self, optype: int, place: tuple[int, int, int], micro_batch: int, start: int) -> None:
        self.optype = optype
        self.stage, self.chunk, self.pipeline = place
        self.micro_batch = micro_batch
        self.start = start
        self.end = 0
        self.n_open = 0  # tensors under way


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded step that is over for the host."""

    number: int
    ops: list[Op]
    times: StepTimes

    def write(self, recorder: Recorder) -> None:
        """Number its operations and write them; not those whose end nobody saw."""
        numbers: dict[tuple[int, int], int] = {}
        timed = [(self.times.ns(op.start), self.times.ns(op.end), op) for op in self.ops]
        for start_ns, end_ns, op in sorted(timed, key=lambda one: one[0]):
            key = op.optype, op.stage
            seq = numbers[key] = numbers.get(key, -1) + 1
            if not end_ns or op.n_open:
                continue
            recorder.write(
                layout.OPERATION_RECORD, layout.OPERATION, _NO_HANDLE,
                start_ns, end_ns, self.number, op.optype, op.stage, op.chunk, op.micro_batch, op.pipeline, seq,
            )  # fmt: skip


def why_no_clock(devices: set[Any]) -> str:
    """Why there is no clock for a job whose parameters are on these devices; empty if there is one."""
    kinds = {device.type for device in devices}
    if len(devices) != 1 or not kinds <= {"cpu", "cuda"}:
        shown = ", ".join(sorted(map(str, devices))) or "no device"
        return f"the optimizer's parameters are on {shown}; seen are jobs on the CPU and on one CUDA device per process"
    torch = sys.modules.get("torch")
    if kinds == {"cpu"} and torch is not None and torch.cuda.is_initialized():
        return "the optimizer's parameters are on the CPU, and the process uses a GPU"
    return ""
