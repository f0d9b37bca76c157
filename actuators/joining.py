"""A job that goes on with fewer ranks than it had, and hosts that could take part: whether a new plan pays; pure.

It is priced as the loss was, from the plan that the job has now: that which its calls show, where they are regular, and
else the one that gave most when it lost ranks. Equation 8 decides: what a plan with the new ones does more until the
next failure, against what is not done while it is changed to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from actuators.lost_job import Job
from actuators.recovery.estimator import estimate
from actuators.recovery.layers import split_layers
from actuators.recovery.policy import FailureHistory, Option, choose, duration
from actuators.recovery.restorer import restore
from actuators.recovery.state import Plan, State, even_batches
from actuators.recovery.thresholds import MOST_ALTERNATIVES
from actuators.recovery.wording import option_words
from pacehound.errors import InvalidInput
from pacehound.model.evidence.leaving import JobShape, Joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What a decision says of hosts that could take part.

    Attributes
    ----------
    pays
        Whether the best plan with them gives more until the next failure than going on as it is.

    """

    pays: bool
    reason: str
    price_s: float
    alternatives: tuple[str, ...]
    assumed: str


def joining(job: Job, shape: JobShape, joined: Joined, history: FailureHistory) -> Joining:
    """Price the best plan with those that could take part against going on without them.

    Raises
    ------
    InvalidInput
        There is nothing to compare: no plan of now, or none with them.

    """
    now, assumed = _state_of_now(job, shape, joined, history)
    first = max(*job.before.survivors, *now.survivors) + 1
    n_nodes = joined.n_ranks // shape.tp
    if not n_nodes:
        raise InvalidInput(f"{joined.n_ranks} ranks are no node of {shape.tp} that hold a stage together")
    state = now.joined(range(first, first + n_nodes))
    choice = choose(state, job.model, job.cluster, history)
    until_s = choice.until_next_s
    plans = [one for one in choice.options if one.restoration is not None]
    if not plans:
        raise InvalidInput(f"no plan is known for {len(state.survivors)} nodes: {choice.reason}")
    best, before = plans[0], estimate(job.before, job.model, job.cluster).throughput
    keep = Option(
        state=now,
        estimate=(step := estimate(now, job.model, job.cluster)),
        restoration=None,
        downtime_s=0.0,
        score=step.throughput,
    )
    gain = best.estimate.throughput - step.throughput
    after_s = best.estimate.throughput * best.downtime_s / gain if gain > 0 else inf
    pays = best.score > keep.score
    return Joining(
        pays=pays,
        reason=f"{option_words(best, before)} {_against(gain, step.throughput, after_s, until_s, pays=pays)}",
        price_s=best.downtime_s,
        alternatives=(f"going on as {option_words(keep, before)}", *_others(plans[1:], before)),
        assumed=assumed,
    )


def _against(gain: float, now: float, after_s: float, until_s: float, *, pays: bool) -> str:
    until = f"the next failure, expected in {duration(until_s)}"
    if gain <= 0:
        return f"does no more than the plan of now ({now:.3g} samples/s), so it never pays"
    more = f"does {gain / now:.1%} more than the plan of now ({now:.3g} samples/s)"
    when = f"it pays after {duration(after_s)}" if pays else f"it would pay after {duration(after_s)}"
    return f"{more}: {when}, {'before' if pays else 'and not before'} {until}"


def _others(plans: Sequence[Option], before: float) -> tuple[str, ...]:
    return tuple(option_words(one, before) for one in plans[:MOST_ALTERNATIVES])


def _state_of_now(job: Job, shape: JobShape, joined: Joined, history: FailureHistory) -> tuple[State, str]:
    """Who holds what now, and what of that is assumed."""
    after = job.before.without(job.lost)
    n_nodes = joined.n_now // shape.tp
    if joined.dp * joined.pp == n_nodes and n_nodes and n_nodes <= len(after.survivors):
        stages = split_layers(job.model, joined.pp, job.cluster.memory_bytes)
        n_micro_batches = job.before.plan.n_micro_batches
        if stages is not None and n_micro_batches >= joined.dp:
            batches = even_batches(n_micro_batches, joined.dp)
            plan = Plan(kind="symmetric", stages=(stages,) * joined.dp, batches=batches)
            return restore(after, plan, job.model).state, ""
    options = choose(after, job.model, job.cluster, history).options
    if not options:
        raise InvalidInput("no plan is known by which the job could have gone on")
    as_many = (one for one in options if len(one.state.survivors) == n_nodes)
    return next(as_many, options[0]).state, "that it goes on by the plan that gave most after the loss"
