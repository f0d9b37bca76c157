"""What ranks that have lost one say of their job when they ask which plan to go on with, and the answer to it.

It is JSON of a script: everything about it is checked, and what does not fit is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from actuators.recovery.policy import Choice, Option
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.state import Plan, State
from actuators.recovery.thresholds import MOST_NODES, REROUTE_S, RESTART_S, UNKNOWN_MEMORY_BYTES
from pacehound.errors import InvalidInput
from pacehound.model.json_documents import UNREADABLE_JSON


class _Costs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Of one layer: what computing it takes, and what it weighs."""

    forward_s: float
    backward_s: float = 0.0
    parameter_bytes: float
    optimizer_bytes: float = 0.0
    gradient_bytes: float = 0.0
    activation_bytes: float = 0.0
    boundary_bytes: float = 0.0
    samples_per_micro_batch: int = 1


class _Cluster(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What nodes give, as far as the script knows it."""

    memory_bytes: float = UNKNOWN_MEMORY_BYTES
    bandwidth_bytes_per_s: float = 0.0
    latency_s: float = 0.0
    restart_s: float = RESTART_S
    reroute_s: float = REROUTE_S


class _Asked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    stages: tuple[tuple[int, ...], ...]
    batches: tuple[int, ...]
    holders: tuple[tuple[int | None, ...], ...]
    idle: tuple[int, ...] = ()
    lost: tuple[int, ...]
    ranks_per_node: int = 1
    layer: _Costs
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A job that has lost nodes, as its script describes it.

    Attributes
    ----------
    state
        Of now: places of lost nodes are held by nobody.
    lost
        Who was lost just now.
    ranks_per_node
        Of a tensor-parallel group.

    """

    state: State
    lost: tuple[int, ...]
    ranks_per_node: int
    model: ModelProfile
    cluster: ClusterProfile


def read_question(payload: str, bandwidth_bytes_per_s: float) -> Asked:
    """The job of a question; the bandwidth is what the settings say, for a script that does not.

    Raises
    ------
    InvalidInput
        It is none.

    >>> asked = read_question(
    ...     '{"stages":[[2,2],[2,2]],"batches":[4,4],"holders":[[0,2],[1,null]],"lost":[3],'
    ...     '"layer":{"forward_s":0.1,"parameter_bytes":1e6}}', 25e9)
    >>> asked.state.survivors, asked.model.backward_s
    ((0, 1, 2), 0.2)
    """
    try:
        said = msgspec.json.decode(payload, type=_Asked)
    except UNREADABLE_JSON as error:
        raise InvalidInput(f"a question that cannot be read: {error}") from error
    costs, cluster = said.layer, said.cluster
    numbers = (*msgspec.structs.astuple(costs), *msgspec.structs.astuple(cluster))
    if not all(0.0 <= one < 1e18 for one in numbers) or not costs.forward_s > 0:
        raise InvalidInput(f"costs that cannot be: {payload[:200]}")
    if said.ranks_per_node < 1 or not said.lost:
        raise InvalidInput(f"{said.ranks_per_node} ranks a node, {len(said.lost)} lost")
    if sum(map(len, said.stages)) > MOST_NODES or sum(map(sum, said.stages[:1])) > MOST_NODES:
        raise InvalidInput(f"more than {MOST_NODES} nodes or layers")
    plan = Plan(kind="asymmetric", stages=said.stages, batches=said.batches)
    return Asked(
        state=State(plan=plan, holders=said.holders, idle=said.idle),
        lost=said.lost,
        ranks_per_node=said.ranks_per_node,
        model=ModelProfile(
            name="the model",
            n_layers=plan.n_layers,
            forward_s=costs.forward_s,
            backward_s=costs.backward_s or 2 * costs.forward_s,
            parameter_bytes=costs.parameter_bytes,
            optimizer_bytes=costs.optimizer_bytes or 2 * costs.parameter_bytes,
            gradient_bytes=costs.gradient_bytes or costs.parameter_bytes,
            activation_bytes=costs.activation_bytes,
            boundary_bytes=costs.boundary_bytes,
            samples_per_micro_batch=costs.samples_per_micro_batch,
        ),
        cluster=ClusterProfile(
            memory_bytes=cluster.memory_bytes,
            bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s or bandwidth_bytes_per_s,
            latency_s=cluster.latency_s,
            restart_s=cluster.restart_s,
            reroute_s=cluster.reroute_s,
        ),
    )


def best_without_checkpoint(choice: Choice) -> Option | None:
    """The best plan for which all layers are held by somebody; nothing where there is none."""
    return next((one for one in choice.options if not (one.restoration and one.restoration.read_bytes)), None)


def plan_answer(best: Option) -> dict[str, Any]:
    """A plan, as a script gets it."""
    plan = best.state.plan
    return {
        "kind": plan.kind,
        "stages": [list(stages) for stages in plan.stages],
        "batches": list(plan.batches),
        "holders": [list(nodes) for nodes in best.state.holders],
        "idle": list(best.state.idle),
    }
