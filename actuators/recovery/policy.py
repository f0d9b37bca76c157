"""Which plan: that of the highest throughput times the share of the time until the next failure in which it works.

Odyssey, equation 8: score = B / t_step x t_state / (t_transition + t_state). The time between two failures is the sum
of both and does not depend on the plan, so with D for it the share is (D - t_transition) / D. D comes from the failures
that were seen, not from an assumption: k in so many node-seconds are a rate for each node, and the rate of the nodes
that are left says how long it is until one of them fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from actuators.recovery.estimator import Estimate, downtime_s, estimate
from actuators.recovery.planner import plans_for
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.rerouting import extra_loads
from actuators.recovery.restorer import Restoration, restore
from actuators.recovery.state import Plan, State
from actuators.recovery.thresholds import LEAST_PAST_FAILURES, LEAST_PRICED, MOST_PRICED


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureHistory:
    """What was seen of failures so far.

    Attributes
    ----------
    n_failures
        Nodes that failed, those of now among them.
    node_s
        Seconds that nodes were watched, over all of them.

    >>> FailureHistory(n_failures=3, node_s=3.5 * 3600 * 32).until_next_s(32)
    3600.0
    """

    n_failures: int
    node_s: float

    @classmethod
    def of(cls, failed_at_s: Iterable[float], *, n_nodes: int, since_s: float, now_s: float) -> FailureHistory:
        """Of a cluster that began with some nodes and lost one at each of these times.

        >>> FailureHistory.of([50.0], n_nodes=2, since_s=0.0, now_s=100.0)
        FailureHistory(n_failures=1, node_s=150.0)
        """
        failed = [at for at in failed_at_s if since_s <= at <= now_s]
        watched = n_nodes * (now_s - since_s) - sum(now_s - at for at in failed)
        return cls(n_failures=len(failed), node_s=watched)

    def until_next_s(self, n_nodes: int) -> float:
        """How long some nodes are expected to go on without one of them failing; 0 where nothing was watched."""
        return self.node_s / (self.n_failures + LEAST_PAST_FAILURES) / n_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A plan with its prices.

    Attributes
    ----------
    state
        Who holds what with it.
    restoration
        What moves; `None` where nothing does.
    score
        Equation 8: samples a second until the next failure, the downtime counted in.

    """

    state: State
    estimate: Estimate
    restoration: Restoration | None
    downtime_s: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """All options that were priced, best first, and why the first one is it.

    Attributes
    ----------
    options
        Empty where no plan can work.
    reason
        In a sentence.

    """

    options: tuple[Option, ...]
    until_next_s: float
    reason: str

    @property
    def chosen(self) -> Option | None:
        """The best one."""
        return self.options[0] if self.options else None


def score(throughput: float, downtime_s: float, until_next_s: float) -> float:
    """Equation 8; 0 for what would not be done before the next failure.

    >>> score(10.0, 60.0, 600.0), score(10.0, 60.0, 30.0)
    (9.0, 0.0)
    """
    return throughput * max(0.0, 1.0 - downtime_s / until_next_s) if until_next_s > 0 else 0.0


def choose(
    state: State, model: ModelProfile, cluster: ClusterProfile, history: FailureHistory, *, summed: bool = False
) -> Choice:
    """Price rerouting and every plan that promises much, and take the best.

    Parameters
    ----------
    state
        Of now: who is lost is out of it (`State.without`), who has come is idle in it (`State.joined`).
    model, cluster
        What layers cost and nodes give.
    history
        Of failures, that of now among them.
    summed
        Count rerouting as equation 13 does.

    """
    n_nodes = len(state.survivors)
    if not n_nodes:
        return Choice(options=(), until_next_s=0.0, reason="no node is left")
    until_s = history.until_next_s(n_nodes)
    options = [*_as_it_is(state, model, cluster, until_s, summed=summed)]
    plan = state.plan
    found = plans_for(model, cluster, n_nodes=n_nodes, dp=plan.dp, pp=plan.pp, n_micro_batches=plan.n_micro_batches)
    promised = sorted(
        ((estimate(_with_anybody(one), model, cluster), one) for one in found), key=lambda pair: -pair[0].throughput
    )
    for step, one in promised[:MOST_PRICED]:
        best = max((option.score for option in options), default=0.0)
        # Nothing takes less than a restart, so what promises less than the best has is not worth an assignment.
        if len(options) >= LEAST_PRICED and score(step.throughput, cluster.restart_s, until_s) < best:
            break
        restoration = restore(state, one, model)
        down_s = downtime_s(restoration, cluster)
        options.append(
            Option(
                state=restoration.state,
                estimate=step,
                restoration=restoration,
                downtime_s=down_s,
                score=score(step.throughput, down_s, until_s),
            )
        )
    options = [one for one in options if one.downtime_s < float("inf")]
    options.sort(key=lambda one: (-one.score, one.downtime_s, -one.estimate.throughput))
    return Choice(options=tuple(options), until_next_s=until_s, reason=_reason(options, until_s, n_nodes, cluster))


def _as_it_is(
    state: State, model: ModelProfile, cluster: ClusterProfile, until_s: float, *, summed: bool
) -> list[Option]:
    """Going on with the stages of before, where each lost one has a peer and the peers have the memory."""
    if extra_loads(state) is None:
        return []
    step = estimate(state, model, cluster, summed=summed)
    if step.peak_bytes > cluster.memory_bytes:
        return []
    down_s = cluster.reroute_s if state.lost else 0.0
    if state.lost:
        state = replace(state, plan=replace(state.plan, kind="reroute"))
    worth = score(step.throughput, down_s, until_s)
    return [Option(state=state, estimate=step, restoration=None, downtime_s=down_s, score=worth)]


def _with_anybody(plan: Plan) -> State:
    """A plan with some holders: who they are does not matter for a step."""
    number = count()
    return State(plan=plan, holders=tuple(tuple(next(number) for _ in stages) for stages in plan.stages))


def _reason(options: Sequence[Option], until_s: float, n_nodes: int, cluster: ClusterProfile) -> str:
    if not options:
        missing = "" if cluster.checkpoint_bytes_per_s else ", or a layer is lost everywhere and there is no checkpoint"
        return f"on {n_nodes} nodes no plan fits into {cluster.memory_bytes / 2**30:.0f} GiB{missing}"
    best, others = options[0], [one for one in options[1:] if one.downtime_s < options[0].downtime_s]
    said = f"{_words(best)} gives most until the next failure, expected in {duration(until_s)}"
    if others:
        cheap = min(others, key=lambda one: (one.downtime_s, -one.score))
        gain = best.estimate.throughput - cheap.estimate.throughput
        lost = best.estimate.throughput * best.downtime_s - cheap.estimate.throughput * cheap.downtime_s
        return f"{said}: against {_words(cheap)} it pays after {duration(lost / gain)}"
    quick = [one for one in options[1:] if one.estimate.throughput > best.estimate.throughput]
    if quick:
        fast = max(quick, key=lambda one: one.estimate.throughput)
        return f"{said}: {_words(fast)} would do more a second, but not in that time"
    return said


def _words(option: Option) -> str:
    plan = option.state.plan
    names = {"reroute": "rerouting", "symmetric": "a symmetric plan", "asymmetric": "an asymmetric plan"}
    return f"{names[plan.kind]} ({option.estimate.throughput:.3g} samples/s, {duration(option.downtime_s)} down)"


def duration(seconds: float) -> str:
    """For people.

    >>> duration(0.5), duration(90.0), duration(7200.0)
    ('0.5 s', '90 s', '2.0 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
