"""A data-parallel job that knows nothing of Pacehound, saves checkpoints, and goes on from the last one.

Whatever the number of its ranks, each step is of the same global batch; what differs is the order of a few additions.
`--slow-host` is slow while the file `slow` exists: a fault of that host, whatever ranks are on it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAMPLES, FEATURES, EVERY = 16, 8, 20


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all ranks together."""
    features = torch.randn(SAMPLES, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
    return features, features.sum(1, keepdim=True).sin()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--slow-host", default="")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--wait-ms", type=float, default=200.0)
    options = parser.parse_args()
    checkpoint, slow = options.folder / "checkpoint", options.folder / "slow"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        first = saved["steps"]
        layers.load_state_dict(saved["parameters"])
    losses = (options.folder / "losses").open("a") if rank == 0 else None
    for step in range(first, options.steps):
        features, targets = (part.chunk(n_ranks)[rank] for part in batch(step))
        optimizer.zero_grad()
        # What a real model would wait for its device.
        time.sleep(options.wait_ms / 1e3 * (2 if options.host == options.slow_host and slow.exists() else 1))
        loss = nn.functional.mse_loss(model(features), targets)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach())
        if losses is not None:
            losses.write(json.dumps({"step": step, "loss": loss.item() / n_ranks, "ranks": n_ranks}) + "\n")
            losses.flush()
        if rank == 0 and (step + 1) % EVERY == 0:
            torch.save({"steps": step + 1, "parameters": layers.state_dict()}, checkpoint.with_suffix(".new"))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)
        is_asked = torch.tensor([float(rank == 0 and (options.folder / "stop").exists())])
        dist.broadcast(is_asked, 0)
        if is_asked:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
