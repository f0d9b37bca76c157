"""Hugging Face's Trainer on a small GPT-2 from its configuration: logging, evaluation and saving by steps."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random sequences that are their own labels."""

    def __init__(self, n: int) -> None:
        self.rows = torch.randint(200, (n, 32), generator=torch.Generator().manual_seed(n))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main() -> None:
    steps, folder = int(sys.argv[1]), Path(sys.argv[2])
    config = GPT2Config(vocab_size=200, n_positions=32, n_embd=64, n_layer=2, n_head=4)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        save_total_limit=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    model = GPT2LMHeadModel(config)
    Trainer(model=model, args=arguments, train_dataset=Tokens(20_000), eval_dataset=Tokens(256)).train()


if __name__ == "__main__":
    main()
