"""When an agent looks at its ranks, and at whom."""

from __future__ import annotations

from collector.host.evidence.stall import AGAIN_AFTER_NS, MAX_STACKS, Stall, StallWatch
from pacehound.model.events import OpenCall, PairProgress, Progress, RankProgress

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def open_call(seq: int, launched_s: float, **fields: object) -> OpenCall:
    return OpenCall(
        seq=seq, op="all_reduce", count=1, dtype="float32", launch_ns=START + round(launched_s * SECOND), **fields
    )  # type: ignore[arg-type]


def waits(rank: int, seq: int, since_s: float) -> RankProgress:
    return RankProgress(rank=rank, last_launched=seq, last_completed=seq - 1, open=(open_call(seq, since_s),))


def runs(rank: int, seq: int) -> RankProgress:
    return RankProgress(rank=rank, last_launched=seq, last_completed=seq)


class Host:
    def __init__(self, suspect_after_s: float = 10.0) -> None:
        self.watch = StallWatch(round(suspect_after_s * SECOND))

    def look(self, at_s: float, *ranks: RankProgress, sees: bool = True, gone: int = -1) -> Stall | None:
        said = Progress(
            job="j", attempt=0, time_ns=0, host="h", communicator="c0ffee", ranks=ranks, sees_completion=sees
        )
        alive = {(0, rank.rank) for rank in ranks if rank.rank != gone}
        return self.watch.look([said], alive, START + round(at_s * SECOND))


def test_nobody_looks_while_calls_come_and_go() -> None:
    host = Host()
    for second in range(100):
        assert host.look(second, waits(0, second, second - 1), runs(1, second)) is None


def test_a_call_that_stays_open_is_looked_into_with_the_rank_that_is_in_none_first() -> None:
    host = Host()
    ranks = (waits(0, 7, 1), runs(1, 6), waits(2, 7, 0.5))
    assert host.look(2, *ranks) is None
    assert host.look(10.4, *ranks) is None
    stall = host.look(10.5, *ranks)
    assert stall is not None
    assert stall.ranks == (1, 2, 0)  # rank 0 is in its call for less long, and is shown for comparison
    assert stall.in_call == {0, 2}
    assert stall.reason == "rank 2 has been in all_reduce 7 on communicator c0ffee for 10 s"


def test_a_stall_is_looked_into_again_but_not_at_once() -> None:
    host = Host()
    looked = [second for second in range(200) if host.look(second, waits(0, 7, 0), runs(1, 6)) is not None]
    assert looked == [10, 10 + AGAIN_AFTER_NS // SECOND, 10 + 2 * AGAIN_AFTER_NS // SECOND, 190]


def test_another_stall_is_looked_into_sooner_than_the_same_one() -> None:
    host = Host()
    looked = []
    for second in range(60):
        seq = second // 25  # a call that ends after 25 s, the next one too
        if host.look(second, waits(0, seq, seq * 25), runs(1, seq - 1)) is not None:
            looked.append(second)
    assert looked == [10, 35]


def test_ranks_that_make_no_call_any_more_are_looked_into_once_they_had_made_some() -> None:
    host = Host()
    idle = RankProgress(rank=0)
    assert [host.look(second, idle, RankProgress(rank=1)) for second in range(40)] == [None] * 40
    assert host.look(40, runs(0, 5), runs(1, 5)) is None
    assert host.look(42, runs(0, 6), runs(1, 5)) is None
    assert host.look(51, runs(0, 6), runs(1, 5)) is None
    stall = host.look(52, runs(0, 6), runs(1, 5))
    assert stall is not None
    assert stall.reason == "no rank of this host has made a call for 10 s"
    assert stall.ranks == (1, 0)  # who stopped first comes first
    assert stall.in_call == frozenset()


def test_where_ends_are_not_seen_an_open_call_means_nothing() -> None:
    host = Host()
    looks = [host.look(second, waits(0, second, 0), sees=False) for second in range(30)]
    assert looks == [None] * 30
    stall = host.look(39.5, waits(0, 29, 0), sees=False)
    assert stall is not None
    assert stall.in_call == frozenset()


def test_a_send_that_nobody_waits_for_is_no_stall_while_its_rank_goes_on() -> None:
    host = Host()
    unwaited = open_call(0, 0, direction="send", peer=1)

    def rank(seq: int) -> RankProgress:
        pairs = (PairProgress(peer=1, direction="send", last_launched=0),)
        return RankProgress(rank=0, last_launched=seq, last_completed=seq, open=(unwaited,), pairs=pairs)

    for second in range(60):
        assert host.look(second, rank(second)) is None
    assert host.look(65, rank(59)) is None
    stall = host.look(69, rank(59))
    assert stall is not None
    assert stall.reason == "rank 0 has been in all_reduce 0 with rank 1 for 69 s"


def test_a_rank_that_left_is_not_looked_at() -> None:
    host = Host()
    assert host.look(0, waits(0, 7, 0), runs(1, 6), gone=1) is None
    stall = host.look(11, waits(0, 7, 0), runs(1, 6), gone=1)
    assert stall is not None
    assert stall.ranks == (0,)
    assert Host().look(99, waits(0, 7, 0), gone=0) is None


def test_of_many_ranks_those_outside_come_first_and_one_of_those_that_wait_is_among_them() -> None:
    host = Host()
    ranks = [runs(rank, 5) for rank in range(12)] + [waits(rank, 7, rank / 10) for rank in range(12, 16)]
    stall = host.look(60, *ranks)
    assert stall is not None
    assert len(stall.ranks) == MAX_STACKS
    assert stall.ranks == (*range(MAX_STACKS - 1), 12)


def test_an_attempt_that_was_replaced_is_over() -> None:
    watch = StallWatch(10 * SECOND)

    def said(attempt: int, rank: RankProgress) -> Progress:
        return Progress(job="j", attempt=attempt, time_ns=0, host="h", communicator="c", ranks=(rank,))

    watch.look([said(0, runs(0, 5))], {(0, 0)}, START)
    both = [said(0, waits(0, 6, 0)), said(1, RankProgress(rank=0))]
    assert watch.look(both, {(0, 0), (1, 0)}, START + 50 * SECOND) is None
