"""Ranks in communicators of three, which have an all_reduce of their own in each step. Knows nothing of Pacehound."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

GROUP = 3


def main(stop: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = range(dist.get_world_size())
    groups = [dist.new_group(list(world[first : first + GROUP])) for first in world[::GROUP]]
    own = groups[dist.get_rank() // GROUP]
    for _ in itertools.count():
        dist.all_reduce(torch.ones(1024), group=own)
        leaves = torch.tensor([float(stop.exists())])
        dist.all_reduce(leaves)
        if leaves.item():
            break
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
