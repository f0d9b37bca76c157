"""Lightning: a module, a trainer with two devices, validation and checkpoints every epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    epochs, folder = int(sys.argv[1]), Path(sys.argv[2])
    data = TensorDataset(torch.randn(4096, 128), torch.randint(10, (4096,)))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=epochs, default_root_dir=folder, logger=False
    )
    train, held_out = DataLoader(data, 32), DataLoader(TensorDataset(*data[:512]), 32)
    trainer.fit(Classifier(), train, held_out)


if __name__ == "__main__":
    main()
