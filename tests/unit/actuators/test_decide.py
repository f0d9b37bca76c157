"""What would be done, by cause and by accumulated loss."""

import itertools
import random

import pytest

from actuators.decide import decide
from actuators.mitigation.actions import HELPS
from actuators.mitigation.loss import candidates_for, gravest
from actuators.worker import ActuatorWorker
from pacehound.bus import Message
from pacehound.model.events import Cost, Instant
from tests.fakes.events import SECOND_NS, START_NS, finding, incident


def with_loss(excess_s, *findings, **changes):
    return incident(cost=Cost(excess_s=excess_s, ranks=4), findings=findings or (finding(),), **changes)


class Actuators:
    """A worker with one partition."""

    def __init__(self, decided=()):
        self._worker = ActuatorWorker(lambda _: decided)

    def on_incident(self, one):
        return self._worker.on_event(one, Message(topic="incidents", key=one.job, partition=0, offset=0, value=b""))


def actions(said):
    return [decision.action for decision in said]


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("S1", ["adjust_microbatches", "adjust_topology", "checkpoint_restart"]),
        ("S2", ["adjust_topology", "checkpoint_restart"]),
        ("S3", ["adjust_microbatches", "adjust_topology", "checkpoint_restart"]),
        ("H1", ["resume_rank", "restart_without_rank", "drain_host"]),
        ("H2", []),
        ("H3", ["restart_without_rank", "drain_host"]),
    ],
)
def test_each_cause_has_the_actions_that_help_it_the_cheapest_first(cause, expected):
    """Falcon table 3 for the slow causes."""
    assert [action.name for action in candidates_for(finding(cause=cause))] == expected
    prices = [action.price_s for action in candidates_for(finding(cause=cause))]
    assert prices == sorted(prices)


@pytest.mark.parametrize(
    ("loss_s", "expected"),
    [
        (0.0, ["ignore"]),
        (4.9, ["ignore"]),
        (5.0, ["ignore", "adjust_microbatches"]),
        (60.0, ["ignore", "adjust_microbatches", "adjust_topology"]),
        (1200.0, ["ignore", "adjust_microbatches", "adjust_topology", "checkpoint_restart"]),
    ],
)
def test_an_action_is_due_when_the_loss_reaches_its_price(loss_s, expected):
    assert actions(decide(with_loss(loss_s))) == expected


def test_the_reason_names_price_loss_and_whom():
    *_, last = decide(with_loss(61.0))
    assert last.reason == (
        "moves light traffic to slow links and gathers stragglers in few stages, for a slowdown (S1) of rank 2;"
        " the loss of 61.0 s has reached its price of 60 s"
    )
    [ignore] = decide(with_loss(1.0))
    assert ignore.reason == "the loss of 1.0 s is below the 5 s at which adjust_microbatches is due"


def test_a_suspicion_takes_nothing_away_from_a_job():
    suspected = finding(verdict="suspected")
    assert actions(decide(with_loss(1e6, suspected))) == ["ignore", "adjust_microbatches", "adjust_topology"]
    hang = finding(kind="hang", verdict="suspected", cause="H1")
    assert actions(decide(with_loss(1e6, hang))) == ["ignore"]


def test_where_nobody_is_named_nothing_is_aimed():
    unknown = finding(kind="hang", verdict="unknown", cause=None, culprits=(), candidates=(0, 1))
    [ignore] = decide(with_loss(1e6, unknown))
    assert (ignore.action, "nobody is named" in ignore.reason) == ("ignore", True)


def test_what_was_decided_while_nobody_was_named_is_decided_anew_when_somebody_is():
    unknown = finding(verdict="unknown", cause=None, culprits=(), candidates=(0, 1))
    actuators = Actuators()
    [first] = actuators.on_incident(with_loss(1.0, unknown))
    assert "nobody is named" in first.reason
    assert actuators.on_incident(with_loss(2.0, unknown, version=1)) == []
    [named] = actuators.on_incident(with_loss(3.0, version=2))
    assert (named.action, named.aimed_at) == ("ignore", (2,))
    assert "below the 5 s" in named.reason
    [more] = actuators.on_incident(with_loss(4.0, finding(culprits=(2,), links=((3, 7),)), version=3))
    assert more.aimed_at == (2, 3, 7)
    assert len({first.identity(), named.identity(), more.identity()}) == 3


def test_calls_that_do_not_match_are_a_fault_of_the_program():
    [ignore] = decide(with_loss(1e6, finding(kind="hang", cause="H2")))
    assert "has to be corrected" in ignore.reason


def test_a_hang_loses_all_time_since_it_began_and_is_hopeless_after_five_minutes():
    hang = finding(kind="hang", cause="H1", magnitude=None)

    def after(seconds):
        return actions(decide(with_loss(0.0, hang, time_ns=START_NS + seconds * SECOND_NS)))

    assert after(0) == ["ignore"]
    assert after(30) == ["ignore", "resume_rank"]
    assert after(299) == ["ignore", "resume_rank"]
    assert after(300) == ["ignore", "resume_rank", "restart_without_rank", "drain_host"]


