"""An all-reduce by which ranks agree, where a script uses torch.distributed: `connect(agree=smallest_over_ranks)`."""

from __future__ import annotations

import sys


def smallest_over_ranks(values: list[int]) -> list[int]:
    """The smallest of each number over all ranks of the default group; the same numbers where there is no group.

    >>> smallest_over_ranks([7, -7])
    [7, -7]
    """
    dist = sys.modules.get("torch.distributed")  # a script that has a group has loaded it
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return values
    import torch

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    smallest = torch.tensor(values, dtype=torch.int64, device=device)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    found: list[int] = smallest.tolist()
    return found
