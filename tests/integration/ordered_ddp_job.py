"""A job for test_trainer_orders.py: ranks of gloo that take orders, and agree by an all-reduce of their own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from pacehound import trainer


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    control = trainer.connect("collect", agree=trainer.smallest_over_ranks, agree_every=4)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradient = torch.ones(64)
    with (folder / f"{rank}.applied").open("w") as file:
        for step in range(10**9):
            order = control.at_step(step)
            if order is not None:
                file.write(f"{step}\n")
                file.flush()
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
            (folder / f"{rank}.step").write_text(str(step))
            time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
