"""What a job does when it loses a node: the choice of all plans, and three that know one way each.

All of them are priced by the same estimator, their transfers planned by the same restorer, and their gradients
exchanged in the same rounds; so the others are given what Odyssey says they do not have (a cheapest assignment, few
rounds), and what is measured is which plans they can choose from. All start from the same plan.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace

from actuators.recovery.estimator import downtime_s, estimate, exchange_s
from actuators.recovery.planner import Length, distribute_batch, lengths_that_fit
from actuators.recovery.policy import FailureHistory, choose
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.rerouting import extra_loads
from actuators.recovery.restorer import restore
from actuators.recovery.state import Kind, Plan, State, even_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model on a cluster; `summed` counts rerouting as equation 13 does, for everybody."""

    model: ModelProfile
    cluster: ClusterProfile
    summed: bool = False

    def throughput(self, state: State) -> float:
        """Samples a second."""
        return estimate(state, self.model, self.cluster, summed=self.summed).throughput

    def lengths(self, state: State) -> tuple[Length, ...]:
        """Pipelines of every length that fits into memory."""
        n_nodes = len(state.survivors)
        return lengths_that_fit(self.model, self.cluster, n_nodes, n_nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    """What became of a job; without a state it has ended."""

    state: State | None
    downtime_s: float = 0.0


class Strategy(abc.ABC):
    """One way to go on after a failure."""

    name: str

    def throughput(self, job: Job, state: State) -> float:
        """Samples a second."""
        return job.throughput(state)

    @abc.abstractmethod
    def after(self, job: Job, state: State, history: FailureHistory, checkpoint_age_s: float) -> Went:
        """What a job does that has just come into this state."""

    @staticmethod
    def restarted(job: Job, state: State, checkpoint_age_s: float) -> Went:
        """Back to the checkpoint with the symmetric plan of the highest throughput: what always works, if memory does.

        Varuna morphs to such a plan; the others have nothing else where a stage is lost everywhere.
        """
        model, cluster = job.model, replace(job.cluster, checkpoint_age_s=checkpoint_age_s)
        nodes = state.survivors
        best: tuple[float, State] | None = None
        for one in job.lengths(state):
            dp = min(len(nodes) // one.n_stages, state.plan.n_micro_batches)
            batches = even_batches(state.plan.n_micro_batches, dp)
            plan = Plan(kind="symmetric", stages=(one.stages,) * dp, batches=batches)
            rows = tuple(tuple(nodes[d * one.n_stages + s] for s in range(one.n_stages)) for d in range(dp))
            new = State(plan=plan, holders=rows, idle=nodes[dp * one.n_stages :])
            if best is None or job.throughput(new) > best[0]:
                best = job.throughput(new), new
        if best is None:
            return Went(state=None)
        # As if nobody held anything: every node reads its layers, and what was done since the checkpoint is done again.
        nothing = State(plan=state.plan, holders=tuple((None,) * len(row) for row in state.holders), idle=nodes)
        return Went(state=best[1], downtime_s=downtime_s(restore(nothing, best[1].plan, model), cluster))


class Adaptive(Strategy):
    """Pacehound: of all plans and of rerouting the best by equation 8."""

    name = "pacehound"

    def after(self, job: Job, state: State, history: FailureHistory, checkpoint_age_s: float) -> Went:
        """The choice."""
        cluster = replace(job.cluster, checkpoint_age_s=checkpoint_age_s)
        chosen = choose(state, job.model, cluster, history, summed=job.summed).chosen
        return Went(state=None) if chosen is None else Went(state=chosen.state, downtime_s=chosen.downtime_s)


class Templates(Strategy):
    """Oobleck-style: each pipeline that lost nodes goes on with the template of the nodes that it has left.

    One that has fewer than the shortest template borrows of the longest, and where none can spare one, it is merged
    with the shortest other (Oobleck 4). There is a template for every length from the shortest that fits into memory
    on. The batch is divided anew, by the same exact rule as ours. Missing layers are copied from live replicas.
    """

    name = "oobleck"

    def after(self, job: Job, state: State, history: FailureHistory, checkpoint_age_s: float) -> Went:
        """The pipelines that are left, re-instantiated."""
        lengths = {one.n_stages: one for one in job.lengths(state)}
        if not lengths:
            return Went(state=None)
        counts = [sum(node is not None for node in row) for row in state.holders]
        sizes = _repaired([count for count in counts if count], min(lengths))
        # Nodes that a template cannot use (more stages than layers) are idle.
        pipelines = [lengths[min(size, max(lengths))] for size in sizes]
        if not pipelines:
            return Went(state=None)
        stages = tuple(one.stages for one in pipelines)
        kind: Kind = "symmetric" if len(set(stages)) == 1 else "asymmetric"
        batches = distribute_batch(pipelines, state.plan.n_micro_batches)
        restoration = restore(state, Plan(kind=kind, stages=stages, batches=batches), job.model)
        down_s = downtime_s(restoration, replace(job.cluster, checkpoint_age_s=checkpoint_age_s))
        return Went(state=restoration.state, downtime_s=down_s) if down_s < float("inf") else Went(state=None)


class TemplatesInOrder(Templates):
    """The same, gradients exchanged as the backward pass is done with layers, not in rounds (Odyssey, figure 4)."""

    name = "oobleck, no rounds"

    def throughput(self, job: Job, state: State) -> float:
        """With what the exchange takes more."""
        step = estimate(state, job.model, job.cluster, summed=job.summed)
        in_order_s = exchange_s(state, job.model, job.cluster, in_rounds=False)
        return step.throughput * step.step_s / (step.compute_s + in_order_s)


def _repaired(sizes: Sequence[int], shortest: int) -> list[int]:
    """Sizes of pipelines after borrowing and merging; none below the shortest."""
    found = sorted(sizes)
    while found and found[0] < shortest:
        if found[-1] > shortest:
            found[0] += 1
            found[-1] -= 1
        elif len(found) > 1:
            found[1] += found[0]
            found = found[1:]
        else:
            return []
        found.sort()
    return found


class Rerouting(Strategy):
    """ReCycle-style: micro-batches of lost nodes go to the peers of their stage, nothing is ever moved.

    Where a stage has nobody left, or its peers run out of memory, it restarts from the checkpoint. The decoupled
    backward passes with which ReCycle fills bubbles are counted as if they filled all of them, where `Job.summed` is
    not set.
    """

    name = "recycle"

    def after(self, job: Job, state: State, history: FailureHistory, checkpoint_age_s: float) -> Went:
        """The same plan with fewer nodes."""
        if extra_loads(state) is None:
            return self.restarted(job, state, checkpoint_age_s)
        step = estimate(state, job.model, job.cluster, summed=job.summed)
        if step.peak_bytes > job.cluster.memory_bytes:
            return self.restarted(job, state, checkpoint_age_s)
        return Went(state=state, downtime_s=job.cluster.reroute_s)


class ReroutingEvened(Rerouting):
    """The same, but a stage that has lost two nodes more than another is given one of it, at the price of the copy.

    More than Odyssey grants to data rerouting, and what ReCycle could do about failures that gather in one stage.
    """

    name = "recycle, evened"

    def after(self, job: Job, state: State, history: FailureHistory, checkpoint_age_s: float) -> Went:
        """Rerouted with losses evened out over the stages."""
        rows = [list(row) for row in state.holders]
        copied = 0
        while len(set(map(len, rows))) == 1:
            lost = [sum(row[stage] is None for row in rows) for stage in range(len(rows[0]))]
            most, least = lost.index(max(lost)), lost.index(min(lost))
            if lost[most] - lost[least] < 2:
                break
            giver = next(row for row in rows if row[least] is not None)
            taker = next(row for row in rows if row[most] is None)
            taker[most], giver[least] = giver[least], None
            copied += 1
        went = super().after(job, replace(state, holders=tuple(map(tuple, rows))), history, checkpoint_age_s)
        if not copied or went.state is None or not went.state.lost:
            return went
        layers = max(went.state.plan.stages[0])
        copy_s = layers * job.model.state_bytes / job.cluster.bandwidth_bytes_per_s
        return replace(went, downtime_s=went.downtime_s + copied * copy_s)


class Restart(Strategy):
    """Varuna-style: the best symmetric plan of the nodes that are left, from the last checkpoint."""

    name = "varuna"

    def after(self, job: Job, state: State, history: FailureHistory, checkpoint_age_s: float) -> Went:
        """From the checkpoint."""
        return self.restarted(job, state, checkpoint_age_s)


STRATEGIES: tuple[Strategy, ...] = (
    Adaptive(),
    Templates(),
    TemplatesInOrder(),
    Rerouting(),
    ReroutingEvened(),
    Restart(),
)
