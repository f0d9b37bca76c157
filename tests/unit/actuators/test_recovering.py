"""An incident that has lost ranks gets the plans for those that are left, priced for its job."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from actuators.recovering import PastFailures, recovery_by, recovery_of
from actuators.worker import ActuatorWorker
from pacehound.bus import Message
from pacehound.model.events import Decision, Finding, Incident, Instant
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.leaving import JobShape, Joined, Left, Process
from pacehound.model.evidence.machines import CheckpointAge, Gpu, HostSilent
from pacehound.settings import RecoverySettings

pytest.importorskip("scipy")

SHAPE = JobShape(dp=4, pp=2, tp=1, stage_stride=4, micro_batches=8, gradient_bytes=10**9, step_time_s=1.5)
SELDOM = PastFailures(n_failures=2, rank_s=1e7, n_attempts=3)
OFTEN = PastFailures(n_failures=4_000, rank_s=1e5, n_attempts=9)


SHARDED = JobShape(
    dp=4, pp=1, tp=1, stage_stride=4, micro_batches=0, gradient_bytes=1, step_time_s=1.0, is_sharded=True
)


def lost(*ranks: int, evidence: tuple[Evidence, ...] = (), shape: JobShape | None = SHAPE, **more: Any) -> Incident:
    left = evidence or tuple(Left(rank=rank, pid=rank, signal=9) for rank in ranks)
    told: dict[str, Any] = {"kind": "exit", "verdict": "culprit", "cause": None, "culprits": ranks}
    one = Finding(
        id="f", job="j", attempt=0, onset=Instant(step=9, time_ns=5), evidence=(*left, *((shape,) if shape else ())),
        **(told | more),
    )  # fmt: skip
    return opened(one)


def opened(one: Finding) -> Incident:
    return Incident(id="i", version=0, job="j", attempt=0, time_ns=10, state="open", opened_ns=5, findings=(one,))


def decided(one: Incident, past: PastFailures | None = SELDOM, **known: Any) -> Decision | None:
    return recovery_of(one, failures=lambda _: past, known=RecoverySettings(**known))


def certain(one: Incident, past: PastFailures | None = SELDOM, **known: Any) -> Decision:
    decision = decided(one, past, **known)
    assert decision is not None
    return decision


def test_a_killed_rank_brings_the_compared_plans_with_their_prices() -> None:
    decision = certain(lost(5))
    assert (decision.action, decision.aimed_at, decision.taken) == ("replan", (5,), False)
    assert 2.0 <= decision.price_s < 5.0
    assert "3 failed in 2777.8 h of ranks that were watched (attempts: 3)" in decision.reason
    assert "32 equal layers" in decision.reason
    words = " ".join(decision.alternatives)
    assert "reroute DP 4 x PP 2" in words
    assert "restart_without_rank" in words


def test_a_job_without_stages_is_offered_none_unless_its_model_is_described() -> None:
    """A script with DistributedDataParallel holds the model in one piece."""
    replicas = JobShape(dp=4, pp=1, tp=1, stage_stride=4, micro_batches=0, gradient_bytes=10**8, step_time_s=0.5)
    decision = certain(lost(2, shape=replicas))
    assert "a model that its script does not divide (recovery.model)" in decision.reason
    plans = [decision.reason, *decision.alternatives]
    assert any("DP 3 x PP 1 " in plan for plan in plans)
    assert not any("PP 2" in plan or "PP 1-" in plan for plan in plans)
    described = certain(lost(2, shape=replicas), model="llama2-7b")
    assert any("PP 2" in plan or "PP 1-" in plan for plan in (described.reason, *described.alternatives))


def test_where_failures_are_frequent_nobody_restarts() -> None:
    assert certain(lost(5), OFTEN).action == "reroute"


def test_one_failure_in_the_first_minute_tells_no_rate() -> None:
    decision = certain(lost(5), PastFailures(n_failures=0, rank_s=60.0, n_attempts=1))
    assert decision.action == "replan"
    assert "1 failed in 60 s of ranks that were watched (attempts: 1), too few to tell a rate" in decision.reason


def test_without_a_store_the_rate_is_assumed_and_said() -> None:
    assert "Llama 3's training is assumed" in certain(lost(5), None).reason


def test_the_model_that_is_told_is_scaled_to_the_step_that_was_seen() -> None:
    fast = certain(lost(5), model="layers=32,forward_ms=8,parameter_mb=400")
    slow = certain(lost(5), model="layers=32,forward_ms=800,parameter_mb=400")
    assert fast.reason == slow.reason
    assert "equal layers" not in fast.reason


@pytest.mark.parametrize(
    "evidence",
    [
        (Process(rank=2, pid=7, state="exited", signal=9),),
        (Gpu(rank=2, name="gpu", problem="xid", value=79, has_failed=True),),
        (HostSilent(hosts=("h2",)),),
    ],
    ids=["process", "xid", "host"],
)
def test_a_hang_whose_culprit_is_gone_is_a_loss(evidence: tuple[Evidence, ...]) -> None:
    assert certain(lost(2, evidence=evidence, kind="hang", cause="H1")).aimed_at == (2,)


def test_of_a_host_that_is_merely_suspected_it_is_said_that_it_is() -> None:
    silent = lost(2, evidence=(HostSilent(hosts=("h2",)),), kind="hang", cause="H1", verdict="suspected")
    assert certain(silent).reason.startswith("if those that are suspected are gone, for a hang (H1) of rank 2: ")


def test_a_rank_that_is_stopped_is_not_lost() -> None:
    stopped = lost(2, evidence=(Process(rank=2, pid=7, state="stopped"),), kind="hang", cause="H1")
    assert decided(stopped) is None


def test_a_hang_that_comes_before_the_exit_hides_nothing() -> None:
    hang = Finding(
        id="h", job="j", attempt=0, kind="hang", verdict="unknown", cause=None, onset=Instant(step=8, time_ns=4)
    )
    left = lost(5)
    assert certain(replace(left, findings=(hang, *left.findings))).aimed_at == (5,)


def test_several_that_are_lost_at_once_are_one_decision() -> None:
    one, two = certain(lost(5)), certain(lost(1, 5))
    assert two.aimed_at == (1, 5)
    assert one.identity() != two.identity()


def test_a_stage_that_is_lost_everywhere_needs_a_checkpoint() -> None:
    everywhere = lost(4, 5, 6, 7)
    assert certain(everywhere).action == "restart_without_rank"
    one = everywhere.findings[0]
    decision = certain(opened(one.next_version(CheckpointAge(age_s=60.0))))
    assert decision.action == "replan"
    assert decision.price_s > 60.0


def test_of_sharded_state_a_lost_rank_takes_what_nobody_else_has() -> None:
    decision = certain(lost(1, shape=SHARDED))
    assert decision.action == "restart_without_rank"
    assert "sharded" in decision.reason


def test_memory_that_does_not_suffice_is_said_with_what_to_do() -> None:
    decision = certain(lost(5), memory_gib=0.5, model="llama2-7b")
    assert "recovery.memory_gib" in decision.limit


def test_a_job_that_is_too_large_is_not_reckoned_with() -> None:
    huge = JobShape(dp=16_384, pp=1, tp=1, stage_stride=16_384, micro_batches=0, gradient_bytes=1, step_time_s=1.0)
    assert "16384 nodes are more than" in certain(lost(5, shape=huge)).limit


def test_without_a_layout_nothing_is_decided() -> None:
    assert decided(lost(5, shape=None)) is None


def test_it_stands_beside_the_restart_and_is_said_once() -> None:
    asked: list[str] = []

    def ask(name: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        asked.append(f"{name} {parameters['incident']}")
        return [{"n_failures": 2, "rank_s": 1e6, "n_attempts": 4}]

    worker = ActuatorWorker(lambda _: (), recovery=recovery_by(RecoverySettings(), ask))
    one = lost(5)
    message = Message(topic="incidents", key="j", partition=0, offset=0, value=b"")
    first, again = worker.on_event(one, message), worker.on_event(one, message)
    assert [decision.action for decision in first if isinstance(decision, Decision)] == ["ignore", "replan"]
    assert again == []
    assert asked[0] == f"recovery/failures {one.id}"


def test_a_layout_that_cannot_be_takes_nothing_from_the_other_decisions() -> None:
    nonsense = JobShape(dp=1, pp=0, tp=1, stage_stride=0, micro_batches=1, gradient_bytes=0, step_time_s=1.0)
    worker = ActuatorWorker(lambda _: (), recovery=recovery_by(RecoverySettings(), None))
    message = Message(topic="incidents", key="j", partition=0, offset=0, value=b"")
    (decision,) = worker.on_event(lost(5, shape=nonsense), message)
    assert isinstance(decision, Decision)
    assert decision.action == "ignore"


BACK = Joined(back=("h5",), n_ranks=1, n_now=7, n_before=8, at_ns=20)


def _gain(decision: Decision) -> float:
    return float(re.findall(r"does ([0-9.]+)% more than the plan of now", decision.reason)[0])


def with_joined(joined: Joined = BACK, one: Incident | None = None) -> Incident:
    before = one or lost(5)
    return replace(before, version=1, time_ns=20, findings=(before.findings[0].next_version(joined),))


def test_a_host_that_is_back_pays_where_failures_are_seldom() -> None:
    decision = certain(with_joined())
    assert (decision.action, decision.mode, decision.taken, decision.limit) == ("replan", "observe", False, "")
    assert (decision.aimed_at, decision.joined) == ((5,), ("h5",))
    assert decision.reason.startswith("with h5 (1 rank): symmetric DP 8 x PP 1 (105.6% of the throughput before, ")
    assert "more than the plan of now" in decision.reason
    assert "it pays after" in decision.reason
    assert "that it goes on by the plan that gave most after the loss" in decision.reason
    loss = certain(lost(5))
    (chosen,) = re.findall(r"asymmetric DP \S+ x PP \S+ \(\S+ of the throughput before", loss.reason)
    assert decision.alternatives[0].startswith(f"going on as {chosen}")
    assert decision.identity() != loss.identity()


def test_where_the_next_failure_is_near_it_does_not_and_that_is_said() -> None:
    decision = certain(with_joined(), OFTEN)
    assert (decision.action, decision.joined) == ("replan", ("h5",))
    assert decision.limit == "going on without them gives more until the next failure"
    assert "it would pay after" in decision.reason
    assert "and not before the next failure, expected in" in decision.reason


def test_the_plan_of_now_is_that_which_calls_show() -> None:
    shown = Joined(back=("h5", "h6"), n_ranks=2, n_now=6, n_before=8, at_ns=20, dp=3, pp=2)
    decision = certain(with_joined(shown, lost(5, 6)))
    assert decision.alternatives[0].startswith("going on as symmetric DP 3 x PP 2 (")
    assert "that it goes on by" not in decision.reason


def test_a_host_that_is_back_can_join_sharded_state_by_a_restart_alone() -> None:
    decision = certain(with_joined(one=lost(1, shape=SHARDED)))
    assert (decision.joined, decision.alternatives) == (("h5",), ())
    assert "only a restart takes anybody in" in decision.limit


def test_more_new_hosts_than_were_lost_are_used() -> None:
    more = Joined(back=("h5",), new=("h8",), n_ranks=3, n_now=7, n_before=8, at_ns=20)
    decision, one = certain(with_joined(more)), certain(with_joined())
    assert decision.joined == ("h5", "h8")
    assert _gain(decision) > _gain(one) > 0.0


def test_it_is_decided_also_when_the_incident_is_over_and_its_last_word_is_said_once() -> None:
    def ask(_name: str, _parameters: dict[str, str]) -> list[dict[str, Any]]:
        return [{"n_failures": 2, "rank_s": 1e7, "n_attempts": 4}]

    worker = ActuatorWorker(lambda _: (), recovery=recovery_by(RecoverySettings(), ask))
    message = Message(topic="incidents", key="j", partition=0, offset=0, value=b"")
    over = replace(lost(5), state="closed", version=1, time_ns=15, closed_ns=15)
    first = worker.on_event(over, message)
    assert [one.action for one in first if isinstance(one, Decision)] == ["ignore"]
    again = replace(with_joined(one=over), version=2)
    told = [one for one in worker.on_event(again, message) if isinstance(one, Decision)]
    assert [(one.action, one.joined) for one in told] == [("replan", ("h5",))]
    assert worker.on_event(again, message) == []


def test_a_node_of_several_ranks_needs_them_all() -> None:
    shape = JobShape(dp=2, pp=2, tp=2, stage_stride=4, micro_batches=8, gradient_bytes=10**9, step_time_s=1.5)
    one = Joined(back=("h5",), n_ranks=1, n_now=6, n_before=8, at_ns=20)
    assert "1 ranks are no node of 2" in certain(with_joined(one, lost(5, shape=shape))).limit
