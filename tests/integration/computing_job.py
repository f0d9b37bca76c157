"""A gloo job for test_crowded_host.py: two ranks, each on a processor of its own, that compute between their calls.

Run by torchrun. Once there is the file `stop` in the given folder, both leave after the same step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

COMPUTE_S = 0.03


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    goes_on = True
    while goes_on:
        began_s = time.thread_time()
        while time.thread_time() - began_s < COMPUTE_S:
            pass
        weight.grad = torch.full((4,), float(rank == 0 and (folder / "stop").exists()))
        dist.all_reduce(weight.grad)
        optimizer.step()
        goes_on = not weight.grad[0]
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
