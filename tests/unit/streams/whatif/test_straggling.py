"""A what-if price that stays high is a finding with the cause that the analysis names, and an incident of its own."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from pacehound.model.events import WhatIfPrice
from pacehound.model.evidence.straggling import Explains, Mend
from pacehound.model.whatif_result import STRAGGLING
from pacehound.settings import IncidentSettings
from simulator.operations.job import OpFaults, OpJob
from simulator.operations.trace import generate
from streams.job.incidents import IncidentTracker
from streams.whatif.reader import read_trace
from streams.whatif.straggling import PricedWindow, Straggling
from streams.whatif.thresholds import WINDOWS_IN_A_ROW
from streams.whatif.trace_windows import straggling_in
from tests.fakes.events import finding
from tests.fakes.evidence_words import words_of

MINUTE_NS = 60_000_000_000


def price(number, slowdown, **changes):
    return WhatIfPrice(
        job="j",
        attempt=0,
        time_ns=(number + 1) * MINUTE_NS,
        first_step=1000 * number,
        last_step=1000 * number + 7,
        n_steps=8,
        ranks=4,
        recorded_s=1.0,
        original_s=1.0,
        ideal_s=1.0 / slowdown,
        slowdown=slowdown,
        waste=1 - 1 / slowdown,
        discrepancy=0.01,
        **changes,
    )


def window(number, slowdown, cause="last stage", ranks=(3,), **changes):
    return PricedWindow(
        price=replace(price(number, slowdown), **changes),
        cause=cause,
        ranks=ranks,
        evidence=(Explains(share=1.2, without="M_S"), Mend(what="move layers", gain=0.1)),
        began_ns=number * MINUTE_NS,
    )


def followed(windows, **how):
    straggling = Straggling("j", 0)
    return [one for each in windows for one in straggling.on_window(each, **how)]


def test_it_is_said_once_when_some_windows_in_a_row_straggle():
    (said,) = followed(window(number, 1.2) for number in range(10))
    assert (said.kind, said.verdict, said.culprits, said.candidates) == ("slow", "unknown", (), (3,))
    assert said.magnitude == pytest.approx(0.2)
    assert said.pages
    assert said.onset.step == 0
    assert said.detected.step == 1000 * (WINDOWS_IN_A_ROW - 1) + 7
    assert "the cause is: last stage" in words_of(said)[0]
    assert words_of(said)[-1].startswith("what would mend it: move layers")


def test_a_price_that_does_not_stay_is_none():
    assert followed(window(number, 1.2 if number % WINDOWS_IN_A_ROW else 1.05) for number in range(20)) == []


def test_just_below_the_limit_is_no_straggling_and_at_it_is():
    assert followed(window(number, STRAGGLING - 1e-6) for number in range(9)) == []
    assert len(followed(window(number, STRAGGLING) for number in range(9))) == 1


def test_windows_whose_simulation_is_not_to_be_believed_say_nothing():
    assert followed(window(number, 1.5, discrepancy=0.06) for number in range(9)) == []


def test_it_is_over_when_as_many_windows_no_longer_straggle():
    _, over = followed(window(number, 1.2 if number < 4 or number == 5 else 1.02) for number in range(12))
    assert over.relief.step == 6000
    assert over.version == 1


def test_a_worker_is_suspected_and_only_where_all_windows_name_it():
    (said,) = followed(window(number, 1.3, "single worker", (1, 2 + number)) for number in range(3))
    assert (said.verdict, said.cause, said.culprits, said.victims) == ("suspected", "S1", (1,), (0, 2, 3))
    (said,) = followed(window(number, 1.3, "single worker", (number,)) for number in range(3))
    assert (said.verdict, said.culprits) == ("unknown", ())
    assert "not the same in each of them" in words_of(said)[0]


def test_where_the_job_is_known_to_be_slow_only_a_name_is_news():
    assert followed((window(number, 1.3) for number in range(5)), is_told=True) == []
    assert len(followed((window(n, 1.3, "single worker", (1,)) for n in range(5)), is_told=True)) == 1


def tracker():
    return IncidentTracker("j", 0, IncidentSettings())


def test_what_is_said_opens_an_incident_that_closes_when_it_is_over():
    said, over = followed(window(number, 1.2 if number < 3 else 1.0) for number in range(6))
    incidents = tracker()
    (opened,) = incidents.on_finding(said, said.time_ns, 20.0)
    (relieved,) = incidents.on_finding(over, over.time_ns, 30.0)
    (closed,) = incidents.on_tick(over.time_ns + MINUTE_NS, {})
    assert (opened.state, relieved.state, closed.state, closed.closed_why) == ("open", "relieved", "closed", "relieved")


def test_one_worker_is_one_incident_and_its_time_is_counted_once():
    (said,) = followed(window(number, 1.3, "single worker", (1,)) for number in range(3))
    incidents = tracker()
    slow = finding(culprits=(1,), onset=said.onset)
    (opened,) = incidents.on_finding(slow, said.time_ns, 50.0)
    (joined,) = incidents.on_finding(said, said.time_ns, 40.0)
    assert joined.id == opened.id
    assert {one.id for one in joined.findings} == {slow.id, said.id}
    assert joined.cost.excess_s == 50.0


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (OpFaults(), ""),
        (OpFaults(slow_workers={(1, 2): 1.6}), "single worker"),
        (OpFaults(sequence_spread=0.5), "sequence length"),
        (OpFaults(collections_per_step=0.3, collection_s=0.5), "garbage collection"),
        (OpFaults(last_stage=(1.8, 1.8)), "last stage"),
    ],
    ids=["none", "worker", "sequences", "collection", "last stage"],
)
def test_a_trace_is_told_by_what_is_wrong_with_it(tmp_path, faults, cause):
    path = tmp_path / "trace-made.parquet"
    pq.write_table(generate(OpJob(n_dp=4, n_steps=24, faults=faults))[0], path)
    said = straggling_in(read_trace(path), path, 8)
    assert [words_of(one)[0].rpartition("the cause is: ")[2] for one in said] == ([cause] if cause else [])
