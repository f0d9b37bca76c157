"""Which stage of a pipeline has how many layers: the slowest as fast as it can be, and none out of memory."""

from __future__ import annotations

from functools import lru_cache

from actuators.recovery.estimator import stage_layers
from actuators.recovery.memory import stage_bytes
from actuators.recovery.profile import ModelProfile


@lru_cache(maxsize=1024)
def split_layers(model: ModelProfile, n_stages: int, memory_bytes: float) -> tuple[int, ...] | None:
    """The layers of each stage, or `None` where no split fits into memory.

    Each layer goes to the stage that is the fastest with it, of equal ones to the first: in the 1F1B order a slow
    stage costs more the later it comes, for the passes of the first micro-batches go through it before it is busy. A
    stage that is full gets no more. Loads only grow, so that no split has a faster slowest stage. Odyssey IV-A lists
    all splits of what is left after an even division, which for 16 stages may be 12,870; on small ones a test compares
    the two.

    >>> from actuators.recovery.models import unit_model
    >>> split_layers(unit_model(n_layers=8, head_layers=0.5), 3, 10.0)
    (3, 3, 2)
    >>> split_layers(unit_model(n_layers=8), 3, 2.0) is None
    True
    """
    if n_stages > model.n_layers:
        return None
    most = [_most_layers(model, n_stages, stage, memory_bytes) for stage in range(n_stages)]
    if min(most) < 1 or sum(most) < model.n_layers:
        return None
    stages = [1] * n_stages
    for _ in range(model.n_layers - n_stages):
        loads = stage_layers(model, stages)
        free = [stage for stage in range(n_stages) if stages[stage] < most[stage]]
        stages[min(free, key=lambda stage: loads[stage])] += 1
    return tuple(stages)


def _most_layers(model: ModelProfile, n_stages: int, stage: int, memory_bytes: float) -> int:
    """How many fit, with as many micro-batches under way as the stage can have."""
    fixed = stage_bytes(model, n_stages, stage, 0, n_stages - stage)
    each = stage_bytes(model, n_stages, stage, 1, n_stages - stage) - fixed
    return int((memory_bytes - fixed) // each)
