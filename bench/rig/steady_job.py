"""A gloo job that knows what it did: in each step an all_reduce of everybody, one of a second group, a barrier.

Run by torchrun, given a pause in seconds and a folder. Rank 0 appends each finished step to the file `steps` there, and
once there is a file `stop` all ranks leave after the same step.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    pause_s, folder = float(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    second = dist.new_group(list(range(dist.get_world_size())))
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    with (folder / "steps").open("a", encoding="utf-8") as log:
        for step in itertools.count():
            time.sleep(pause_s)
            wants_to_stop = dist.get_rank() == 0 and (folder / "stop").exists()
            weight.grad = torch.full((4,), float(wants_to_stop))
            dist.all_reduce(weight.grad)
            dist.all_reduce(torch.ones(8), group=second)
            dist.barrier(group=second)
            optimizer.step()
            if dist.get_rank() == 0:
                log.write(f"{step} {time.monotonic()}\n")
                log.flush()
            if weight.grad[0] > 0:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
