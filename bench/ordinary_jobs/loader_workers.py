"""Images through two loader workers of each rank, anew every epoch; a checkpoint and an evaluation behind it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

IMAGES, BATCH, WORKERS = 2_000, 16, 2


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Made up when they are asked for, with a little work as decoding has."""

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return (image - image.mean()) / image.std(), index % 10


def main() -> None:
    epochs, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    images = Images()
    sampler: DistributedSampler[tuple[torch.Tensor, int]] = DistributedSampler(images)
    loader = DataLoader(images, BATCH, sampler=sampler, num_workers=WORKERS)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    net(torch.zeros(1, 3, 32, 32))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for image, label in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(image), label).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = torch.zeros(())
            for index in range(dist.get_rank(), 200, dist.get_world_size()):
                image, label = images[index]
                right += net(image[None]).argmax() == label
        dist.all_reduce(right)
        if dist.get_rank() == 0:
            torch.save(net.state_dict(), folder / f"epoch{epoch}.pt")
            print(f"epoch {epoch}: {right.item() / 200:.0%}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
