"""When a standstill is said to be a hang: what was told before the last iteration ended is out of date."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pacehound.model.calls import Sees
from pacehound.model.digests import digests_of
from pacehound.model.events import (
    CallSignature,
    Finding,
    HostEvidence,
    OpenCall,
    Progress,
    RankProgress,
    RankStack,
    SignatureMismatch,
)
from pacehound.model.rounds import Rounds
from pacehound.settings import HangSettings
from streams.hang.hang_watch import HangWatch
from streams.hang.thresholds import CURRENT_NS
from streams.rounds.round_table import RoundTable
from streams.watching.moment import Moment
from tests.fakes.events import topology
from tests.fakes.examples import tries
from tests.fakes.made_pairs import drawn_pairs

S = 1_000_000_000


def watch() -> HangWatch:
    made = HangWatch("j", 0, HangSettings(suspect_after_s=2.0))
    made.hear(topology(), None)
    made.hear(progress(11 * S // 10), 10)
    return made


def progress(time_ns: int) -> Progress:
    """Rank 1 has been in its first call since the first second, rank 0 has not entered it."""
    call = OpenCall(seq=0, op="all_reduce", count=4, dtype="float32", launch_ns=S)
    return Progress(
        job="j",
        attempt=0,
        time_ns=time_ns,
        host="h",
        communicator="world",
        ranks=(
            RankProgress(rank=0, last_launched=-1, last_completed=-1, open=()),
            RankProgress(rank=1, last_launched=0, last_completed=-1, open=(call,)),
        ),
    )


def said(made: HangWatch, now_ns: int, finished_ns: int) -> list[Finding]:
    return made.on_tick(Moment(now_ns=now_ns, step=10, step_time_s=0.05, n_iterations=10, finished_ns=finished_ns))


@pytest.mark.parametrize(("finished_ns", "is_hung"), [(0, True), (3 * S, True), (39 * S // 10, False)])
def test_a_call_that_was_told_before_an_iteration_ended_does_not_hang(finished_ns: int, is_hung: bool) -> None:
    made = watch()
    made.hear(progress(32 * S // 10), 10)
    assert bool(said(made, 4 * S, finished_ns)) is is_hung


def test_it_hangs_once_it_is_told_again() -> None:
    made = watch()
    made.hear(progress(32 * S // 10), 10)
    assert not said(made, 4 * S, 39 * S // 10)
    made.hear(progress(42 * S // 10), 10)
    (found,) = said(made, 5 * S, 39 * S // 10)
    assert found.kind == "hang"


def test_a_call_that_is_given_up_when_it_times_out_is_still_told_of() -> None:
    made = watch()
    made.hear(progress(42 * S // 10), 10)
    (found,) = said(made, 5 * S, 0)
    assert "rank 1 has waited for 4.0 s in all_reduce 0" in found.evidence[0].words
    made.hear(replace(progress(62 * S // 10), closed=True), 10)
    made.hear(looked_at(6 * S), 10)
    for again in said(made, 7 * S, 0):
        assert again.evidence[0] == found.evidence[0]


def test_where_a_rank_stood_long_ago_is_no_hang_until_it_is_told_again() -> None:
    """Agents that tell of iterations say nothing of calls as long as these end, whatever is seen of them here."""
    made = watch()
    now_ns = 11 * S // 10 + CURRENT_NS
    assert said(made, now_ns + S, 0) == []
    made.hear(progress(now_ns + S), 10)
    (found,) = said(made, now_ns + 2 * S, 0)
    assert found.kind == "hang"


def digests(end_ns: int) -> RoundTable:
    """Both ranks have ended an iteration."""
    end = np.full((1, 2), end_ns, np.int64)
    same = {"job": "j", "attempt": 0, "communicator": "world", "sees": Sees.ALL, "ranks": (0, 1)}
    rounds = Rounds(
        **same,  # type: ignore[arg-type]
        source=digests_of("c10d"),
        seq=np.array([4]),
        op=np.zeros(1, np.int8),
        size_bytes=np.zeros(1, np.int64),
        arrival_ns=end - S,
        start_ns=end - S,
        end_ns=end,
    )
    return RoundTable([rounds])


def test_a_rank_whose_iteration_has_ended_has_moved() -> None:
    made = watch()
    made.hear(looked_at(2 * S), 10)
    made.on_rounds(digests(4 * S))
    assert made.host_reports.outside_of_calls(0) is None
    made.hear(progress(42 * S // 10), 10)
    assert said(made, 5 * S, 0) == [], "two seconds have not passed since"
    made.hear(progress(62 * S // 10), 10)
    (found,) = said(made, 7 * S, 0)
    assert found.kind == "hang"


@pytest.mark.parametrize("seed", tries(3))
def test_digests_of_pairs_move_their_ranks_as_rounds_of_each_pair_do(seed: int) -> None:
    """Next to digests of collectives, and as often."""
    rng = np.random.default_rng(seed)
    at_once, apart = watch(), watch()
    for turn in range(4):
        pairs = drawn_pairs(rng, 20, base_ns=turn * S, within_ns=2 * S, n_ranks=7)
        collectives = digests((turn + 1) * S).blocks
        at_once.on_rounds(RoundTable([*collectives, pairs]))
        apart.on_rounds(RoundTable([*collectives, *pairs.by_pair()]))
        assert at_once._moves.advanced_ns.tolist() == apart._moves.advanced_ns.tolist()
        assert at_once._moves.counters.tolist() == apart._moves.counters.tolist()
    assert at_once._moves.counters.max() > 1
    at_once.on_rounds(RoundTable([drawn_pairs(rng, 0)]))
    assert at_once._moves.counters.tolist() == apart._moves.counters.tolist()


@pytest.mark.parametrize(("recurring_s", "is_hung"), [(0.0, False), (0.05, True), (0.5, False)])
def test_before_the_first_iteration_the_limit_goes_by_what_recurs(recurring_s: float, is_hung: bool) -> None:
    """Two seconds are enough where the pace is known, and eight where it is not; ten periods in any case."""
    made = watch()
    made.hear(progress(42 * S // 10), None)
    assert bool(made.on_tick(Moment(now_ns=5 * S, recurring_s=recurring_s))) is is_hung


def looked_at(time_ns: int) -> HostEvidence:
    """Rank 0 computes."""
    stack = RankStack(rank=0, pid=1, taken_by="proc", frames=("f",), doing="computing")
    return HostEvidence(job="j", attempt=0, time_ns=time_ns, host="h", reason="a closer look", stacks=(stack,))


def completed(seq: int, time_ns: int) -> Progress:
    ranks = tuple(RankProgress(rank=rank, last_launched=seq, last_completed=seq, open=()) for rank in range(2))
    return Progress(job="j", attempt=0, time_ns=time_ns, host="h", communicator="world", ranks=ranks)


def test_what_a_rank_did_before_it_moved_on_accuses_it_of_nothing() -> None:
    """Ranks are looked at while a job goes on, too; only who stands still since then is found outside of its calls."""
    made = HangWatch("j", 0, HangSettings(suspect_after_s=2.0))
    made.hear(topology(), None)
    made.hear(completed(5, S), 10)
    made.hear(looked_at(S // 2), 10)
    assert made.host_reports.outside_of_calls(0) is None, "it came late, and the rank has moved since"
    made.hear(looked_at(2 * S), 10)
    assert made.host_reports.outside_of_calls(0) is not None
    made.hear(completed(6, 3 * S), 10)
    assert made.host_reports.outside_of_calls(0) is None


def test_the_last_word_of_ranks_that_still_moved_is_no_standstill_when_their_agent_has_gone() -> None:
    """Whatever `hang.suspect_after_s` is: that nobody has been heard of since says nothing of what they do."""
    made = HangWatch("j", 0, HangSettings(suspect_after_s=2.0))
    made.hear(topology(), None)
    made.hear(completed(5, S), 10)
    assert said(made, 4 * S, S) == []
    made.hear(completed(5, 4 * S), 10)
    (found,) = said(made, 5 * S, S)
    assert found.kind == "hang"


@pytest.mark.parametrize(("op", "is_over"), [("all_gather", True), ("all_reduce", False)])
def test_an_all_gather_of_different_sizes_that_all_have_completed_holds_nobody_up(op: str, is_over: bool) -> None:
    made = HangWatch("j", 0, HangSettings())
    made.hear(topology(), None)
    called = ((0, CallSignature(op, 8, "int8")), (1, CallSignature(op, 4, "int8")))
    made.hear(SignatureMismatch(job="j", attempt=0, time_ns=S, communicator="world", seq=5, called=called), 10)
    made.hear(completed(4, S), 10)
    assert set(made.mismatches()) == {("world", 5)}
    made.hear(completed(5, 2 * S), 10)
    assert set(made.mismatches()) == (set() if is_over else {("world", 5)})
    assert set(made.mismatches(0)) == {("world", 5)}, "who left since may have left for it"


def test_who_gives_up_its_call_when_the_job_is_ended_is_not_one_that_never_entered() -> None:
    """All stood in it; some are ended a moment before the others."""
    made = HangWatch("j", 0, HangSettings(suspect_after_s=2.0))
    made.hear(topology(members=(0, 1, 2), host_ranks=(0, 1, 2), world_size=3), None)

    def standing(time_ns: int, *ranks: int) -> Progress:
        call = OpenCall(seq=0, op="all_reduce", count=4, dtype="float32", launch_ns=S)
        of_ranks = tuple(
            RankProgress(rank=rank, last_launched=0, last_completed=-1, open=(call,) if rank in ranks else ())
            for rank in range(3)
        )
        return replace(progress(time_ns), ranks=of_ranks)

    for time_ns in (11 * S // 10, 4 * S):
        made.hear(standing(time_ns, 0, 1, 2), 10)
    (found,) = said(made, 5 * S, 0)
    assert (found.verdict, found.culprits) == ("unknown", ())
    made.hear(standing(6 * S, 0, 1), 10)
    assert said(made, 7 * S, 0) == []


def test_who_is_in_a_call_that_a_peer_has_just_ended_does_not_hang() -> None:
    """A pause is over: rank 0 comes, and ends the call in which rank 1 has waited for it before rank 1 does."""
    made = watch()
    made.hear(progress(4 * S), 10)
    came = progress(5 * S)
    gone_on = RankProgress(rank=0, last_launched=1, last_completed=1, open=())
    made.hear(replace(came, ranks=(gone_on, came.ranks[1])), 10)
    assert said(made, 5 * S, S // 2) == []
    made.hear(replace(came, time_ns=9 * S, ranks=(gone_on, came.ranks[1])), 10)
    (found,) = said(made, 9 * S, S // 2)
    assert (found.verdict, found.cause, found.culprits) == ("culprit", "H3", (1,))
