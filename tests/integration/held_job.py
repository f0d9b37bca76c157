"""A job for test_hold.py: DDP on gloo, seeded; writes each rank's parameters at its end. Knows nothing of Pacehound."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(folder: str, steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank)
    with open(f"{folder}/{rank}.pid", "w") as file:
        file.write(str(os.getpid()))
    for _ in range(steps):
        loss = model(torch.randn(16, 32, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(model.module.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
