"""What a validation has measured proves a suspect or clears it, for as long as the slowdown lasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from pacehound.model.events import Finding, Instant, JudgedRanks
from streams.job.measurements import Measurements, weighed_by_measurement

CHANGE = 0.1


def slowdown(**fields: Any) -> Finding:
    begun: dict[str, Any] = {
        "id": "a",
        "job": "j",
        "attempt": 0,
        "kind": "slow",
        "verdict": "unknown",
        "cause": None,
        "magnitude": 0.5,
        "onset": Instant(step=10, time_ns=100),
    }
    return Finding(**(begun | fields))


def judged(*ranks: int, verdict: Literal["culprit", "cleared", "unclear"] = "cleared") -> JudgedRanks:
    ratio = 2.0 if verdict == "culprit" else 1.0
    return JudgedRanks(
        ranks=ranks, hosts=("h",) * len(ranks), verdict=verdict, measured="memory", ratio=ratio, reason=""
    )


def everybody(*slow: int, of: int = 4) -> list[JudgedRanks]:
    return [judged(rank, verdict="culprit" if rank in slow else "cleared") for rank in range(of)]


@pytest.mark.parametrize(
    "finding",
    [slowdown(), slowdown(candidates=(0, 2)), slowdown(verdict="suspected", culprits=(2,), candidates=(1,))],
    ids=["nobody", "one of two", "suspected"],
)
def test_who_is_proven_slow_is_the_culprit(finding: Finding) -> None:
    told = weighed_by_measurement(finding, everybody(2), CHANGE)
    assert (told.verdict, told.culprits, told.candidates) == ("culprit", (2,), ())
    assert told.pages
    assert "rank 2 takes 2.00 times its peers' time (memory)" in told.evidence[-1].words


def test_a_slow_link_between_candidates_is_the_culprit() -> None:
    finding = slowdown(candidates=(1, 2, 3), cause="S2")
    told = weighed_by_measurement(finding, [*everybody(), judged(1, 2, verdict="culprit")], CHANGE)
    assert (told.verdict, told.culprits, told.links, told.cause) == ("culprit", (), ((1, 2),), "S2")


def test_a_suspect_that_is_as_fast_as_its_peers_is_suspected_no_more() -> None:
    told = weighed_by_measurement(slowdown(verdict="suspected", culprits=(2,)), everybody(), CHANGE)
    assert (told.verdict, told.culprits, told.candidates) == ("unknown", (), (2,))
    assert "rank 2 is as fast as its peers" in told.evidence[-1].words


@pytest.mark.parametrize("verdict", ["culprit", "suspected"])
def test_somebody_whom_nothing_pointed_to_is_told_and_not_named(verdict: str) -> None:
    finding = slowdown(verdict=verdict, culprits=(0,), candidates=())
    told = weighed_by_measurement(finding, everybody(3), CHANGE)
    assert (told.verdict, told.culprits) == (verdict, (0,))
    assert "rank 3 takes 2.00 times" in told.evidence[-1].words


def test_a_culprit_that_calls_have_shown_is_not_cleared_by_a_measurement() -> None:
    told = weighed_by_measurement(slowdown(verdict="culprit", culprits=(1,)), everybody(), CHANGE)
    assert (told.verdict, told.culprits) == ("culprit", (1,))
    assert "none is proven slow, and 4 ranks are as fast as their peers" in told.evidence[-1].words


def test_a_suspect_that_could_not_be_told_stays_one() -> None:
    told = weighed_by_measurement(
        slowdown(verdict="suspected", culprits=(1,)), [judged(1, verdict="unclear"), judged(0)], CHANGE
    )
    assert (told.verdict, told.culprits) == ("suspected", (1,))


def test_what_was_measured_holds_for_as_long_as_the_slowdown_and_each_version_is_said_once() -> None:
    known = Measurements(CHANGE)
    first = known.weighed(slowdown(candidates=(1, 2)))
    (proven,) = known.on_judged((judged(1, verdict="culprit"), judged(2)), 200)
    later = known.weighed(slowdown(candidates=(1, 2), version=1))
    relieved = known.weighed(slowdown(candidates=(1, 2), version=2, relief=Instant(step=20, time_ns=300)))
    assert [one.version for one in (first, proven, later, relieved)] == [0, 1, 2, 3]
    assert [one.culprits for one in (first, proven, later, relieved)] == [(), (1,), (1,), (1,)]
    again = known.weighed(slowdown(id="b", candidates=(1, 2), onset=Instant(step=30, time_ns=400)))
    assert again.verdict == "unknown", "another slowdown is asked anew"


def test_a_measurement_says_nothing_of_what_began_after_it_or_is_no_slowness() -> None:
    known = Measurements(CHANGE)
    known.weighed(slowdown())
    known.weighed(replace(slowdown(id="h"), kind="hang"))
    assert known.on_judged(tuple(everybody(1)), 50) == []
    assert [one.id for one in known.on_judged(tuple(everybody(1)), 150)] == ["a"]
