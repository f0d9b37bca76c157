"""How much memory a plan takes: Odyssey, equation 14."""

from __future__ import annotations

import math

from actuators.recovery.profile import ModelProfile
from actuators.recovery.rerouting import extra_loads
from actuators.recovery.state import Place, State


def stage_bytes(model: ModelProfile, n_stages: int, stage: int, layers: int, n_under_way: int) -> float:
    """Equation 14: layers x (m_p + m_o + m_g) + micro-batches under way x layers x m_a."""
    extra = model.embedding_layers * (stage == 0) + model.head_layers * (stage == n_stages - 1)
    return (layers + extra) * model.static_bytes + n_under_way * layers * model.activation_bytes


def under_way(state: State, model: ModelProfile, memory_bytes: float) -> dict[Place, int]:
    """How many micro-batches each place has begun and not ended, at most.

    Stage i of P has P - i, or all where they are fewer. Whoever takes those of lost places has more: in proportion to
    its load at least, and as many again for each whole or part of another share where there is memory for them, which
    is less waiting (test_rerouting.py).

    >>> from dataclasses import replace
    >>> from actuators.recovery.models import unit_model
    >>> from actuators.recovery.state import megatron_state
    >>> state = megatron_state(dp=3, stages=(1, 1), n_micro_batches=12).without([0])
    >>> model = replace(unit_model(n_layers=2), activation_bytes=1.0)
    >>> [under_way(state, model, memory_bytes)[1, 0] for memory_bytes in (9.0, 1.0)]
    [4, 3]
    """
    plan, extra = state.plan, extra_loads(state) or {}
    found = {}
    for pipeline, stage in state.place_of.values():
        stages, batch = plan.stages[pipeline], plan.batches[pipeline]
        own = min(len(stages) - stage, batch)
        load = 1.0 + extra.get(plan.spans[pipeline][stage], 0.0) / batch
        least, most = math.ceil(own * load), own * math.ceil(load)
        if least < most:
            held = stage_bytes(model, len(stages), stage, stages[stage], 0)
            each = stages[stage] * model.activation_bytes
            fit = (memory_bytes - held) / each if each else float("inf")
            most = int(min(most, max(least, fit)))
        found[pipeline, stage] = most
    return found


def peak_bytes(state: State, model: ModelProfile, memory_bytes: float = float("inf")) -> float:
    """Of the node that needs most, none of which has more than so much if it can do with it."""
    most = 0.0
    for (pipeline, stage), n in under_way(state, model, memory_bytes).items():
        stages = state.plan.stages[pipeline]
        most = max(most, stage_bytes(model, len(stages), stage, stages[stage], n))
    return most
