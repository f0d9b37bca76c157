"""A model under DistributedDataParallel on one device that all ranks share; the slow rank has three times the batch.

It ends when the file `--stop` is there: rank 0 looks, and the ranks agree.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, TIMES_LARGER = 2048, 4, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--stop", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device("cuda", 0) if options.backend == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(options.batch * (TIMES_LARGER if rank == options.slow_rank else 1), WIDTH, device=device)
    is_over = torch.zeros(1, device=device)
    while is_over.item() == 0:
        for _ in range(10):
            optimizer.zero_grad(set_to_none=True)
            model(batch).square().mean().backward()
            optimizer.step()
        is_over.fill_(float(rank == 0 and options.stop.exists()))
        dist.all_reduce(is_over, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
