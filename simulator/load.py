"""What ranks have to do, where it is not the same: experts, sequences, devices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.spec import JobSpec

_SPREAD = 0.25  # of the logarithm of a rank's load
_MEMORY = 0.6  # correlation from one step to the next

WANDERS_OVER = 10.0
"""Steps after which a rank's own pace has forgotten most of what it was."""

FloatArray = npt.NDArray[np.float64]


def expert_load(spec: JobSpec) -> FloatArray:
    """What the experts of each rank have to do in each step, 1 on average over each group; `(n_steps, world_size)`.

    A hot expert stays hot for some steps, then another one is. All tensor-parallel ranks of a data-parallel rank
    share their tokens, and so their load. Without experts everybody's load is 1.
    """
    layout = spec.layout
    if spec.ep == 1:
        return np.ones((spec.iterations, layout.world_size))
    rng = np.random.default_rng([spec.seed, 7])
    shape = (layout.pp, layout.dp // spec.ep, spec.ep, 1)
    heat = _SPREAD * rng.standard_normal(shape)
    loads = np.empty((spec.iterations, layout.world_size))
    for step in range(spec.iterations):
        heat = _MEMORY * heat + np.sqrt(1 - _MEMORY**2) * _SPREAD * rng.standard_normal(shape)
        load = np.exp(heat)
        load /= load.mean(axis=2, keepdims=True)
        loads[step] = np.broadcast_to(load, (*shape[:3], layout.tp)).ravel()
    return loads


def rank_pace(spec: JobSpec) -> FloatArray:
    """How long each rank needs in each step for the same work, about 1; `(n_steps, world_size)`."""
    rng = np.random.default_rng([spec.seed, 11])
    shape = (spec.iterations, spec.layout.world_size)
    paces = spec.device_spread * rng.standard_normal(shape[1:]) * np.ones(shape)
    if spec.wandering > 0:
        memory = np.exp(-1.0 / WANDERS_OVER)
        now = rng.standard_normal(shape[1:])
        for step in range(spec.iterations):
            paces[step] += spec.wandering * now
            now = memory * now + np.sqrt(1.0 - memory**2) * rng.standard_normal(shape[1:])
    return np.exp(paces)


def length_of_step(spec: JobSpec, step: int) -> float:
    """What all ranks compute in a step, about 1: batches of sequences of about one length, rollouts."""
    rng = np.random.default_rng([spec.seed, 17, step])
    return float(np.exp(spec.step_spread * rng.standard_normal()))


def sequence_load(spec: JobSpec, step: int) -> FloatArray:
    """What each micro-batch of each data-parallel rank computes in a step, about 1; `(micro_batches, dp)`.

    All ranks of a pipeline, and all that share its tensors, work on the same sequences.
    """
    rng = np.random.default_rng([spec.seed, 13, step])
    loads: FloatArray = np.exp(spec.sequence_spread * rng.standard_normal((spec.micro_batches, spec.layout.dp)))
    return loads
