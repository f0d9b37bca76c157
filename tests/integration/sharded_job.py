"""A job for test_sharded_operations.py: FSDP2 (fully_shard) on gloo. Run by torchrun, 4 ranks.

Its arguments are those of pipeline_job.py; it has one micro-batch. It knows nothing of Pacehound. Every layer gathers
its parameters before each pass, so ranks wait for each other there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from pipeline_job import WIDTH, Block, Wait
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LAYERS = 3


def main(folder: Path, slow_rank: int, steps: int, factors: list[float]) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(*[Block() for _ in range(LAYERS)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ends_s = []
    for step in range(steps * len(factors)):
        Wait.factor = factors[step // steps] if rank == slow_rank else 1.0
        model(torch.ones(4, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        ends_s.append(time.monotonic())
    (folder / f"{rank}.json").write_text(json.dumps(ends_s))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]), [float(one) for one in sys.argv[5:]])