def test_an_exit_is_answered_with_a_restart_when_its_price_is_reached():
    gone = finding(kind="exit", cause=None)
    said = decide(with_loss(0.0, gone, time_ns=START_NS + 601 * SECOND_NS))
    assert actions(said) == ["ignore", "restart_without_rank"]


@pytest.mark.parametrize("kind", ["planned", "change", "blind"])
def test_what_is_no_fault_of_the_job_calls_for_nothing(kind):
    assert decide(with_loss(1e6, finding(kind=kind))) == []


def test_what_is_relieved_calls_for_nothing():
    assert decide(with_loss(1e6, state="relieved")) == []


def test_the_last_word_agrees_with_the_cost_that_was_measured_in_the_end():
    """What it had cost when it was first told of says little of it."""
    actuators = Actuators()
    [first] = actuators.on_incident(with_loss(0.6))
    assert (first.loss_s, first.is_last) == (0.6, False)
    over = finding(relief=Instant(step=400, time_ns=START_NS + 40 * SECOND_NS), version=1)
    end = with_loss(7.7, over, state="closed", version=3, closed_why="relieved")
    [last] = actuators.on_incident(end)
    assert (last.action, last.loss_s, last.is_last) == ("ignore", 7.7, True)
    assert last.reason == (
        "it is over: 7.7 s were lost in all to a slowdown (S1) of rank 2; due by then: adjust_microbatches at 5 s"
    )
    assert actuators.on_incident(end) == []
    [cheap] = decide(with_loss(0.6, over, state="closed"))
    assert cheap.reason.endswith("no action was due by then")


def test_what_is_closed_without_a_fault_gets_no_last_word():
    assert decide(with_loss(1e6, finding(kind="blind"), state="closed")) == []


def test_the_last_word_on_a_hang_that_was_relieved_counts_until_its_relief():
    over = finding(kind="hang", cause="H1", relief=Instant(step=9, time_ns=START_NS + 8 * SECOND_NS))
    [last] = decide(with_loss(0.0, over, state="closed", time_ns=START_NS + 60 * SECOND_NS))
    assert last.loss_s == pytest.approx(8.0 - (over.onset.time_ns - START_NS) / SECOND_NS)


def test_the_gravest_finding_that_lasts_decides():
    slow, hang = finding(), finding(id="f1", kind="hang", cause="H1")
    over = finding(id="f2", kind="hang", relief=Instant(step=9, time_ns=START_NS))
    assert gravest([slow, hang]) is hang
    assert gravest([slow, over]) is slow
    assert gravest([over]) is None
    assert decide(with_loss(1e6, over)) == []


def test_nothing_is_taken_and_other_modes_do_not_exist():
    assert not any(decision.taken for decision in decide(with_loss(1e6)))
    with pytest.raises(ValueError, match="auto"):
        decide(with_loss(1.0), mode="auto")


@pytest.mark.parametrize("cause", sorted(HELPS))
def test_nobody_pays_more_than_twice_what_the_end_known_beforehand_would_have_cost(cause):
    """Ski rental: with the one action that ends a slowdown, at most twice the optimum, whenever it ends."""
    for action, duration_s in itertools.product(candidates_for(finding(cause=cause)), [0.5, 5, 60, 61, 599, 1200, 1e5]):
        loss_s = min(duration_s, action.price_s)
        pays_s = loss_s + (action.price_s if duration_s >= action.price_s else 0.0)
        is_due = action.name in actions(decide(with_loss(loss_s, finding(cause=cause))))
        assert is_due == (duration_s >= action.price_s)
        assert pays_s <= 2 * min(duration_s, action.price_s)


def test_each_action_is_said_once_over_the_life_of_an_incident():
    actuators = Actuators()
    said = [actuators.on_incident(with_loss(loss_s, version=v)) for v, loss_s in enumerate([1.0, 3.0, 6.0, 7.0, 70.0])]
    assert [actions(new) for new in said] == [["ignore"], [], ["adjust_microbatches"], [], ["adjust_topology"]]
    [last] = actuators.on_incident(with_loss(71.0, version=5, state="closed"))
    assert last.is_last


def test_a_restart_that_knows_what_was_said_does_not_repeat_it():
    before = Actuators().on_incident(with_loss(6.0))
    assert Actuators(decided=before).on_incident(with_loss(7.0, version=1)) == []


def test_a_replay_in_any_portion_says_the_same_ids():
    versions = [with_loss(float(v * 10), version=v) for v in range(20)]
    first = [d for v in versions for d in Actuators().on_incident(v)]
    rng = random.Random(4)
    for _ in range(5):
        start = rng.randrange(19)
        actuators = Actuators()
        again = [d for v in versions[start:] for d in actuators.on_incident(v)]
        assert {d.identity() for d in again} <= {d.identity() for d in first}
        assert len({d.identity() for d in again}) == len(again)


def test_several_incidents_do_not_mix():
    actuators = Actuators()
    assert actions(actuators.on_incident(with_loss(6.0))) == ["ignore", "adjust_microbatches"]
    assert actions(actuators.on_incident(with_loss(6.0, id="i1"))) == ["ignore", "adjust_microbatches"]
