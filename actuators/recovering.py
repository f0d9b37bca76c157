"""What an incident that has lost ranks calls for besides a restart: plans for those that are left, priced; pure.

The layout of the job and the time of its step are those that its calls have shown (`JobShape`); who is gone, evidence
says: a process that has left, a GPU that has failed, a host that nobody hears of. What calls do not show, layers and
memory, is told by settings or assumed, and said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from actuators.decision import decision_about
from actuators.mitigation.actions import RESTART_WITHOUT_RANK, Action
from actuators.mitigation.loss import gravest, loss_of, what_words
from actuators.recovery.described import described
from actuators.recovery.estimator import estimate
from actuators.recovery.layers import split_layers
from actuators.recovery.policy import Choice, FailureHistory, Option, choose, duration, score
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.state import State, megatron_state
from actuators.recovery.thresholds import (
    ASSUMED_DEVICE_HOURS,
    ASSUMED_FAILURES,
    ASSUMED_LAYERS,
    ASSUMED_MICRO_BATCHES,
    CHECKPOINT_BYTES_PER_S,
    LEAST_SEEN_FAILURES,
    MOST_ALTERNATIVES,
    MOST_NODES,
    REROUTE_S,
    RESTART_S,
    UNKNOWN_MEMORY_BYTES,
)
from pacehound.errors import InvalidInput, PacehoundError
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.evidence.leaving import JobShape, Left, Process
from pacehound.model.evidence.machines import CheckpointAge, Gpu, HostSilent
from pacehound.settings import RecoverySettings

logger = logging.getLogger(__name__)

REROUTE = Action(
    name="reroute",
    price_s=REROUTE_S,
    effect="goes on with the same stages, and the peers of those that are lost take their micro-batches",
    source="ReCycle; Odyssey IV-C",
)
REPLAN = Action(
    name="replan",
    price_s=RESTART_S,
    effect="goes on with new pipelines over the ranks that are left, whose layers come from live replicas",
    source="Odyssey IV",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFailures:
    """Ranks that a store has seen fail, and for how long it has watched ranks, over all of them and their attempts."""

    n_failures: int
    rank_s: float
    n_attempts: int

    def history(self, n_lost: int, tp: int) -> tuple[FailureHistory, str]:
        """Those of now among them, and how to say so; nodes are `tp` ranks that fail together.

        From a few no rate is told: that one rank fails in the first minute says nothing of the next.

        >>> PastFailures(n_failures=2, rank_s=36_000.0, n_attempts=5).history(1, 1)[1]
        '3 failed in 10.0 h of ranks that were watched (attempts: 5)'
        """
        n_failures = self.n_failures + n_lost
        seen = f"{n_failures} failed in {duration(self.rank_s)} of ranks that were watched"
        said = f"{seen} (attempts: {self.n_attempts})"
        if n_failures < LEAST_SEEN_FAILURES or not self.rank_s > 0:
            return assumed_history(tp)[0], f"{said}, too few to tell a rate: that of Llama 3's training is assumed"
        return FailureHistory(n_failures=n_failures, node_s=self.rank_s / tp), said


def assumed_history(tp: int) -> tuple[FailureHistory, str]:
    """Where no store can be asked."""
    node_s = ASSUMED_DEVICE_HOURS * 3600.0 / tp
    said = "no past failures are known: the rate of Llama 3's training is assumed"
    return FailureHistory(n_failures=ASSUMED_FAILURES, node_s=node_s), said


Failures = Callable[[str], PastFailures | None]
"""Asks for those before an incident, by its id, when there is something to decide; `None` where nobody can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One that has lost ranks, as far as it can be reckoned with."""

    before: State
    lost: tuple[int, ...]
    model: ModelProfile
    cluster: ClusterProfile
    assumed: tuple[str, ...]


def gone_ranks(finding: Finding) -> tuple[int, ...]:
    """Those that will not come back by themselves, by evidence.

    >>> left = Left(rank=3, pid=7, signal=9)
    >>> gone_ranks(Finding(id="f", job="j", attempt=0, kind="exit", verdict="culprit", cause=None, culprits=(3,),
    ...     evidence=(left,)))
    (3,)
    """
    gone = set()
    named = {*finding.culprits, *finding.candidates} if finding.kind == "blind" else set(finding.culprits)
    for piece in finding.evidence:
        match piece:
            case Left(rank=rank):
                gone.add(rank)
            case Process(rank=rank, state="exited"):
                gone.add(rank)
            case Gpu(rank=rank, has_failed=True):
                gone.add(rank)
            case HostSilent():
                gone |= named
            case _:
                pass
    return tuple(sorted(gone & named))


Asks = Callable[[str, dict[str, str]], list[dict[str, Any]]]
"""Asks a store one of its named queries."""


def recovery_by(settings: RecoverySettings, asks: Asks | None) -> Callable[[Incident], Decision | None]:
    """Decides with what a job's settings and a store say; without a store the rate of failures is assumed."""

    def failures(incident: str) -> PastFailures | None:
        if asks is None:
            return None
        try:
            (row,) = asks("recovery/failures", {"incident": incident})
        except PacehoundError as error:
            logger.warning("past failures cannot be asked for: %s", error)
            return None
        return PastFailures(**row)

    return partial(recovery_of, failures=failures, known=settings)


