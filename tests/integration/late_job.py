"""A small training loop of which one rank does not join before a file is there. Run by a launcher, it knows nothing of
Pacehound.

    torchrun --nproc-per-node 3 late_job.py LATE_RANK FILE ITERATIONS
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wait_for_the_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.05)


def main() -> None:
    late, path, iterations = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if int(os.environ["RANK"]) == late:
        wait_for_the_file(path)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(iterations):
        time.sleep(0.02)
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
