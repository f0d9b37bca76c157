"""Which ranks get less of their host's processors than before."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pacehound.model.events import HostProcessors, HostVitals, RankProcessors
from streams.slow.processors import OLDER, RECENT, THINNED, ProcessorTracker

S = 1_000_000_000
EVERY_S = 5
BEGAN_S = 60


@dataclass(frozen=True)
class Rate:
    """What a rank, and its host, does in each second of a stretch of time, in seconds."""

    ran: float = 0.9
    waited: float = 0.01
    throttled: float = 0.0
    stolen: float = 0.0
    others: float = 0.0


QUIET = Rate()


def tracker(
    now: dict[int, Rate], *, until_s: int = 120, ranks: int = 4, first_s: int = 0, processors: int = 8
) -> ProcessorTracker:
    """Two hosts of `ranks` / 2 ranks each, with so many processors, quiet until `BEGAN_S` and then as `now` says."""
    made = ProcessorTracker()
    totals = {rank: [0.0] * 5 for rank in range(ranks)}
    for second in range(first_s, until_s + 1, EVERY_S):
        for host in range(2):
            own = range(host * ranks // 2, (host + 1) * ranks // 2)
            made.on_vitals(
                HostVitals(
                    job="j", attempt=0, time_ns=second * S, host=f"h{host}",
                    processors=HostProcessors(
                        count=processors,
                        busy_ns=int(sum(totals[rank][0] + totals[rank][4] for rank in own) * S),
                        stolen_ns=int(sum(totals[rank][3] for rank in own) * S),
                    ),
                    rank_processors=tuple(
                        RankProcessors(
                            rank=rank, pid=rank, ran_ns=int(totals[rank][0] * S), waited_ns=int(totals[rank][1] * S),
                            throttled_ns=int(totals[rank][2] * S),
                        )
                        for rank in own
                    ),
                )
            )  # fmt: skip
        for rank, total in totals.items():
            rate = now.get(rank, QUIET) if second >= BEGAN_S else QUIET
            for place, each in enumerate((rate.ran, rate.waited, rate.throttled, rate.stolen, rate.others)):
                total[place] += each * EVERY_S
    return made


def test_a_rank_that_waits_for_a_processor_is_told_with_its_satisfaction_rate() -> None:
    found = tracker({2: Rate(ran=0.6, waited=0.4)}).shortages(range(4), BEGAN_S * S, 0.1)
    assert list(found) == [2]
    assert "60% of the time in which it wants one, 99% before" in found[2].words
    assert "host h1" in found[2].words


def test_a_quota_that_is_used_up_comes_before_the_waiting_that_it_makes() -> None:
    found = tracker({2: Rate(ran=0.6, waited=0.4, throttled=0.35)}).shortages(range(4), BEGAN_S * S, 0.1)
    assert found[2].cause == "quota"
    assert "0.35 s of each second, 0.00 s before" in found[2].words


def test_what_a_hypervisor_takes_meets_every_rank_of_the_host() -> None:
    stolen = Rate(ran=0.6, stolen=0.3)
    found = tracker({2: stolen, 3: stolen}).shortages(range(4), BEGAN_S * S, 0.1)
    assert sorted(found) == [2, 3]
    assert (found[2].key, found[2].words) == (found[3].key, found[3].words)
    assert "takes 33%" in found[2].words


@pytest.mark.parametrize("share", [0.1, 0.35])
def test_what_explains_too_little_of_the_growth_is_not_told(share: float) -> None:
    found = tracker({2: Rate(ran=0.7, waited=0.21)}).shortages(range(4), BEGAN_S * S, share)
    assert bool(found) == (share < 0.2)


def test_a_rank_that_always_waited_as_long_is_not_told() -> None:
    waiting = Rate(ran=0.6, waited=0.4)
    assert not tracker({2: waiting}, first_s=BEGAN_S).shortages(range(4), (BEGAN_S + 30) * S, 0.1)


def test_only_ranks_that_are_asked_for_are_told() -> None:
    assert not tracker({2: Rate(waited=0.4)}).shortages((0, 1, 3), BEGAN_S * S, 0.1)


@pytest.mark.parametrize(("first_s", "until_s"), [(BEGAN_S - 5, 120), (0, BEGAN_S)])
def test_two_readings_before_and_two_since_are_needed(first_s: int, until_s: int) -> None:
    made = tracker({2: Rate(waited=0.4)}, first_s=first_s, until_s=until_s)
    assert not made.shortages(range(4), BEGAN_S * S, 0.1)


def test_counts_that_begin_anew_are_not_compared() -> None:
    made = tracker({2: Rate(waited=0.4)}, until_s=BEGAN_S)
    fresh = RankProcessors(rank=2, pid=2, ran_ns=5, waited_ns=5)
    for second in (65, 70):
        made.on_vitals(
            HostVitals(job="j", attempt=0, time_ns=second * S, host="h1", rank_processors=(fresh,))
        )  # the agent was killed, and one rank has left
    assert not made.shortages(range(4), BEGAN_S * S, 0.1)


def test_readings_of_minutes_ago_are_still_there_and_no_more_than_that() -> None:
    long_s = (RECENT + OLDER * THINNED - THINNED) * EVERY_S
    made = tracker({2: Rate(ran=0.6, waited=0.4)}, until_s=long_s)
    assert made.shortages(range(4), BEGAN_S * S, 0.1)
    made = tracker({2: Rate(ran=0.6, waited=0.4)}, until_s=2 * long_s)
    assert not made.shortages(range(4), BEGAN_S * S, 0.1)


def test_what_ranks_have_lacked_since_the_start_needs_two_readings_and_no_time_before() -> None:
    made = tracker({}, until_s=EVERY_S)
    assert made.lacked([0, 3]) == pytest.approx({0: QUIET.waited, 3: QUIET.waited})
    assert tracker({}, until_s=0).lacked([0]) is None
    assert tracker({}, until_s=0).lacked([9]) == {}


CROWDED = Rate(ran=0.25, waited=0.8, others=0.55)
"""Two ranks of each host, on two processors that are never free."""


def test_a_machine_is_crowded_where_all_its_ranks_wait_longer_than_they_run_also_from_the_start() -> None:
    made = tracker(dict.fromkeys(range(4), CROWDED), processors=2)
    for since_s in (BEGAN_S, BEGAN_S + 45):
        (crowded,) = made.crowd(range(4), since_s * S, 0.3, is_apart=True, now_ns=(since_s + 10) * S)
        assert (
            crowded.words
            == "the ranks on host h1 have a processor for 24% to 24% of the time in which they want one: "
            + ("the machine is crowded")
        )


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param({0: CROWDED, 1: CROWDED, 2: CROWDED}, id="one rank has the processors that it wants"),
        pytest.param(dict.fromkeys(range(4), Rate(ran=0.25, waited=0.8)), id="there is one that is free"),
        pytest.param(
            dict.fromkeys(range(4), Rate(ran=0.5, waited=0.4, others=0.5)), id="they run longer than they wait"
        ),
        pytest.param(dict.fromkeys(range(4), Rate(ran=0.1, waited=0.2, others=0.9)), id="it explains too little"),
    ],
)
def test_a_machine_is_not_crowded_where(rates: dict[int, Rate]) -> None:
    assert (
        tracker(rates, processors=2).crowd(range(4), BEGAN_S * S, 0.3, is_apart=True, now_ns=(BEGAN_S + 50) * S) == ()
    )


@pytest.mark.parametrize(
    ("rate", "is_crowded"),
    [
        pytest.param(Rate(ran=0.25, waited=0.8), True, id="they wait longer than they run"),
        pytest.param(Rate(ran=0.5, waited=0.15, others=0.5), True, id="they wait, and nothing is free"),
        pytest.param(Rate(ran=0.5, waited=0.15), False, id="they wait now and then, and something is free"),
        pytest.param(Rate(ran=0.9, waited=0.05, others=0.1), False, id="they hardly wait"),
    ],
)
def test_for_slowness_without_a_name_it_takes_less(rate: Rate, is_crowded: bool) -> None:
    made = tracker(dict.fromkeys(range(4), rate), processors=2)
    since_ns, now_ns = BEGAN_S * S, (BEGAN_S + 50) * S
    assert bool(made.crowd(range(4), since_ns, 0.3, is_apart=False, now_ns=now_ns)) == is_crowded
    assert made.crowd(range(4), since_ns, 0.3, is_apart=True, now_ns=now_ns) == ()


def test_whether_a_machine_is_crowded_is_not_known_before_it_has_been_read() -> None:
    made = tracker({}, until_s=BEGAN_S - 5)
    assert made.crowd(range(4), BEGAN_S * S, 0.3, is_apart=True, now_ns=(BEGAN_S + 4) * S) is None
    assert made.crowd(range(4), BEGAN_S * S, 0.3, is_apart=True, now_ns=(BEGAN_S + 20) * S) == (), (
        "they have stopped: it is told without them"
    )
    assert ProcessorTracker().crowd(range(4), BEGAN_S * S, 0.3, is_apart=True, now_ns=(BEGAN_S + 4) * S) == (), (
        "none are sent"
    )


def test_a_slowdown_that_has_lasted_is_told_on_a_crowded_machine() -> None:
    made = tracker(dict.fromkeys(range(4), CROWDED), processors=2)
    assert made.crowd(range(4), BEGAN_S * S, 0.3, is_apart=True, now_ns=(BEGAN_S + 59) * S)
    assert made.crowd(range(4), BEGAN_S * S, 0.3, is_apart=True, now_ns=(BEGAN_S + 60) * S) == ()
