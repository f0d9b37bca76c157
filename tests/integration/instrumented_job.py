"""A job for test_instrument_job.py: every way to communicate. Run by torchrun, 4 ranks, given an empty folder.

It knows nothing of Pacehound.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import reduce_scatter_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def collectives(rank: int, world: int) -> None:
    t = torch.ones(4)
    dist.all_reduce(t)
    dist.broadcast(t, 1)
    dist.reduce(t, 2)
    dist.barrier()
    dist.all_gather([torch.zeros(4) for _ in range(world)], t)
    dist.all_gather_into_tensor(torch.zeros(4 * world), t)
    dist.reduce_scatter(torch.zeros(2), [torch.ones(2)] * world)
    dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2 * world))
    dist.all_to_all_single(torch.zeros(2 * world), torch.ones(2 * world))
    dist.gather(t, [torch.zeros(4) for _ in range(world)] if rank == 1 else None, dst=1)
    dist.scatter(t, [torch.zeros(4) for _ in range(world)] if rank == 1 else None, src=1)
    works = [dist.all_reduce(torch.ones(8, dtype=torch.float64), async_op=True) for _ in range(3)]
    for work in works:
        work.wait()


def point_to_point(rank: int, world: int) -> None:
    t = torch.ones(4)
    right, left = (rank + 1) % world, (rank - 1) % world
    if rank % 2 == 0:
        dist.send(t, right)
        dist.recv(t, left)
    else:
        dist.recv(t, left)
        dist.send(t, right)
    works = [dist.isend(t, right), dist.irecv(torch.zeros(4), left)]
    for work in works:
        work.wait()
    operations = [dist.P2POp(dist.isend, t, left), dist.P2POp(dist.irecv, torch.zeros(4), right)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def functional(world: int) -> list[int]:
    """When each of two results has been waited for; a third is dropped."""
    results = [reduce_scatter_tensor(torch.ones(size * world), "sum", 0, dist.group.WORLD) for size in (31, 37)]
    waited_ns = []
    for result in results:
        assert float(result.sum()) == world * result.numel()
        waited_ns.append(time.monotonic_ns())
        time.sleep(0.02)
    reduce_scatter_tensor(torch.ones(41 * world), "sum", 0, dist.group.WORLD)
    return waited_ns


def groups(rank: int) -> None:
    pair = [1, 3]
    group = dist.new_group(pair)
    if rank in pair:
        dist.broadcast(torch.ones(13), 3, group=group)
        dist.destroy_process_group(group)
    halves = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    dist.all_reduce(torch.ones(5), group=halves)


def models(rank: int) -> list[int]:
    """When the backward pass of each step has returned."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    returned_ns = []
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()
        returned_ns.append(time.monotonic_ns())
        optimizer.step()
        optimizer.zero_grad()

    stage_group = dist.new_group([0, 1, 2, 3])
    stage = PipelineStage(nn.Linear(8, 8), rank, 4, torch.device("cpu"), group=stage_group)
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
    if rank == 0:
        schedule.step(torch.ones(8, 8))
    elif rank == 3:
        schedule.step(target=torch.ones(8, 8))
    else:
        schedule.step()
    return returned_ns


def data_parallel(steps: int) -> None:
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(steps, 8)), num_workers=2)
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    model.train()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "checkpoint.pt"))


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    collectives(rank, world)
    point_to_point(rank, world)
    waited_ns = functional(world)
    try:
        dist.all_reduce([torch.ones(1)])  # a call that is refused
    except Exception:
        pass
    groups(rank)
    returned_ns = models(rank)
    data_parallel(steps=25)
    # Over a store of its own: the keys of the first rendezvous are still in the old one, stale.
    again = os.path.join(sys.argv[1], "second-store")
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{again}", rank=rank, world_size=world)
    dist.all_reduce(torch.ones(7))
    dist.destroy_process_group()
    told = {"rank": rank, "pid": os.getpid(), "returned_ns": returned_ns, "waited_ns": waited_ns}
    os.write(1, (json.dumps(told) + "\n").encode())  # one write: ranks share the pipe


if __name__ == "__main__":
    main()
