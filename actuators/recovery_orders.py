"""Answers survivors that ask which plan to go on with, and says what came of it.

Questions come from agents (`CommandResult.asked`), answers go the way of all orders. In mode `auto` the best plan is
ordered, and all survivors use it or none does (`actuators.control.answering`); in any other it is told, and the script
decides. What was ordered is a decision on the incident that tells of the loss, which comes some seconds later; what it
has brought is another one, by the iterations of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec

from actuators.control.answering import AnswerProcedure
from actuators.control.controlled_job import ControlledJob, Signs
from actuators.decision import decision_about
from actuators.looks import TRACK
from actuators.mitigation.actions import Action
from actuators.mitigation.loss import gravest, loss_of
from actuators.modes import Modes
from actuators.now import Now
from actuators.recovering import REPLAN, REROUTE, Asks, history_of, past_failures
from actuators.recovery.estimator import estimate
from actuators.recovery.policy import choose
from actuators.recovery.question import Asked, best_without_checkpoint, plan_answer, read_question
from actuators.recovery.wording import option_words
from actuators.thresholds import (
    EFFECT_AFTER_NS,
    EFFECT_EVERY_NS,
    EFFECT_ITERATIONS,
    EFFECT_WITHIN_NS,
    INCIDENT_WITHIN_NS,
    MOST_QUESTIONS,
)
from pacehound.bus.control import AskedWire
from pacehound.clock import Clock
from pacehound.errors import InvalidInput, PacehoundError
from pacehound.model.events import CommandResult, Decision, Incident
from pacehound.model.events.control import RecoveryQuestion
from pacehound.model.gone import gone_ranks
from pacehound.model.orders import MOST_PAYLOAD_BYTES, MOST_TEXT, Offer
from pacehound.settings import Mode, RecoverySettings
from pacehound.trainer.order import RECOVERY

logger = logging.getLogger(__name__)

_Key = tuple[str, int, str]
"""A job, an attempt and what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The best plan, as it is told and recorded."""

    action: Action
    plan: dict[str, Any]
    words: str
    price_s: float
    share: float
    lost: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Order:
    """One question and what is done about it."""

    job: str
    attempt: int
    answered: Answered
    procedure: AnswerProcedure
    control: ControlledJob
    at_ns: int
    since_ns: int
    incident: Incident | None = None
    is_recorded: bool = False
    next_look_ns: int = 0


class RecoveryOrders:
    """Of all jobs of one head, or of one worker on Kafka.

    Parameters
    ----------
    wire
        Where questions come from, and the way to the agents.
    signer
        Whose orders agents obey.
    clock
        The time.
    modes
        Whether it is ordered.
    asks
        Asks the store for past failures, and for iterations before and after.
    known
        What neither calls nor scripts say.

    """

    def __init__(
        self, wire: AskedWire, signer: Signs, clock: Clock, modes: Modes, asks: Asks | None, known: RecoverySettings
    ) -> None:
        self._wire, self._signer, self._clock = wire, signer, clock
        self._modes, self._asks, self._settings = modes, asks, known
        _, self._after = wire.questions(0)
        self._orders: dict[_Key, _Order | None] = {}
        self._losses: dict[str, Incident] = {}  # the newest of each job

    def on_incident(self, incident: Incident) -> None:
        """One that tells of a loss may be what was asked about."""
        if any(map(gone_ranks, incident.findings)):
            self._losses.pop(incident.job, None)
            self._losses[incident.job] = incident
            for oldest in list(self._losses)[:-MOST_QUESTIONS]:
                del self._losses[oldest]

    @property
    def is_idle(self) -> bool:
        """No question is being answered, nor looked after; a new one wakes whoever asks (`Mailbox.when_asked`)."""
        return not any(self._orders.values())

    def step(self, is_ours: Callable[[str], bool]) -> list[Decision]:
        """What is due; what was decided. Questions of jobs that are not ours are somebody else's to answer."""
        now = Now(monotonic_ns=round(self._clock.monotonic_s() * 1e9), unix_ns=self._clock.now_ns())
        asked, self._after = self._wire.questions(self._after)
        for result in asked:
            if result.asked is not None and is_ours(result.job):
                self._hear(result, result.asked, now)
        decisions: list[Decision] = []
        for key, order in list(self._orders.items()):
            if order is None:
                continue
            try:
                decisions += self._drive(key, order, now)
            except PacehoundError as error:
                logger.warning("job %s: its survivors cannot be answered: %s", order.job, error)
        return decisions

    def _hear(self, result: CommandResult, question: RecoveryQuestion, now: Now) -> None:
        key = (result.job, result.attempt, question.digest)
        on_the_way_ns = min(max(now.unix_ns - result.time_ns, 0), question.within_ms * 1_000_000)
        until_ns = now.monotonic_ns + question.within_ms * 1_000_000 - on_the_way_ns
        if key in self._orders:
            known = self._orders[key]
            if known is not None:
                known.procedure.waits_until(until_ns)
            return
        self._orders[key] = None
        for oldest in list(self._orders)[:-MOST_QUESTIONS]:
            del self._orders[oldest]
        try:
            answered = self._answer(question)
        except ModuleNotFoundError as error:
            logger.warning("job %s: %s is missing: pip install 'pacehound[recovery]'", result.job, error.name)
            return
        except PacehoundError as error:
            logger.warning("job %s: nothing can be said to its survivors: %s", result.job, error)
            return
        except Exception:
            logger.exception("job %s: its recovery cannot be priced", result.job)
            return
        is_ordered = self._modes.of(result.job, answered.action.name) is Mode.AUTO
        body = {"digest": question.digest, "ordered": is_ordered, "plan": answered.plan}
        offer = Offer(ticket=now.unix_ns, kind=RECOVERY, payload=msgspec.json.encode(body).decode())
        if len(offer.payload) > MOST_PAYLOAD_BYTES // 2:  # it is a string within JSON there
            logger.warning("job %s: its plan has %d characters, too many to be told", result.job, len(offer.payload))
            return
        logger.info("job %s: survivors of %s are told: %s", result.job, list(answered.lost), answered.words)
        why = answered.words[: MOST_TEXT - 100]
        self._orders[key] = _Order(
            job=result.job,
            attempt=result.attempt,
            answered=answered,
            procedure=AnswerProcedure(
                offer, question.survivors, is_ordered=is_ordered, until_ns=until_ns, now_ns=now.monotonic_ns
            ),
            control=ControlledJob(self._wire, self._signer, result.job, why, attempt=result.attempt),
            at_ns=now.unix_ns,
            since_ns=now.monotonic_ns,
        )

    def _answer(self, question: RecoveryQuestion) -> Answered:
        asked = read_question(question.payload, self._settings.bandwidth_gb_s * 1e9)
        tp = asked.ranks_per_node
        history, known_of = history_of(past_failures(self._asks, ""), len(asked.lost) * tp, tp)
        choice = choose(asked.state, asked.model, asked.cluster, history)
        best = best_without_checkpoint(choice)
        if best is None:
            raise InvalidInput(f"no plan without a checkpoint: {choice.reason}")
        whole = _throughput_before(asked)
        words = f"{option_words(best, whole)} gives most until the next failure; {known_of}"
        return Answered(
            action=REROUTE if best.state.plan.kind == "reroute" else REPLAN,
            plan=plan_answer(best),
            words=words,
            price_s=best.downtime_s,
            share=best.estimate.throughput / whole,
            lost=asked.lost,
        )

    def _drive(self, key: _Key, order: _Order, now: Now) -> list[Decision]:
        procedure = order.procedure
        if not procedure.is_over:
            self._hand_out(key, order, now)
            return []
        if order.incident is None:
            order.incident = self._incident_of(order)
            if order.incident is None:
                if now.monotonic_ns - order.since_ns > INCIDENT_WITHIN_NS:
                    logger.warning("job %s: no incident tells of the loss of %s", order.job, list(order.answered.lost))
                    self._orders[key] = None
                return []
        if not order.is_recorded:
            order.is_recorded = True
            order.next_look_ns = order.since_ns + EFFECT_AFTER_NS
            if procedure.outcome == "kept":
                self._orders[key] = None
            return [self._recorded(order, order.incident, now)]
        if now.monotonic_ns < order.next_look_ns:
            return []
        order.next_look_ns = now.monotonic_ns + EFFECT_EVERY_NS
        effect = self._effect(order, is_last=now.monotonic_ns - order.since_ns > EFFECT_WITHIN_NS)
        if effect is None:
            return []
        self._orders[key] = None
        reason, seen_gain = effect
        return [self._decision(order, order.incident, TRACK, reason, now, number=2, seen_gain=seen_gain)]

    def _hand_out(self, key: _Key, order: _Order, now: Now) -> None:
        procedure = order.procedure
        for what in procedure.step(order.control.results(), now.monotonic_ns):
            order.control.order(what, now.unix_ns, tuple(sorted(procedure.survivors)))
        if procedure.is_over:
            logger.info("job %s: %s (%s)", order.job, procedure.reason, procedure.outcome)
            if not procedure.is_ordered:
                self._orders[key] = None  # the incident carries it already

    def _incident_of(self, order: _Order) -> Incident | None:
        known = self._losses.get(order.job)
        if known is None or known.attempt != order.attempt:
            return None
        gone = {rank for finding in known.findings for rank in gone_ranks(finding)}
        return known if gone & set(order.answered.lost) else None

    def _recorded(self, order: _Order, incident: Incident, now: Now) -> Decision:
        outcome = order.procedure.outcome
        said = {
            "applied": "all survivors go on with it",
            "kept": f"no survivor uses it: {order.procedure.reason}",
            "unknown": "it is confirmed, and not all survivors have said that they use it",
            "differs": "some survivors use it and others do not, as far as they say",
        }[outcome]
        limit = "" if outcome == "applied" else said
        reason = f"asked by survivors of {_ranks(order.answered.lost)}: {order.answered.words}; {said}"
        return self._decision(
            order, incident, order.answered.action, reason, now, number=1, limit=limit, taken=outcome != "kept"
        )

    def _decision(
        self,
        order: _Order,
        incident: Incident,
        action: Action,
        reason: str,
        now: Now,
        *,
        number: int,
        limit: str = "",
        taken: bool = True,
        seen_gain: float | None = None,
    ) -> Decision:
        finding = gravest(incident.findings, is_over=True)
        return decision_about(
            incident,
            action,
            reason,
            mode="auto",
            time_ns=now.unix_ns,
            loss_s=incident.cost.excess_s if finding is None else loss_of(incident, finding),
            price_s=order.answered.price_s if action is order.answered.action else 0.0,
            aimed_at=tuple(sorted(order.answered.lost)),
            taken=taken,
            number=number,
            limit=limit,
            promised_gain=1.0 - 1.0 / order.answered.share,
            seen_gain=seen_gain,
        )

    def _effect(self, order: _Order, *, is_last: bool) -> tuple[str, float | None] | None:
        """What it has brought, in a sentence and as the share by which iterations became shorter; `None`: not yet."""
        row: dict[str, Any] = {}
        if self._asks is not None:
            wanted = {"job": order.job, "attempt": str(order.attempt), "at_ns": str(order.at_ns)}
            try:
                (row,) = self._asks("recovery/effect", wanted)
            except PacehoundError as error:
                logger.warning("what a recovery has brought cannot be asked for: %s", error)
        n_after, before_s, after_s = (row.get(name) or 0.0 for name in ("n_after", "before_s", "after_s"))
        if n_after < EFFECT_ITERATIONS and not is_last:
            return None
        if not n_after or not before_s or not after_s:
            return "what it has brought is not known: too few iterations were seen", None
        share = before_s / after_s
        took = f"iterations take {after_s:.3g} s, {before_s:.3g} s before"
        return (
            f"training stood still for {row['down_s']:.1f} s; {took}: {share:.1%} of the throughput, "
            f"{order.answered.share:.1%} were promised"
        ), 1.0 - after_s / before_s


def _throughput_before(asked: Asked) -> float:
    """With all nodes: lost places are held again, by somebody."""
    somebody = count(max(asked.state.survivors, default=0) + 1)
    holders = tuple(
        tuple(next(somebody) if node is None else node for node in stages) for stages in asked.state.holders
    )
    return estimate(replace(asked.state, holders=holders), asked.model, asked.cluster).throughput


def _ranks(lost: tuple[int, ...]) -> str:
    return f"rank{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))}"
