"""A job for test_tensor_operations.py: TP 2 x DP 2 on gloo, gradients summed by hand. Run by torchrun, 4 ranks.

Its arguments are those of pipeline_job.py; each step has two micro-batches. It knows nothing of Pacehound. The block
reduces its output in the forward pass and its input's gradient in the backward pass, so ranks of one group wait for
each other there. Each step ends with a mean over all ranks, for the log.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from pipeline_job import WIDTH, Wait
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

MICRO_BATCHES = 2
WAIT = 2.0
"""In units of pipeline_job.py: what gloo takes on a machine with other work is small beside it."""


class Block(nn.Module):
    """Split over the ranks of a group: the first layer by its outputs, the second by its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waited: torch.Tensor = Wait.apply(self.up(x))
        y: torch.Tensor = self.down(waited)
        return y


def main(folder: Path, slow_rank: int, steps: int, factors: list[float]) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(Block(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ends_s = []
    for step in range(steps * len(factors)):
        Wait.factor = WAIT * (factors[step // steps] if rank == slow_rank else 1.0)
        for _ in range(MICRO_BATCHES):
            loss = model(torch.ones(4, WIDTH, requires_grad=True)).sum()
            loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.to_local(), group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach())
        ends_s.append(time.monotonic())
    (folder / f"{rank}.json").write_text(json.dumps(ends_s))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]), [float(one) for one in sys.argv[5:]])
