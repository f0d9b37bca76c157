"""The order in which a node of examples/train_hybrid.py computes its micro-batches."""

from __future__ import annotations

Operation = tuple[str, int]
"""`forward` or `backward`, and the number of the micro-batch."""


def one_f_one_b(stage: int, n_stages: int, n_micro_batches: int) -> list[Operation]:
    """The order of one stage, as the estimator has it."""
    warm = min(n_micro_batches, n_stages - stage - 1)
    order = [("forward", number) for number in range(warm)]
    for number in range(n_micro_batches):
        if warm + number < n_micro_batches:
            order.append(("forward", warm + number))
        order.append(("backward", number))
    return order
