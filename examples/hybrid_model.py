"""What a node of examples/train_hybrid.py computes: layers with their moments, counted activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    """A residual block that stands in for a transformer layer, with its Adam moments beside it."""

    def __init__(self, index: int, width: int) -> None:
        super().__init__()
        torch.manual_seed(1000 + index)
        self.block = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.first = [torch.zeros_like(one) for one in self.parameters()]
        self.second = [torch.zeros_like(one) for one in self.parameters()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * self.block(x)

    def tensors(self) -> list[torch.Tensor]:
        """All that moves: weights and both moments."""
        return [*(one.data for one in self.parameters()), *self.first, *self.second]

    def adam(self, step: int, rate: float = 1e-3) -> None:
        for one, first, second in zip(self.parameters(), self.first, self.second, strict=True):
            first.mul_(0.9).add_(one.grad, alpha=0.1)
            second.mul_(0.99).addcmul_(one.grad, one.grad, value=0.01)
            scale = (1 - 0.99**step) ** 0.5 / (1 - 0.9**step)
            one.data.addcdiv_(first, second.sqrt().add_(1e-8), value=-rate * scale)


class Adam(torch.optim.Optimizer):
    """Steps all layers of a node; what watches a job sees by its optimizer where a step ends."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__([one for layer in layers for one in layer.parameters()], {})
        self.layers, self.number = layers, 0

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Torch's own imports its compiler, which takes a processor for seconds."""
        self.param_groups.append(param_group)

    def step(self, closure: Any = None) -> None:
        for layer in self.layers:
            layer.adam(self.number)


class Kept:
    """A tensor that a forward pass keeps for its backward pass, counted as long as it is kept."""

    def __init__(self, counted: Counted, tensor: torch.Tensor) -> None:
        self.counted, self.tensor, self.place = counted, tensor, tensor.untyped_storage().data_ptr()
        counted.add(self.place, tensor.untyped_storage().nbytes())

    def __del__(self) -> None:
        self.counted.remove(self.place)


class Counted:
    """Bytes of activations that are kept at a time, each storage once; weights are none."""

    def __init__(self, weights: set[int]) -> None:
        self.weights, self.kept = weights, dict[int, list[int]]()
        self.bytes = self.most_bytes = self.first_bytes = 0

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(
            self.pack, lambda one: one.tensor if isinstance(one, Kept) else one
        )

    def pack(self, tensor: torch.Tensor) -> Any:
        return tensor if tensor.untyped_storage().data_ptr() in self.weights else Kept(self, tensor)

    def add(self, place: int, n_bytes: int) -> None:
        entry = self.kept.setdefault(place, [0, n_bytes])
        entry[0] += 1
        if entry[0] == 1:
            self.bytes += n_bytes
            self.most_bytes = max(self.most_bytes, self.bytes)

    def remove(self, place: int) -> None:
        entry = self.kept[place]
        entry[0] -= 1
        if entry[0] == 0:
            self.bytes -= self.kept.pop(place)[1]
