"""Hugging Face's accelerate: `prepare`, gradient accumulation, metrics gathered, a state saved every epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    epochs, folder = int(sys.argv[1]), Path(sys.argv[2])
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = TensorDataset(torch.randn(3_000, 64), torch.randint(4, (3_000,)))
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    model, optimizer, loader, schedule = accelerator.prepare(
        net, optimizer, DataLoader(data, 16, shuffle=True), schedule
    )
    for epoch in range(epochs):
        right = 0
        for features, labels in loader:
            with accelerator.accumulate(model):
                logits = model(features)
                accelerator.backward(nn.functional.cross_entropy(logits, labels))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            right += int(accelerator.gather_for_metrics(logits.argmax(-1) == labels).sum())
        accelerator.print(f"epoch {epoch}: {right / len(data):.0%}")
        accelerator.wait_for_everyone()
        accelerator.save_state(str(folder / "state"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
