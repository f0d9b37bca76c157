"""For test_device_pipeline.py: torch's own 1F1B schedule, one rank of two, on a device that is a stand-in.

The other rank is a backend that does nothing (torch's "fake" one), so sends and receives are Works of the stand-in.
Run by a launcher of two ranks, given a folder: into it each writes what was recorded, and what the device did.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, schedules
from torch.distributed.pipelining import stage as stages
from torch.testing._internal.distributed.fake_pg import FakeStore

from pacehound.instrument import cuda_times
from pacehound.instrument.torch_ops import BACKWARD, FORWARD, StepOperations
from tests.fakes.cuda_device import MS, US, Device, Machine, Work

MICRO_BATCHES, WIDTH, STEPS = 4, 4, 3

machine = Machine()
truth: list[list[tuple[int, int, int]]] = [[]]
"""By step, what ran on the device: type, start and end."""
works: list[tuple[int, bool, Work]] = []
"""With the step, and whether it is a send."""


class Kernels(torch.autograd.Function):
    """Passes its input on, and its gradient; the device computes for 10 and 20 ms."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        truth[-1].append((FORWARD, *machine.kernel(10 * MS)))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        truth[-1].append((BACKWARD, *machine.kernel(20 * MS)))
        return gradients[0]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed: torch.Tensor = Kernels.apply(self.linear(x))
        return passed


class Recorder:
    def __init__(self, rank: int) -> None:
        self.rank, self.is_on = rank, True
        self.rows: list[Any] = []
        self.notes: list[str] = []

    def write(self, record: Any, kind: int, handle: bytes, *fields: int) -> None:
        self.rows.append(fields)

    def note(self, text: str) -> None:
        self.notes.append(text)


def transfers(launch: Any) -> Any:
    """torch's function, with a Work of the stand-in for each of torch's own: the peer is 7 ms late each time."""
    nccl = machine.cuda.Stream()

    def batch(p2p_ops: list[Any], desc: str | None = None) -> list[Any]:
        late_ns = machine.cuda.current.free_ns + 7 * MS
        made = [Work(machine, nccl, late_ns) for _ in launch(p2p_ops, desc)]
        for p2p_op, work in zip(p2p_ops, made, strict=True):
            is_send = p2p_op.op is dist.isend
            works.append((len(truth) - 1, is_send, work))
        return made

    return batch


def main(folder: Path, rank: int) -> None:
    recorder = Recorder(rank)
    clock = cuda_times.CudaClock(machine.cuda, Device(), machine.host_ns)
    operations = StepOperations(recorder, 1, lambda device: clock)  # type: ignore[arg-type]
    begin_step, on_device = operations._begin_step, SimpleNamespace(device=Device())
    parameters = SimpleNamespace(param_groups=[{"params": [on_device]}])
    operations._begin_step = lambda _: begin_step(parameters)  # type: ignore[method-assign]
    schedules._batch_p2p = transfers(schedules._batch_p2p)
    operations.stages(stages)
    operations.schedules(schedules)
    operations.autograd(torch.autograd)
    operations.optimizers(sys.modules["torch.optim.optimizer"])
    cuda_times._VERIFIED_BACKENDS = ("FakeProcessGroup",)  # type: ignore[assignment]
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    module = Block()
    example = torch.ones(1, WIDTH)
    pipeline_stage = PipelineStage(
        module,
        rank,
        2,
        torch.device("cpu"),
        input_args=(example.clone().requires_grad_(rank > 0),),
        output_args=(example.clone().requires_grad_(),),
    )
    schedule = Schedule1F1B(pipeline_stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    inputs = torch.ones(MICRO_BATCHES, WIDTH)
    for _ in range(STEPS):
        machine.spend(100 * US)
        schedule.step(inputs) if rank == 0 else schedule.step(target=inputs)
        optimizer.step()
        optimizer.zero_grad()
        truth.append([])
    machine.run_dry()
    operations.leave()
    said = {
        "rows": [row for row in recorder.rows if row[2] == 1],
        "steps": sorted({row[2] for row in recorder.rows}),
        "notes": recorder.notes,
        "truth": truth[1],
        "sends": sorted(work.end.done_ns for step, is_send, work in works if is_send and step == 1),
        "receives": sorted(work.end.done_ns for step, is_send, work in works if not is_send and step == 1),
        "waits": sorted({work.n_waits for *_, work in works}),
        "blocked": machine.blocked,
    }
    (folder / f"{rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(os.environ["RANK"]))