def recovery_of(incident: Incident, failures: Failures, known: RecoverySettings) -> Decision | None:
    """Which plan an incident calls for; nothing where nobody is gone or the job's layout was not seen.

    Parameters
    ----------
    incident
        One version.
    failures
        Of the past.
    known
        What calls do not show.

    """
    finding = gravest([one for one in incident.findings if gone_ranks(one)], is_over=True)
    if incident.state != "open" or finding is None:
        return None
    gone = gone_ranks(finding)
    shape = next((piece for piece in finding.evidence if isinstance(piece, JobShape)), None)
    if shape is None or not shape.step_time_s > 0:
        return None
    action, reason, limit = REPLAN, "", ""
    alternatives: tuple[str, ...] = ()
    if shape.is_sharded:
        action = RESTART_WITHOUT_RANK
        reason = "parameters are sharded over the replicas: what a lost rank held nobody else has"
    else:
        try:
            job = job_of(shape, gone, known, finding)
            past = failures(incident.id)
            history, known_of = past.history(len(gone), shape.tp) if past else assumed_history(shape.tp)
            choice = choose(job.before.without(job.lost), job.model, job.cluster, history)
            action, reason, alternatives = _said(job, choice, known_of)
        except ModuleNotFoundError as error:
            reason, limit = "plans cannot be compared", f"{error.name} is missing: pip install 'pacehound[recovery]'"
        except InvalidInput as error:
            reason, limit = "plans cannot be compared", str(error)
    return decision_about(
        incident,
        action,
        f"{_how_sure(finding)} {what_words(finding)}: {reason}",
        mode="observe",
        time_ns=incident.time_ns,
        loss_s=loss_of(incident, finding),
        aimed_at=gone,
        taken=False,
        alternatives=alternatives,
        limit=limit,
    )


def _how_sure(finding: Finding) -> str:
    return "for" if finding.verdict == "culprit" else "if those that are suspected are gone, for"


def job_of(shape: JobShape, gone: tuple[int, ...], known: RecoverySettings, finding: Finding) -> Job:
    """The job before it lost ranks, scaled so that its step takes what it has taken.

    >>> shape = JobShape(dp=4, pp=2, tp=1, stage_stride=4, micro_batches=4, gradient_bytes=10**9, step_time_s=1.5)
    >>> finding = Finding(id="f", job="j", attempt=0, kind="exit", verdict="culprit", cause=None, culprits=(5,))
    >>> job = job_of(shape, (5,), RecoverySettings(), finding)
    >>> job.lost, job.before.place_of[5], round(estimate(job.before, job.model, job.cluster).step_s, 3)
    ((5,), (1, 1), 1.5)
    """
    assumed = []
    each = shape.micro_batches or ASSUMED_MICRO_BATCHES
    if not shape.micro_batches:
        assumed.append(f"a batch of {each} equal parts for each replica")
    if known.model:
        model = described(known.model, flops=1e15 * shape.tp, sequence=None, micro_batch=1)
    else:
        model = _equal_layers(shape)
        assumed.append(f"{model.n_layers} equal layers (recovery.model)")
    memory_bytes = known.memory_gib * 2**30 * shape.tp or UNKNOWN_MEMORY_BYTES
    if not known.memory_gib:
        assumed.append("memory enough for any of them (recovery.memory_gib)")
    age = next((piece.age_s for piece in finding.evidence if isinstance(piece, CheckpointAge)), None)
    cluster = ClusterProfile(
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=known.bandwidth_gb_s * 1e9 * shape.tp,
        restart_s=RESTART_S,
        reroute_s=REROUTE_S,
        checkpoint_bytes_per_s=0.0 if age is None else CHECKPOINT_BYTES_PER_S,
        checkpoint_age_s=age or 0.0,
    )
    stages = split_layers(model, shape.pp, memory_bytes)
    if shape.dp * shape.pp > MOST_NODES:
        raise InvalidInput(f"{shape.dp * shape.pp} nodes are more than the {MOST_NODES} that plans are compared for")
    if stages is None:
        raise InvalidInput(
            f"{model.name} of {model.n_layers} layers in {shape.pp} stages does not fit into "
            f"{memory_bytes / 2**30:.0f} GiB; correct recovery.model or recovery.memory_gib"
        )
    before = megatron_state(dp=shape.dp, stages=stages, n_micro_batches=shape.dp * each)
    step = estimate(before, model, cluster)
    # What is left of the step besides the exchange; of an exchange that overlaps nobody knows how much.
    scale = max(shape.step_time_s - step.exchange_s, shape.step_time_s / 2) / step.compute_s
    model = replace(model, forward_s=model.forward_s * scale, backward_s=model.backward_s * scale)
    lost = {node_of(shape, rank) for rank in gone}
    return Job(before=before, lost=tuple(sorted(lost)), model=model, cluster=cluster, assumed=tuple(assumed))


