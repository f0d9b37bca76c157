"""No optimizer and no wrapper: gradients of a linear model by hand, one all_reduce each, a broadcast now and then."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

FEATURES, BATCH, BROADCAST_EVERY = 512, 256, 50


def main() -> None:
    steps = int(sys.argv[1])
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rng = torch.Generator().manual_seed(rank)
    weight, bias = torch.zeros(FEATURES), torch.zeros(1)
    for step in range(steps):
        batch = torch.randn(BATCH, FEATURES, generator=rng)
        error = batch @ weight + bias - batch.mean(1)
        for parameter, gradient in ((weight, error @ batch / BATCH), (bias, error.mean()[None])):
            dist.all_reduce(gradient)
            parameter -= 0.01 * gradient / ranks
        if step % BROADCAST_EVERY == 0:
            dist.broadcast(weight, 0)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
