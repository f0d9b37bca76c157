"""A job for test_recurring_calls.py, run by torchrun on two ranks: `recurring_job.py ddp|fsdp|pipeline ITERATIONS`.

It knows nothing of Pacehound.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

COMPUTATION_S = 0.03
EVALUATE_EVERY = 50


def layers(number: int) -> nn.Sequential:
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(number)])


def data_parallel() -> tuple[nn.Module, Callable[[], None]]:
    widths = (64, 96, 32, 128, 64, 48, 64)
    parts = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    model = DistributedDataParallel(nn.Sequential(*parts), bucket_cap_mb=0.01)
    return model, lambda: model(torch.ones(4, 64)).sum().backward()


def fully_sharded() -> tuple[nn.Module, Callable[[], None]]:
    model = layers(4)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    def step() -> None:
        for _ in range(2):  # micro-batches
            model(torch.ones(4, 64)).sum().backward()
        # Without it the calls of the two micro-batches would be all there is, and equal.
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    return model, step


def pipelined() -> tuple[nn.Module, Callable[[], None]]:
    rank, world = dist.get_rank(), dist.get_world_size()
    model = layers(2)
    stages = dist.new_group(list(range(world)))
    stage = PipelineStage(model, rank, world, torch.device("cpu"), group=stages)
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)

    def step() -> None:
        if rank == 0:
            schedule.step(torch.ones(8, 64))
        else:
            schedule.step(target=torch.ones(8, 64))
        dist.all_reduce(torch.ones(1))  # the norm of the gradients

    return model, step


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    kind, iterations = sys.argv[1], int(sys.argv[2])
    model, step = {"ddp": data_parallel, "fsdp": fully_sharded, "pipeline": pipelined}[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for number in range(iterations):
        optimizer.zero_grad()
        step()
        optimizer.step()
        if (number + 1) % EVALUATE_EVERY == 0:
            dist.all_reduce(torch.ones(3))
        time.sleep(COMPUTATION_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
