"""A job that has lost ranks, as far as it can be reckoned with: its layout, its costs; pure.

The layout and the time of a step are those that calls have shown (`JobShape`); who is gone, evidence says
(`pacehound.model.gone`). What calls do not show, layers and memory, is told by settings or assumed, and said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from actuators.recovery.described import described
from actuators.recovery.estimator import estimate
from actuators.recovery.layers import split_layers
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.state import State, megatron_state
from actuators.recovery.thresholds import (
    ASSUMED_LAYERS,
    ASSUMED_MICRO_BATCHES,
    CHECKPOINT_BYTES_PER_S,
    MOST_NODES,
    REROUTE_S,
    RESTART_S,
    UNKNOWN_MEMORY_BYTES,
)
from pacehound.errors import InvalidInput
from pacehound.model.events import Finding
from pacehound.model.evidence.leaving import JobShape
from pacehound.model.evidence.machines import CheckpointAge
from pacehound.settings import RecoverySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One that has lost ranks, as far as it can be reckoned with."""

    before: State
    lost: tuple[int, ...]
    model: ModelProfile
    cluster: ClusterProfile
    assumed: tuple[str, ...]


def job_of(shape: JobShape, gone: tuple[int, ...], known: RecoverySettings, finding: Finding) -> Job:
    """The job before it lost ranks, scaled so that its step takes what it has taken.

    >>> shape = JobShape(dp=4, pp=2, tp=1, stage_stride=4, micro_batches=4, gradient_bytes=10**9, step_time_s=1.5)
    >>> finding = Finding(id="f", job="j", attempt=0, kind="exit", verdict="culprit", cause=None, culprits=(5,))
    >>> job = job_of(shape, (5,), RecoverySettings(), finding)
    >>> job.lost, job.before.place_of[5], round(estimate(job.before, job.model, job.cluster).step_s, 3)
    ((5,), (1, 1), 1.5)
    """
    assumed = []
    each = shape.micro_batches or ASSUMED_MICRO_BATCHES
    if not shape.micro_batches:
        assumed.append(f"a batch of {each} equal parts for each replica")
    if known.model:
        model = described(known.model, flops=1e15 * shape.tp, sequence=None, micro_batch=1)
    else:
        model = _equal_layers(shape)
        how = f"{model.n_layers} equal layers" if model.n_layers > 1 else "a model that its script does not divide"
        assumed.append(f"{how} (recovery.model)")
    memory_bytes = known.memory_gib * 2**30 * shape.tp or UNKNOWN_MEMORY_BYTES
    if not known.memory_gib:
        assumed.append("memory enough for any of them (recovery.memory_gib)")
    age = next((piece.age_s for piece in finding.evidence if isinstance(piece, CheckpointAge)), None)
    cluster = ClusterProfile(
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=known.bandwidth_gb_s * 1e9 * shape.tp,
        restart_s=RESTART_S,
        reroute_s=REROUTE_S,
        checkpoint_bytes_per_s=0.0 if age is None else CHECKPOINT_BYTES_PER_S,
        checkpoint_age_s=age or 0.0,
    )
    stages = split_layers(model, shape.pp, memory_bytes)
    if shape.dp * shape.pp > MOST_NODES:
        raise InvalidInput(f"{shape.dp * shape.pp} nodes are more than the {MOST_NODES} that plans are compared for")
    if stages is None:
        raise InvalidInput(
            f"{model.name} of {model.n_layers} layers in {shape.pp} stages does not fit into "
            f"{memory_bytes / 2**30:.0f} GiB; correct recovery.model or recovery.memory_gib"
        )
    before = megatron_state(dp=shape.dp, stages=stages, n_micro_batches=shape.dp * each)
    step = estimate(before, model, cluster)
    # What is left of the step besides the exchange; of an exchange that overlaps nobody knows how much.
    scale = max(shape.step_time_s - step.exchange_s, shape.step_time_s / 2) / step.compute_s
    model = replace(model, forward_s=model.forward_s * scale, backward_s=model.backward_s * scale)
    lost = {node_of(shape, rank) for rank in gone}
    return Job(before=before, lost=tuple(sorted(lost)), model=model, cluster=cluster, assumed=tuple(assumed))


def node_of(shape: JobShape, rank: int) -> int:
    """The node of a rank as `megatron_state` numbers them: data-parallel first, then stages.

    >>> shape = JobShape(dp=2, pp=2, tp=2, stage_stride=2, micro_batches=4, gradient_bytes=0, step_time_s=1.0)
    >>> [node_of(shape, rank) for rank in range(8)]
    [0, 0, 2, 2, 1, 1, 3, 3]
    """
    stage = rank // shape.stage_stride % shape.pp
    replica = rank % shape.stage_stride + rank // (shape.stage_stride * shape.pp) * shape.stage_stride
    return shape.dp * stage + replica // shape.tp


def _equal_layers(shape: JobShape) -> ModelProfile:
    """Of a job without stages one: its script holds the model in one piece, so that no plan of stages can be its."""
    n_layers = -(-ASSUMED_LAYERS // shape.pp) * shape.pp if shape.pp > 1 else 1
    weights = max(shape.gradient_bytes * shape.tp * shape.pp / n_layers, 1.0)
    return ModelProfile(
        name="the model",
        n_layers=n_layers,
        forward_s=1.0,
        backward_s=2.0,
        parameter_bytes=weights,
        optimizer_bytes=2 * weights,  # Adam's moments, in the precision of the gradients
        gradient_bytes=weights,
        activation_bytes=0.0,
    )
