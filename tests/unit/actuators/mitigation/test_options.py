"""The options for an incident: priced by its job, timed by the past, and one of them chosen."""

from __future__ import annotations

import numpy as np
import pytest

from actuators.mitigation.actions import ADJUST_TOPOLOGY, CHECKPOINT_RESTART, HELPS, IGNORE, RESTART_WITHOUT_RANK
from actuators.mitigation.history import PastIncident, like
from actuators.mitigation.option import Option
from actuators.mitigation.options import options_for
from actuators.mitigation.prices import Measured, price_of
from actuators.mitigation.survival import Past
from pacehound.model.events import Cost, FixPrice, WhatIfPrice
from pacehound.model.evidence.leaving import Process
from pacehound.model.evidence.straggling import Mend, Straggles
from tests.fakes.events import SECOND_NS, START_NS, finding, incident

TWICE = {"magnitude": 1.0}


def with_loss(excess_s, *findings, **changes):
    return incident(cost=Cost(excess_s=excess_s, ranks=4), findings=findings or (finding(**TWICE),), **changes)


def by_action(found):
    return {one.action: one for one in found.options}


def past_like(mean_s, n=40, host="h", hour=3, seed=0):
    rng = np.random.default_rng(seed)
    return [
        PastIncident(past=Past(duration_s=float(d)), hosts=frozenset([host]), hour=hour)
        for d in rng.lognormal(np.log(mean_s), 0.4, n)
    ]


def test_without_history_each_is_due_when_the_loss_reaches_its_price():
    found = options_for(with_loss(2.0))
    options = by_action(found)
    assert list(options) == ["ignore", "adjust_microbatches", "adjust_topology", "checkpoint_restart"]
    assert [one.due_in_s for one in found.options[1:]] == [6.0, 116.0, 2396.0]
    assert (found.chosen, found.loss_per_s) == ("ignore", 0.5)
    assert "adjust_microbatches is due in 6 s" in found.why
    assert options["checkpoint_restart"].expected_gain == 0.5
    assert not options["checkpoint_restart"].reversible
    assert options["adjust_microbatches"].uncertainty == pytest.approx(0.085)


def test_the_loss_goes_on_until_the_job_was_last_heard_of():
    seen = with_loss(2.0)
    later = options_for(seen, heard_ns=seen.time_ns + 8 * SECOND_NS)
    assert later.loss_s == 6.0
    assert (by_action(later)["adjust_microbatches"].due_in_s, later.chosen) == (0.0, "adjust_microbatches")


def test_of_what_is_due_the_one_that_leaves_least_is_chosen_and_of_equals_the_cheapest():
    assert options_for(with_loss(100.0)).chosen == "adjust_microbatches"
    assert options_for(with_loss(1300.0)).chosen == "checkpoint_restart"
    assert options_for(with_loss(100.0, finding(cause="S2", **TWICE))).chosen == "adjust_topology"


def test_what_was_taken_is_no_option_any_more():
    found = options_for(with_loss(100.0), taken={"adjust_microbatches"})
    assert "adjust_microbatches" not in by_action(found)
    assert found.chosen == "adjust_topology"
    every = {"profile", *(action.name for action in HELPS["S1"])}
    assert "nothing else is known to help" in options_for(with_loss(1e5), taken=every).why


def test_prices_are_the_jobs_own_where_they_were_measured():
    own = Measured(checkpoint_s=20.0, since_checkpoint_s=300.0, restart_s=70.0, hold_s=4.0)
    options = by_action(options_for(with_loss(2.0), measured=own))
    assert options["checkpoint_restart"].cost_s == 90.0
    assert "its last checkpoint took 20 s, its last restart 70 s" in options["checkpoint_restart"].reason
    assert price_of(RESTART_WITHOUT_RANK, own)[0] == 370.0
    assert price_of(ADJUST_TOPOLOGY, own)[0] == 60.0
    assert price_of(ADJUST_TOPOLOGY, Measured(hold_s=80.0))[0] == 80.0
    assert price_of(CHECKPOINT_RESTART, Measured(restart_s=70.0))[0] == 670.0
    assert price_of(RESTART_WITHOUT_RANK, Measured(since_checkpoint_s=0.0, restart_s=0.0))[0] > 0


def test_options_are_in_the_order_of_the_jobs_prices():
    own = Measured(checkpoint_s=10.0, restart_s=20.0)
    assert list(by_action(options_for(with_loss(2.0), measured=own)))[-1] == "adjust_topology"


