"""What an incident that has lost ranks calls for besides a restart: plans for those that are left, priced; pure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from actuators.decision import decision_about
from actuators.joining import joining
from actuators.lost_job import Job, job_of
from actuators.mitigation.actions import RESTART_WITHOUT_RANK, Action
from actuators.mitigation.loss import gravest, loss_of, what_words
from actuators.recovery.estimator import estimate
from actuators.recovery.policy import Choice, FailureHistory, choose, duration, score
from actuators.recovery.thresholds import (
    ASSUMED_DEVICE_HOURS,
    ASSUMED_FAILURES,
    LEAST_SEEN_FAILURES,
    MOST_ALTERNATIVES,
    REROUTE_S,
    RESTART_S,
)
from actuators.recovery.wording import option_words
from pacehound.errors import InvalidInput, PacehoundError
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.evidence.leaving import JobShape, Joined
from pacehound.model.evidence.phrases import n_ranks_words
from pacehound.model.gone import gone_ranks
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


def history_of(past: PastFailures | None, n_lost: int, tp: int) -> tuple[FailureHistory, str]:
    """What is reckoned with, and how to say so, once these ranks are lost, too."""
    return assumed_history(tp) if past is None else past.history(n_lost, tp)


Failures = Callable[[str], PastFailures | None]
"""Asks for those before an incident, by its id, when there is something to decide; `None` where nobody can be asked."""


Asks = Callable[[str, dict[str, str]], list[dict[str, Any]]]
"""Asks a store one of its named queries."""


def recovery_by(settings: RecoverySettings, asks: Asks | None) -> Callable[[Incident], Decision | None]:
    """Decides with what a job's settings and a store say; without a store the rate of failures is assumed."""
    return partial(recovery_of, failures=partial(past_failures, asks), known=settings)


def past_failures(asks: Asks | None, incident: str) -> PastFailures | None:
    """What a store has seen, but for one incident; nothing where nobody can be asked."""
    if asks is None:
        return None
    try:
        (row,) = asks("recovery/failures", {"incident": incident})
    except PacehoundError as error:
        logger.warning("past failures cannot be asked for: %s", error)
        return None
    return PastFailures(**row)


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
    if finding is None:
        return None
    gone = gone_ranks(finding)
    shape = next((piece for piece in finding.evidence if isinstance(piece, JobShape)), None)
    joined = next((piece for piece in finding.evidence if isinstance(piece, Joined)), None)
    if shape is None or not shape.step_time_s > 0 or (incident.state != "open" and joined is None):
        return None
    if joined is not None:
        return _with_those_that_join(incident, finding, joined, shape, failures, known)
    action, reason, limit = REPLAN, "", ""
    alternatives: tuple[str, ...] = ()
    if shape.is_sharded:
        action = RESTART_WITHOUT_RANK
        reason = "parameters are sharded over the replicas: what a lost rank held nobody else has"
    else:
        try:
            job = job_of(shape, gone, known, finding)
            history, known_of = history_of(failures(incident.id), len(gone), shape.tp)
            choice = choose(job.before.without(job.lost), job.model, job.cluster, history)
            action, reason, alternatives = _said(job, choice, known_of)
        except (ModuleNotFoundError, InvalidInput) as error:
            reason, limit = "plans cannot be compared", _why_not(error)
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


def _with_those_that_join(
    incident: Incident,
    finding: Finding,
    joined: Joined,
    shape: JobShape,
    failures: Failures,
    known: RecoverySettings,
) -> Decision:
    """What was lost was decided about when it was told of; now there are hosts that could take part."""
    gone, hosts = gone_ranks(finding), (*joined.back, *joined.new)
    price_s, limit, alternatives = REPLAN.price_s, "", tuple[str, ...]()
    try:
        if shape.is_sharded:
            raise InvalidInput("parameters are sharded over the replicas: only a restart takes anybody in")
        job = job_of(shape, gone, known, finding)
        history, known_of = history_of(failures(incident.id), len(gone), shape.tp)
        found = joining(job, shape, joined, history)
        price_s, alternatives = found.price_s, found.alternatives
        limit = "" if found.pays else "going on without them gives more until the next failure"
        assumed = ", ".join(filter(None, (*job.assumed, found.assumed)))
        reason = f"{found.reason}; {known_of}{f'; assumed are {assumed}' if assumed else ''}"
    except (ModuleNotFoundError, InvalidInput) as error:
        reason, limit = "plans cannot be compared", _why_not(error)
    return decision_about(
        incident,
        REPLAN,
        f"with {', '.join(hosts)} ({n_ranks_words(joined.n_ranks)}): {reason}",
        mode="observe",
        time_ns=incident.time_ns,
        loss_s=loss_of(incident, finding),
        price_s=price_s,
        aimed_at=gone,
        joined=hosts,
        taken=False,
        alternatives=alternatives,
        limit=limit,
    )


def _why_not(error: ModuleNotFoundError | InvalidInput) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is missing: pip install 'pacehound[recovery]'"
    return str(error)


def _how_sure(finding: Finding) -> str:
    return "for" if finding.verdict == "culprit" else "if those that are suspected are gone, for"


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
        f"{option_words(best, before.throughput)} gives {until}{basis}",
        (
            *(option_words(one, before.throughput) for one in others),
            restart,
        ),
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
