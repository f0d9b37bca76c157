"""Pipeline-parallel jobs whose operations are simulated, and what makes them slow."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.operations.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFaults:
    """What makes the job slow; nothing by default.

    Attributes
    ----------
    slow_workers
        (DP rank, stage) to the factor of its computes.
    last_stage
        Factors of the forward and the backward of the last model chunk.
    sequence_spread
        Standard deviation of the log of a micro-batch's cost, the same for forward and backward on all stages.
    collections_per_step, collection_s
        Garbage collections of a worker per step, each at one forward compute, and how long one takes.
    retries_per_step, retry_s
        Allocations that the allocator had to make room for, in forward and backward computes alike.
    holds_computes
        Computes that begin while gradients of the same worker are scattered wait until that is over.
    late_data_s
        How long a DP rank waits for its data at the beginning of each step: no operation, so nothing records it.

    """

    slow_workers: dict[tuple[int, int], float] = field(default_factory=dict)
    last_stage: tuple[float, float] = (1.0, 1.0)
    sequence_spread: float = 0.0
    collections_per_step: float = 0.0
    collection_s: float = 0.0
    retries_per_step: float = 0.0
    retry_s: float = 0.0
    holds_computes: bool = False
    late_data_s: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpJob:
    """A pipeline-parallel job.

    Attributes
    ----------
    forward_s, backward_s
        Of one micro-batch through one model chunk.
    jitter
        Standard deviation of the log of every compute and transfer.
    send_s, gather_s, scatter_s, optimizer_s
        Transfers between stages, of parameters and of gradients (of one chunk), and the optimizer.
    gap_s
        Between what an operation waits for and its launch, on average.
    overlaps_grads
        Gradients of a chunk are scattered as soon as its last backward has ended, beside the others.
    records_no_ops
        Sends of the model's last chunk and receives of its first are recorded, though they do nothing.

    """

    n_dp: int = 2
    n_stages: int = 4
    n_chunks: int = 1
    n_micro_batches: int = 8
    n_steps: int = 6
    schedule: Schedule = "1f1b"
    forward_s: float = 0.05
    backward_s: float = 0.1
    jitter: float = 0.01
    send_s: float = 4e-4
    gather_s: float = 0.02
    scatter_s: float = 0.04
    optimizer_s: float = 0.03
    gap_s: float = 5e-6
    overlaps_grads: bool = False
    records_no_ops: bool = False
    faults: OpFaults = OpFaults()
    seed: int = 0
