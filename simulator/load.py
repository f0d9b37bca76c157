"""How the load of experts wanders over the ranks that hold them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.spec import JobSpec

_SPREAD = 0.25  # of the logarithm of a rank's load
_MEMORY = 0.6  # correlation from one step to the next

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
