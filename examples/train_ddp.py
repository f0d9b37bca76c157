"""A small data-parallel training loop on CPUs, with a fake step time and, if asked, one slow rank.

torchrun --nproc-per-node 4 examples/train_ddp.py --iterations 300 --slow-rank 2 --slow-from 200
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--step-time-ms", type=float, default=50.0, help="time that a step's computation takes")
    parser.add_argument("--slow-rank", type=int, default=-1, help="rank that becomes slow; -1: none")
    parser.add_argument("--slow-from", type=int, default=0, help="first slow iteration")
    parser.add_argument("--slow-until", type=int, default=None, help="first iteration that is fast again")
    parser.add_argument("--slow-by", type=float, default=0.4, help="how much longer a slow step takes, as a fraction")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each rank")
    # Not --log: torchrun takes the start of any option of its own for that option, even behind the script.
    parser.add_argument("--csv", type=Path, default=None, help="rank 0 writes the time of every step to this CSV file")
    return parser.parse_args()


def is_slow(options: argparse.Namespace, rank: int, step: int) -> bool:
    until = options.iterations if options.slow_until is None else options.slow_until
    return rank == options.slow_rank and options.slow_from <= step < until


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    features, targets = torch.randn(16, 32), torch.randn(16, 1)

    rows = []
    before_s = time.perf_counter()
    for step in range(options.iterations):
        step_time_s = options.step_time_ms / 1e3
        time.sleep(step_time_s * (1 + options.slow_by) if is_slow(options, rank, step) else step_time_s)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()
        now_s = time.perf_counter()
        rows.append((step, f"{now_s - before_s:.9f}", time.time_ns()))
        before_s = now_s

    if rank == 0 and options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("step", "step_time_s", "time_ns"))
            writer.writerows(rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
