"""A GPT like nanoGPT under DDP on gloo, as large as it is told to be; rank 0 writes how long its steps took.

    gpt_steps.py WIDTH LAYERS MICRO_BATCHES STEPS BEGINNING_S FILE

Each step adds up the gradients of some micro-batches and joins them. What ends within the first seconds is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, CONTEXT, BATCH = 65, 32, 4


class GPT(nn.Module):
    """Token and place embeddings, causal blocks, a head."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        hidden = self.tokens(tokens) + self.places(torch.arange(CONTEXT))
        logits: torch.Tensor = self.head(self.blocks(hidden, mask=mask, is_causal=True))
        return logits


def main() -> None:
    width, layers, micro_batches, steps = map(int, sys.argv[1:5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1337 + dist.get_rank())
    model = DistributedDataParallel(GPT(width, layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    begun_s, ends_s = time.perf_counter(), []
    for _ in range(steps):
        for micro in range(micro_batches):
            with model.no_sync() if micro < micro_batches - 1 else nullcontext():
                loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
                (loss / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends_s.append(time.perf_counter())
    if dist.get_rank() == 0:
        counted = [end_s for end_s in ends_s if end_s - begun_s > float(sys.argv[5])]
        Path(sys.argv[6]).write_text(json.dumps({"step_s": (counted[-1] - counted[0]) / (len(counted) - 1)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
