"""Long steps, as of a large model: given how long one takes, most of it in which the processor is not needed."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    steps, step_time_s = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        time.sleep(0.9 * step_time_s)  # as where a device computes
        batch = torch.randn(64, 512)
        loss = nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
