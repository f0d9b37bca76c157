"""A small GPT: gradients of four micro-batches are added up; rank 0 alone evaluates and saves every so often."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 96, 32, 64, 4, 2
MICRO_BATCHES, EVALUATE_EVERY, EVALUATIONS = 4, 60, 8


class GPT(nn.Module):
    """Token and place embeddings, causal blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        places = torch.arange(tokens.shape[1])
        hidden: torch.Tensor = self.blocks(self.tokens(tokens) + self.places(places), mask=mask, is_causal=True)
        logits: torch.Tensor = self.head(hidden)
        return logits


def loss_of(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    starts = torch.randint(len(text) - CONTEXT - 1, (8,)).tolist()
    tokens = torch.stack([text[at : at + CONTEXT + 1] for at in starts])
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    steps, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    is_first = int(os.environ["RANK"]) == 0
    torch.manual_seed(1337 + int(os.environ["RANK"]))
    text = torch.randint(VOCABULARY, (100_000,))
    raw = GPT()
    model = DistributedDataParallel(raw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        if is_first and step % EVALUATE_EVERY == 0:
            with torch.no_grad():
                losses = [float(loss_of(raw, text)) for _ in range(EVALUATIONS)]
            print(f"step {step}: loss {sum(losses) / len(losses):.3f}", flush=True)
            torch.save({"model": raw.state_dict(), "optimizer": optimizer.state_dict()}, folder / "ckpt.pt")
        for micro in range(MICRO_BATCHES):
            with nullcontext() if micro == MICRO_BATCHES - 1 else model.no_sync():
                (loss_of(model, text) / MICRO_BATCHES).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
