"""Pipeline-parallel jobs whose operations are simulated, and what makes them slow."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.operations.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFaults:
    """What makes the job slow; nothing by default."""

    # (DP rank, stage) to the factor of its computes
    slow_workers: dict[tuple[int, int], float] = field(default_factory=dict)
    last_stage: tuple[float, float] = (1.0, 1.0)  # factors of the forward and the backward of the last model chunk
    # standard deviation of the log of a micro-batch's cost, the same for forward and backward on all stages
    sequence_spread: float = 0.0
    # garbage collections of a worker per step, each at one forward compute, and how long one takes
    collections_per_step: float = 0.0
    collection_s: float = 0.0
    # allocations that the allocator had to make room for, in forward and backward computes alike
    retries_per_step: float = 0.0
    retry_s: float = 0.0
    # computes that begin while gradients of the same worker are scattered wait until that is over
    holds_computes: bool = False
    # how long a DP rank waits for its data at the beginning of each step: no operation, so nothing records it
    late_data_s: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpJob:
    """A pipeline-parallel job."""

    n_dp: int = 2
    n_stages: int = 4
    n_chunks: int = 1
    n_micro_batches: int = 8
    n_steps: int = 6
    schedule: Schedule = "1f1b"
    # of one micro-batch through one model chunk
    forward_s: float = 0.05
    backward_s: float = 0.1
    jitter: float = 0.01  # standard deviation of the log of every compute and transfer
    # transfers between stages, of parameters and of gradients (of one chunk), and the optimizer
    send_s: float = 4e-4
    gather_s: float = 0.02
    scatter_s: float = 0.04
    optimizer_s: float = 0.03
    gap_s: float = 5e-6  # between what an operation waits for and its launch, on average
    # gradients of a chunk are scattered as soon as its last backward has ended, beside the others
    overlaps_grads: bool = False
    # sends of the model's last chunk and receives of its first are recorded, though they do nothing
    records_no_ops: bool = False
    faults: OpFaults = OpFaults()
    seed: int = 0
