"""How long a step of a plan takes, how much memory, and how long it takes to get there: Odyssey IV-C.

A step is its pipelines and then the exchange of gradients. The pipelines' time is that of the slowest (equation 10):
in closed form where all stages are alike (9), by dynamic programming over the 1F1B order where they are not (11).

*Rerouting* (12, 13): the nodes that hold the same layers as a lost one take its micro-batches. Equation 13 adds up the
extra work of all stages. What different stages do at the same time does not add up, though: with five, four, five and
four of eight nodes lost in four stages, the order in which it can be carried out (`rerouting.py`) takes 79 units, and
equation 13 says 161 (tests/unit/actuators/recovery/test_rerouting.py). So that order is what a plan is priced with, and
`summed=True` gives equation 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from actuators.recovery.memory import peak_bytes, under_way
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.rerouting import Rerouted, extra_loads, listed, routes_of
from actuators.recovery.restorer import Restoration, exchanges
from actuators.recovery.state import Place, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of one step of a plan.

    Attributes
    ----------
    compute_s, exchange_s
        Pipelines, and gradients.
    throughput
        Samples a second (equation 7).
    peak_bytes
        Of the node that needs most.

    """

    compute_s: float
    exchange_s: float
    throughput: float
    peak_bytes: float

    @property
    def step_s(self) -> float:
        """All of it."""
        return self.compute_s + self.exchange_s


def symmetric_step_s(n_stages: int, n_micro_batches: int, forward_s: float, backward_s: float) -> float:
    """Equation 9: (N_pp + N_m - 1)(T_f + T_b), the times being those of a stage.

    >>> symmetric_step_s(4, 8, 1.0, 2.0)
    33.0
    """
    return (n_stages + n_micro_batches - 1) * (forward_s + backward_s)


@lru_cache(maxsize=4096)
def one_f_one_b_s(
    forward_s: tuple[float, ...], backward_s: tuple[float, ...], n_micro_batches: int, hop_s: float = 0.0
) -> float:
    """Equation 11: the time of one pipeline in the 1F1B order, each operation as early as it can be.

    Stage i of P does P - i - 1 forward passes, then one of each kind in turn, then the backward passes that are left.
    An operation starts when the stage is free and what it needs of its neighbour has come, `hop_s` after it was done.

    >>> one_f_one_b_s((1.0,) * 4, (2.0,) * 4, 8), one_f_one_b_s((1.0, 1.5), (2.0, 3.0), 4)
    (33.0, 21.0)
    """
    n_stages, last = len(forward_s), len(forward_s) - 1
    forward = [[0.0] * n_micro_batches for _ in range(n_stages)]
    backward = [[0.0] * n_micro_batches for _ in range(n_stages)]
    n_forward, n_backward, now = [0] * n_stages, [0] * n_stages, [0.0] * n_stages
    left = 2 * n_stages * n_micro_batches
    while left:
        for i in range(n_stages):
            ahead = n_stages - i
            done_f, done_b, at = n_forward[i], n_backward[i], now[i]
            while done_b < n_micro_batches:
                if done_f < n_micro_batches and done_f - done_b < ahead:
                    if i:
                        if n_forward[i - 1] <= done_f:
                            break
                        at = max(at, forward[i - 1][done_f] + hop_s)
                    at += forward_s[i]
                    forward[i][done_f] = at
                    done_f += 1
                    n_forward[i] = done_f
                else:
                    if i < last:
                        if n_backward[i + 1] <= done_b:
                            break
                        at = max(at, backward[i + 1][done_b] + hop_s)
                    at += backward_s[i]
                    backward[i][done_b] = at
                    done_b += 1
                    n_backward[i] = done_b
                left -= 1
            now[i] = at
    return max(now)


def stage_layers(model: ModelProfile, stages: Sequence[int]) -> tuple[float, ...]:
    """What each stage computes, in layers: the last one has the head besides."""
    return (*stages[:-1], stages[-1] + model.head_layers)


def pipeline_s(model: ModelProfile, stages: tuple[int, ...], n_micro_batches: int, hop_s: float) -> float:
    """Of one pipeline and its share of the batch."""
    layers = stage_layers(model, stages)
    forward_s = tuple(one * model.forward_s for one in layers)
    backward_s = tuple(one * model.backward_s for one in layers)
    return one_f_one_b_s(forward_s, backward_s, n_micro_batches, hop_s)


@lru_cache(maxsize=4096)
def fill_and_cycle_s(model: ModelProfile, stages: tuple[int, ...], hop_s: float) -> tuple[float, float]:
    """A pipeline's first micro-batch, and each further one: a line through what equation 11 gives for two and for
    three times as many micro-batches as stages, for the search, which asks for thousands.

    The time of a pipeline grows by the same amount with each micro-batch once it is full, to a hundredth; before that
    it is near the line where the stages are even.

    >>> from actuators.recovery.models import unit_model
    >>> fill_and_cycle_s(unit_model(n_layers=8), (4, 4), 0.0)
    (24.0, 12.0)
    """
    n = len(stages)
    two_s, three_s = (pipeline_s(model, stages, times * n, hop_s) for times in (2, 3))
    cycle_s = (three_s - two_s) / n
    return two_s - (2 * n - 1) * cycle_s, cycle_s


