"""A DDP script whose rank 2 waits in its data loader for as long as a file says."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, go_on: Path) -> None:
        self._go_on = go_on

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> torch.Tensor:
        while dist.get_rank() == 2 and index == 40 and not self._go_on.exists():
            time.sleep(0.5)
        return torch.ones(64)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for batch in DataLoader(Samples(Path(sys.argv[1]))):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