def node_of(shape: JobShape, rank: int) -> int:
    """The node of a rank as `megatron_state` numbers them: data-parallel first, then stages.

    >>> shape = JobShape(dp=2, pp=2, tp=2, stage_stride=2, micro_batches=4, gradient_bytes=0, step_time_s=1.0)
    >>> [node_of(shape, rank) for rank in range(8)]
    [0, 0, 2, 2, 1, 1, 3, 3]
    """
    stage = rank // shape.stage_stride % shape.pp
    replica = rank % shape.stage_stride + rank // (shape.stage_stride * shape.pp) * shape.stage_stride
    return shape.dp * stage + replica // shape.tp


def _equal_layers(shape: JobShape) -> ModelProfile:
    n_layers = -(-ASSUMED_LAYERS // shape.pp) * shape.pp
    weights = max(shape.gradient_bytes * shape.tp * shape.pp / n_layers, 1.0)
    return ModelProfile(
        name="the model",
        n_layers=n_layers,
        forward_s=1.0,
        backward_s=2.0,
        parameter_bytes=weights,
        optimizer_bytes=2 * weights,  # Adam's moments, in the precision of the gradients
        gradient_bytes=weights,
        activation_bytes=0.0,
    )


def _said(job: Job, choice: Choice, known_of: str) -> tuple[Action, str, tuple[str, ...]]:
    before = estimate(job.before, job.model, job.cluster)
    restart = _restart(job, choice, before.throughput)
    assumed = f"; assumed are {', '.join(job.assumed)}" if job.assumed else ""
    basis = f"; {known_of}{assumed}"
    best = choice.chosen
    if best is None:
        return RESTART_WITHOUT_RANK, f"{choice.reason}; {RESTART_WITHOUT_RANK.effect}{basis}", (restart,)
    # Of each kind the best, and then what is left.
    firsts = {one.state.plan.kind: one for one in reversed(choice.options)}.values()
    others = sorted(choice.options[1:], key=lambda one: one not in firsts)[:MOST_ALTERNATIVES]
    kind = REROUTE if best.state.plan.kind == "reroute" else REPLAN
    action = replace(kind, price_s=best.downtime_s)
    until = f"most until the next failure, expected in {duration(choice.until_next_s)}"
    return (
        action,
        f"{_option(best, before.throughput)} gives {until}{basis}",
        (
            *(_option(one, before.throughput) for one in others),
            restart,
        ),
    )


def _option(option: Option, before: float) -> str:
    plan = option.state.plan
    lengths = sorted({len(stages) for stages in plan.stages})
    pp = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]}-{lengths[-1]}"
    moved = option.restoration.moved_bytes if option.restoration else 0.0
    return (
        f"{plan.kind} DP {plan.dp} x PP {pp} ({option.estimate.throughput / before:.1%} of the throughput before, "
        f"{option.downtime_s:.1f} s down, {moved / 1e9:.1f} GB moved)"
    )


def _restart(job: Job, choice: Choice, before: float) -> str:
    """The best plan by way of a checkpoint, at the literature's price of a restart and the work since it."""
    best = max(choice.options, key=lambda one: one.estimate.throughput, default=None)
    down_s = RESTART_WITHOUT_RANK.price_s + job.cluster.checkpoint_age_s
    if best is None:
        return f"{RESTART_WITHOUT_RANK.name} ({down_s:.0f} s down)"
    worth = score(best.estimate.throughput, down_s, choice.until_next_s) / before
    return (
        f"{RESTART_WITHOUT_RANK.name} ({best.estimate.throughput / before:.1%} of the throughput before, "
        f"{down_s:.0f} s down: {worth:.1%} until the next failure)"
    )