def rerouted(state: State, model: ModelProfile, hop_s: float, memory_bytes: float = float("inf")) -> Rerouted:
    """A step's pipelines where places are lost: the orders in those that the loss reaches, and how long all take.

    In the others it is 1F1B.

    Raises
    ------
    ValueError
        A lost place has no peer.

    >>> from actuators.recovery.models import unit_model
    >>> from actuators.recovery.state import megatron_state
    >>> state = megatron_state(dp=3, stages=(1, 1), n_micro_batches=12).without([0])
    >>> rerouted(state, unit_model(n_layers=2), 0.0).duration_s
    21.0
    """
    plan, routes = state.plan, routes_of(state)
    if routes is None:
        raise ValueError("a lost place has no peer: this cannot be rerouted")
    reached = {pipeline for one in routes if not one.is_whole for pipeline in (one.pipeline, *dict(one.places))}
    whole_s = max(
        (pipeline_s(model, plan.stages[one], plan.batches[one], hop_s) for one in {*range(plan.dp)} - reached),
        default=0.0,
    )
    layers = [stage_layers(model, stages) for stages in plan.stages]
    found = listed(
        {number: one for number, one in enumerate(routes) if one.pipeline in reached},
        under_way(state, model, memory_bytes),
        {(p, s): (layers[p][s] * model.forward_s, layers[p][s] * model.backward_s) for p, s in plan.places()},
        hop_s,
    )
    return Rerouted(found.orders, max(found.duration_s, whole_s))


def equation_13_s(state: State, model: ModelProfile, hop_s: float) -> float:
    """Equations 12 and 13, for stages of any times: all extra work of a pipeline's stages, one after the other.

    >>> from actuators.recovery.models import unit_model
    >>> from actuators.recovery.state import megatron_state
    >>> state = megatron_state(dp=3, stages=(1, 1), n_micro_batches=12).without([0])
    >>> equation_13_s(state, unit_model(n_layers=2), 0.0)
    21.0
    """
    extra = extra_loads(state)
    if extra is None:
        raise ValueError("a lost place has no peer: this cannot be rerouted")
    longest_s = 0.0
    for stages, spans, own in zip(state.plan.stages, state.plan.spans, state.plan.batches, strict=True):
        layers = stage_layers(model, stages)
        more_s = sum(extra.get(span, 0.0) * n * model.layer_s for span, n in zip(spans, layers, strict=True))
        fill_s, cycle_s = fill_and_cycle_s(model, stages, hop_s)
        longest_s = max(longest_s, fill_s + (own - 1) * cycle_s + more_s)
    return longest_s


def exchange_s(state: State, model: ModelProfile, cluster: ClusterProfile, *, in_rounds: bool = True) -> float:
    """The exchange of gradients: rounds of ring all-reduces, each as soon as its members are free.

    A ring of d members that reduces b bytes takes 2 (d - 1) (b / d / bandwidth + latency). Without `in_rounds` they go
    in the order in which a backward pass is done with the layers, so that each may wait for the one before.
    """
    free_s: dict[Place, float] = {}
    found = exchanges(state)
    for one in sorted(found, key=lambda one: one.round) if in_rounds else reversed(found):
        n_members = len(one.members)
        if n_members < 2:
            continue
        start, end = one.span
        layers = float(end - start)
        layers += model.embedding_layers * (start == 0) + model.head_layers * (end == model.n_layers)
        each = layers * model.gradient_bytes / n_members / cluster.bandwidth_bytes_per_s + cluster.latency_s
        done_s = max(free_s.get(place, 0.0) for place in one.members) + 2 * (n_members - 1) * each
        free_s.update(dict.fromkeys(one.members, done_s))
    return max(free_s.values(), default=0.0)


def hop_s(model: ModelProfile, cluster: ClusterProfile) -> float:
    """A micro-batch from one stage to the next."""
    return model.boundary_bytes / cluster.bandwidth_bytes_per_s + cluster.latency_s


def estimate(state: State, model: ModelProfile, cluster: ClusterProfile, *, summed: bool = False) -> Estimate:
    """A step of a state; with lost places as they are rerouted."""
    hop = hop_s(model, cluster)
    if state.lost and summed:
        compute_s = equation_13_s(state, model, hop)
    elif state.lost:
        compute_s = rerouted(state, model, hop, cluster.memory_bytes).duration_s
    else:
        plan = state.plan
        compute_s = max(pipeline_s(model, *one, hop) for one in zip(plan.stages, plan.batches, strict=True))
    reduce_s = exchange_s(state, model, cluster)
    samples = state.plan.n_micro_batches * model.samples_per_micro_batch
    return Estimate(
        compute_s=compute_s,
        exchange_s=reduce_s,
        throughput=samples / (compute_s + reduce_s),
        peak_bytes=peak_bytes(state, model, cluster.memory_bytes),
    )


def downtime_s(restoration: Restoration, cluster: ClusterProfile) -> float:
    """From one state to another: restart, transfer, and where layers are lost everywhere, reading and doing again.

    Infinite where a layer is lost everywhere and there is no checkpoint.
    """
    moved_s = restoration.busiest_bytes / cluster.bandwidth_bytes_per_s
    if not restoration.read_bytes:
        return cluster.restart_s + moved_s
    if not cluster.checkpoint_bytes_per_s:
        return float("inf")
    read_s = restoration.read_bytes / cluster.checkpoint_bytes_per_s
    return cluster.restart_s + read_s + cluster.checkpoint_age_s