def test_long_ones_in_the_past_bring_a_restart_forward_and_short_ones_put_it_off():
    slow = with_loss(2.0, finding(cause="S2", **TWICE))
    usual = by_action(options_for(slow))["checkpoint_restart"].due_in_s
    assert by_action(options_for(slow, past=past_like(20_000)))["checkpoint_restart"].due_in_s < 0.5 * usual
    short = options_for(slow, past=past_like(2500.0))
    assert by_action(short)["checkpoint_restart"].due_in_s > 1.25 * usual
    assert short.timing.startswith("how long 40 of this kind lasted: ")
    assert "there are 0" in options_for(slow).timing
    assert short.worst_ratio <= 4.2


def test_the_past_of_the_same_host_counts_before_that_of_others():
    here, there = past_like(100, n=25, host="a"), past_like(9000, n=80, host="b")
    durations, words = like([*here, *there], frozenset(["a"]), hour=15)
    assert (len(durations), words) == (25, "of the same host")
    assert like([*here, *there], frozenset(["c"]), hour=15) == ([one.past for one in [*here, *there]], "of this kind")
    night = past_like(50, n=20, host="c", hour=23)
    assert like([*there, *night], frozenset(["z"]), hour=1)[1] == "at this time of day"


def test_a_simulation_of_the_job_says_what_a_restart_would_give():
    fix = FixPrice(what="worker", name="dp 0, stage 1", ranks=(2,), step_time_s=1.1, gain=0.15)
    what_if = WhatIfPrice(
        job="j", attempt=0, time_ns=0, first_step=0, last_step=9, n_steps=8, ranks=4, recorded_s=1.3, original_s=1.3,
        ideal_s=1.0, slowdown=1.3, waste=0.23, discrepancy=0.01, fixes=(fix,),
    )  # fmt: skip
    priced = incident(cost=Cost(excess_s=2.0, ranks=4, what_if=what_if), findings=(finding(**TWICE),))
    restart = by_action(options_for(priced))["checkpoint_restart"]
    assert (restart.expected_gain, restart.uncertainty) == (0.15, 0.01)
    assert "what-if simulation" in restart.reason


def test_a_hang_is_resumed_where_a_process_is_stopped_and_restarted_where_it_is_not():
    def hang(*evidence):
        one = finding(kind="hang", cause="H1", magnitude=None, evidence=evidence)
        return options_for(with_loss(0.0, one, time_ns=START_NS + 400 * SECOND_NS))

    assert hang(Process(rank=2, pid=7, state="stopped")).chosen == "resume_rank"
    assert hang(Process(rank=2, pid=7, state="running")).chosen == "restart_without_rank"
    assert by_action(hang())["resume_rank"].expected_gain == 0.0


def test_where_nobody_is_named_or_nothing_is_open_there_is_nothing_to_choose():
    unknown = finding(verdict="unknown", cause=None, culprits=(), candidates=(0, 1))
    found = options_for(with_loss(1e5, unknown))
    assert [one.action for one in found.options] == [IGNORE.name]
    assert "nobody is named" in found.why
    assert options_for(with_loss(1.0, state="closed")) is None
    assert options_for(with_loss(1.0, finding(kind="blind"))) is None


def test_what_no_rank_is_to_blame_for_has_options_too_with_the_simulated_gain():
    straggles = Straggles(slowdown=1.2, first_step=0, last_step=9, n_windows=2, cause="garbage collection")
    mend = Mend(what="collect at the same step", gain=0.1)

    def plan(*evidence):
        one = finding(verdict="unknown", cause=None, culprits=(), magnitude=0.2, evidence=evidence)
        return options_for(with_loss(5.0, one))

    found = plan(straggles, mend)
    assert (found.chosen, by_action(found)["planned_collection"].expected_gain) == ("planned_collection", 0.1)
    assert "not simulated" in by_action(plan(straggles))["planned_collection"].reason
    assert list(by_action(plan(mend))) == ["ignore"]


def test_of_a_loss_whose_rate_nobody_knows_no_moment_is_promised():
    found = options_for(incident(cost=Cost(), findings=(finding(magnitude=None),)))
    assert [one.due_in_s for one in found.options[1:]] == [None, None, None]


def test_an_option_that_costs_less_than_nothing_is_refused():
    with pytest.raises(ValueError, match="costs -1"):
        Option(action="a", cost_s=-1, expected_gain=0, due_in_s=0.0, reversible=True, reason="")
