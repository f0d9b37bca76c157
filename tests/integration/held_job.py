"""A job that is commanded: DDP on gloo, seeded; writes each rank's parameters at its end. Knows nothing of Pacehound.

A step may take so much of a processor and so much waiting besides, like a job whose ranks have a processor each.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(folder: str, steps: int, busy_s: float = 0.0, pause_s: float = 0.0) -> None:
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
        until_s = time.thread_time() + busy_s
        while time.thread_time() < until_s:
            pass
        time.sleep(pause_s)
        loss = model(torch.randn(16, 32, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(model.module.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:]))
