"""Jobs, clusters and failures for the tests of this folder."""

from __future__ import annotations

from hypothesis import strategies as st

from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.state import Plan, State

CLUSTER = ClusterProfile(memory_bytes=100.0, bandwidth_bytes_per_s=10.0, latency_s=0.001, restart_s=2.0, reroute_s=0.5)


def model(n_layers: int = 8, *, head_layers: float = 0.0, embedding_layers: float = 0.0) -> ModelProfile:
    return ModelProfile(
        name="small",
        n_layers=n_layers,
        forward_s=1.0,
        backward_s=2.0,
        parameter_bytes=1.0,
        optimizer_bytes=6.0,
        gradient_bytes=1.0,
        activation_bytes=0.5,
        boundary_bytes=0.1,
        head_layers=head_layers,
        embedding_layers=embedding_layers,
    )


@st.composite
def compositions(draw: st.DrawFn, n_layers: int, most_stages: int) -> tuple[int, ...]:
    """Stages of one pipeline, none of them empty."""
    n_stages = draw(st.integers(1, min(most_stages, n_layers)))
    cuts = sorted(draw(st.sets(st.integers(1, n_layers - 1), min_size=n_stages - 1, max_size=n_stages - 1)))
    return tuple(end - start for start, end in zip([0, *cuts], [*cuts, n_layers], strict=True))


@st.composite
def plans(draw: st.DrawFn, n_layers: int = 6, most_pipelines: int = 4, most_stages: int = 4) -> Plan:
    """Pipelines of any stages."""
    stages = draw(st.lists(compositions(n_layers, most_stages), min_size=1, max_size=most_pipelines))
    batches = draw(st.lists(st.integers(1, 4), min_size=len(stages), max_size=len(stages)))
    kind = "symmetric" if len(set(stages)) == 1 and len(set(batches)) == 1 else "asymmetric"
    return Plan(kind=kind, stages=tuple(stages), batches=tuple(batches))


def state_of(plan: Plan) -> State:
    """Its places held by nodes in their order."""
    nodes = iter(range(plan.n_places))
    return State(plan=plan, holders=tuple(tuple(next(nodes) for _ in stages) for stages in plan.stages))
