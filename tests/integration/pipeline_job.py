"""A job for test_pipeline_operations.py: DP 2 x PP 2 on gloo, 1F1B, gradients summed by hand. Run by torchrun, 4 ranks.

It knows nothing of Pacehound. Computing is waiting, so that two cores serve four ranks. One rank waits longer in each
of its passes, by a factor that changes every so many steps.

Arguments: folder for the results, micro-batches, slow rank, steps per factor, factors.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

FORWARD_S, BACKWARD_S = 0.015, 0.03
WIDTH = 16


class Wait(torch.autograd.Function):
    """Passes its input on, after a while; and its gradient after twice as long."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD_S * Wait.factor)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(BACKWARD_S * Wait.factor)
        return gradients[0]


class Block(nn.Module):
    """One stage."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waited: torch.Tensor = Wait.apply(self.linear(x))
        return waited


def main(folder: Path, micro_batches: int, slow_rank: int, steps: int, factors: list[float]) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    pipeline = mesh.get_group("pp")
    module = Block()
    stage = PipelineStage(module, mesh.get_local_rank("pp"), 2, torch.device("cpu"), group=pipeline)
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    inputs = torch.ones(micro_batches, WIDTH)
    ends_s = []
    for step in range(steps * len(factors)):
        Wait.factor = factors[step // steps] if rank == slow_rank else 1.0
        if stage.is_first:
            schedule.step(inputs)
        else:
            schedule.step(target=inputs)
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
        ends_s.append(time.monotonic())
    (folder / f"{rank}.json").write_text(json.dumps(ends_s))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), [float(one) for one in sys.argv[5:]])
