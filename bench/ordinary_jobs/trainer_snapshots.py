"""A trainer class over epochs of a sharded data set; rank 0 writes a snapshot after every other epoch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAVE_EVERY = 2


class Trainer:
    """Owns the model, its data and its snapshot."""

    def __init__(self, model: nn.Module, loader: DataLoader[tuple[torch.Tensor, ...]], snapshot: Path) -> None:
        self.rank = int(os.environ["RANK"])
        self.model = DistributedDataParallel(model)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.snapshot = snapshot

    def train(self, epochs: int) -> None:
        for epoch in range(epochs):
            assert isinstance(self.loader.sampler, DistributedSampler)
            self.loader.sampler.set_epoch(epoch)
            for features, targets in self.loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(features), targets).backward()
                self.optimizer.step()
            if self.rank == 0 and epoch % SAVE_EVERY == 0:
                torch.save({"model": self.model.module.state_dict(), "epoch": epoch}, self.snapshot)
                print(f"epoch {epoch}: snapshot saved", flush=True)


def main() -> None:
    epochs, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2048, 64), torch.randn(2048, 1))
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    Trainer(model, loader, folder / "snapshot.pt").train(epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
