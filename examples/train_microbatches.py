r"""A data-parallel training loop that accumulates gradients over micro-batches, and takes orders for their numbers.

pacehound run --set actuators.mode=auto -- torchrun --nproc-per-node 4 examples/train_microbatches.py \
    --slow-rank 2 --slow-by 2 --slow-from 300

Each step computes the same global batch, however its micro-batches are distributed over the ranks: which micro-batch is
which depends on its number in the whole training alone, and gradients are weighted so that the update is that of the
global batch. What differs between distributions is the order in which floating-point numbers are added up.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pacehound import trainer

FEATURES, SAMPLES = 16, 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--micro-batches", type=int, default=32, help="of each step, over all ranks")
    parser.add_argument("--compute-ms", type=float, default=0.5, help="processor time of each micro-batch")
    parser.add_argument("--wait-ms", type=float, default=7.0, help="what each one waits besides, as for a device")
    parser.add_argument("--slow-rank", type=int, default=-1, help="rank whose computation becomes slow; -1: none")
    parser.add_argument(
        "--slow-by", type=float, default=2.0, help="so many times as long: the processor, and the device"
    )
    parser.add_argument("--slow-from", type=int, default=0, help="first slow step")
    parser.add_argument("--slow-until", type=int, default=None, help="first step that is fast again")
    parser.add_argument("--slow-while", type=Path, default=None, help="instead: slow as long as this file exists")
    parser.add_argument("--worse", action="store_true", help="whoever gets other numbers than the first is slow, too")
    parser.add_argument("--stop", type=Path, default=None, help="all ranks leave after the same step once it exists")
    parser.add_argument("--parameters", type=Path, default=None, help="rank 0 saves them here in the end")
    # Not --log: torchrun takes the start of any option of its own for that option, even behind the script.
    parser.add_argument("--csv", type=Path, default=None, help="rank 0 writes each step: its time and distribution")
    return parser.parse_args()


def is_slow(options: argparse.Namespace, rank: int, step: int) -> bool:
    if rank != options.slow_rank:
        return False
    if options.slow_while is not None:
        slow: Path = options.slow_while
        return slow.exists()
    until: int = options.steps if options.slow_until is None else options.slow_until
    return bool(options.slow_from <= step < until)


def micro_batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on whichever rank it is computed."""
    chance = torch.Generator().manual_seed(number)
    features = torch.randn(SAMPLES, FEATURES, dtype=torch.float64, generator=chance)
    return features, features.sum(1, keepdim=True).sin()


def spin(processor_s: float) -> None:
    began_s = time.thread_time()
    while time.thread_time() - began_s < processor_s:
        pass


def refusal(counts: object, n_ranks: int, total: int) -> str:
    """Why an order cannot be carried out, else nothing."""
    if not isinstance(counts, list) or len(counts) != n_ranks or not all(isinstance(n, int) and n > 0 for n in counts):
        return f"{counts} is not a number of at least 1 for each of {n_ranks} ranks"
    return "" if sum(counts) == total else f"{counts} are {sum(counts)} micro-batches; each step has {total}"


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, n_ranks, total = dist.get_rank(), dist.get_world_size(), options.micro_batches
    counts = [total // n_ranks + (one < total % n_ranks) for one in range(n_ranks)]
    equal = counts
    control = trainer.connect(
        "microbatches",
        can=lambda order: refusal(order.payload, n_ranks, total) or True,
        agree=trainer.smallest_over_ranks,
        micro_batches=counts[rank],
    )

    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    rows = []
    usual_s = (options.compute_ms + options.wait_ms) / 1e3  # of a micro-batch, while it is fast
    before_s = time.perf_counter()
    for step in range(options.steps):
        order = control.at_step(step)
        if order is not None:
            counts = order.payload
        slow = is_slow(options, rank, step) or (options.worse and counts != equal)
        first = step * total + sum(counts[:rank])
        optimizer.zero_grad()
        for number in range(first, first + counts[rank]):
            is_last = number == first + counts[rank] - 1
            began_s = time.perf_counter()
            with contextlib.nullcontext() if is_last else model.no_sync():
                features, targets = micro_batch(number)
                # What a real model would compute, and wait for its device.
                spin(options.compute_ms / 1e3)
                time.sleep(options.wait_ms / 1e3)
                if slow:
                    spin((options.slow_by - 1) * options.compute_ms / 1e3)
                    time.sleep((options.slow_by - 1) * (usual_s - options.compute_ms / 1e3))
                # DDP averages over ranks: times n_ranks it is their sum, over the total the mean of the global batch.
                loss = nn.functional.mse_loss(model(features), targets) * n_ranks / total
                loss.backward()
            if not is_last and not slow:  # the last one waits for the other ranks
                usual_s += 0.1 * (time.perf_counter() - began_s - usual_s)
        optimizer.step()
        now_s = time.perf_counter()
        rows.append((step, f"{now_s - before_s:.6f}", " ".join(map(str, counts))))
        before_s = now_s
        if options.stop is not None:
            is_asked = torch.tensor([float(rank == 0 and options.stop.exists())])
            dist.broadcast(is_asked, 0)
            if is_asked:
                break

    if rank == 0 and options.parameters is not None:
        torch.save({"steps": len(rows), "parameters": layers.state_dict()}, options.parameters)
    if rank == 0 and options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("step", "step_time_s", "micro_batches"))
            writer.writerows(rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
