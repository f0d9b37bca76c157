"""Stage one on hand-made events: rounds, watermarks, and what happens to input that cannot be true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.errors import InvalidEvent
from pacehound.model.calls import DIRECTIONS, CallBatch, Sees
from pacehound.model.events import (
    IterationSample,
    Markers,
    OpenCall,
    PairProgress,
    Progress,
    RankProgress,
    Tick,
    Topology,
    Watermark,
)
from pacehound.model.flushes import Heartbeat, flushes_of
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import ALGORITHMS, Rounds
from pacehound.model.shards import Place
from pacehound.settings import Settings
from streams.rounds.call_rows import rows_of_flush
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.merge import CLOSED_NS
from streams.rounds.stage_one import StageOne
from tests.fakes.events import topology
from tests.fakes.examples import examples

S = 1_000_000_000
WORLD = "w" * 32
COMMON = {"job": "j", "attempt": 0}


def announced(host: str = "a", ranks: tuple[int, ...] = (0, 1), members: tuple[int, ...] = (0, 1, 2, 3)) -> Topology:
    return topology(WORLD, members, host=host, host_ranks=ranks)


def calls(host: str, rows: list[tuple[int, int, int, int]], **extra: list[int]) -> CallBatch:
    """Rows of (rank, seq, launch_ns, end_ns)."""
    rank, seq, launch, end = (list(column) for column in zip(*rows, strict=True))
    columns = {"rank": rank, "seq": seq, "op": [1] * len(rows), "count": [4] * len(rows), "dtype": [10] * len(rows)}
    columns |= {"launch_ns": launch, "start_ns": launch, "end_ns": end, **extra}
    return CallBatch.from_columns(columns, **COMMON, host=host, communicator=WORLD, source="c10d", sees=Sees.ALL)


def progress(
    host: str,
    ranks: tuple[int, ...],
    time_ns: int,
    launched: int = -1,
    reached: tuple[RankProgress, ...] = (),
    closed: bool = False,
) -> Progress:
    reached = reached or tuple(RankProgress(rank=r, last_launched=launched, last_completed=launched) for r in ranks)
    return Progress(**COMMON, time_ns=time_ns, host=host, communicator=WORLD, ranks=reached, closed=closed)


def two_hosts() -> CommunicatorOperator:
    operator = CommunicatorOperator(announced(), lateness_ns=5 * S)
    operator.on_topology(announced())
    operator.on_topology(announced("b", (2, 3)))
    return operator


def of(kind: type, events: list) -> list:
    return [event for event in events if isinstance(event, kind)]


def test_rates_and_algorithm_reach_the_round_and_are_absent_where_nobody_sees_them() -> None:
    operator = two_hosts()
    nan = float("nan")
    rows = [(0, 0, 10, 20), (1, 0, 10, 20)]
    rated = {"send_rate": [0.5, nan], "recv_rate": [nan, 0.25], "algorithm": ["RING", "RING"]}
    operator.on_calls(calls("a", rows, **rated))  # type: ignore[arg-type]
    operator.on_calls(calls("b", [(2, 0, 10, 20), (3, 0, 10, 20)]))
    events = operator.on_progress(progress("a", (0, 1), S, launched=0))
    events += operator.on_progress(progress("b", (2, 3), S, launched=0))
    (block,) = of(Rounds, events)
    assert block.algorithm is not None
    assert [ALGORITHMS[code] for code in block.algorithm] == ["ring"]
    np.testing.assert_array_equal(block.send_rate, [[0.5, nan, nan, nan]])
    np.testing.assert_array_equal(block.recv_rate, [[nan, 0.25, nan, nan]])
    operator = two_hosts()
    operator.on_calls(calls("a", rows))
    operator.on_calls(calls("b", [(2, 0, 10, 20), (3, 0, 10, 20)]))
    events = operator.on_progress(progress("a", (0, 1), S, launched=0))
    (block,) = of(Rounds, events + operator.on_progress(progress("b", (2, 3), S, launched=0)))
    assert (block.send_rate, block.recv_rate, block.algorithm) == (None, None, None)


def test_a_round_closes_when_all_members_have_reported() -> None:
    operator = two_hosts()
    operator.on_calls(calls("a", [(0, 0, 10, 50), (1, 0, 20, 50)]))
    assert of(Rounds, operator.on_progress(progress("a", (0, 1), 100, 0))) == []
    operator.on_calls(calls("b", [(2, 0, 30, 50), (3, 0, 40, 51)]))
    (rounds,) = of(Rounds, operator.on_progress(progress("b", (2, 3), 100, 0)))
    assert rounds.ranks == (0, 1, 2, 3)
    assert rounds.arrival_ns.tolist() == [[10, 20, 30, 40]]
    assert rounds.end_ns.tolist() == [[50, 50, 50, 51]]
    assert operator.all_counts() == {}


def test_calls_that_were_kept_behind_digests_change_nothing() -> None:
    told = []
    for is_asked in (False, True):
        stage_one = StageOne(Settings())
        for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
            stage_one.on_event(announced(host, ranks))
        stage_one.on_event(calls("a", [(0, 0, 10, 20), (1, 0, 10, 20)]))
        if is_asked:
            kept = replace(calls("a", [(0, 1, 30, 40), (1, 0, 10, 99)]), source="c10d kept")
            assert stage_one.on_event(kept) == []
            (flush,) = flushes_of([kept], {WORLD: Place(0)})
            (part,), (where,) = flush.parts, flush.slices()
            assert stage_one.on_rows(part, where, rows_of_flush(flush), ("a",), lambda batch=kept: batch) == []
        stage_one.on_event(calls("b", [(2, 0, 10, 20), (3, 0, 10, 20)]))
        events = [
            e for host, ranks in (("a", (0, 1)), ("b", (2, 3))) for e in stage_one.on_event(progress(host, ranks, S, 0))
        ]
        (block,) = of(Rounds, events)
        assert isinstance(stage_one.communicator, CommunicatorOperator)
        told.append((block.seq.tolist(), block.end_ns.tolist(), stage_one.communicator.counts))
    assert told[0] == told[1]


def test_the_watermark_is_the_lowest_promise_of_all_hosts() -> None:
    operator = two_hosts()
    assert of(Watermark, operator.on_progress(progress("a", (0, 1), 7 * S))) == []
    (mark,) = of(Watermark, operator.on_progress(progress("b", (2, 3), 4 * S)))
    assert mark.time_ns == 4 * S


def test_only_a_tick_in_the_log_leaves_a_silent_host_out() -> None:
    operator = two_hosts()
    events = operator.on_progress(progress("b", (2, 3), 1 * S))
    for second in range(2, 60):  # host a alone moves on, as when host b's backlog has yet to arrive
        events += operator.on_progress(progress("a", (0, 1), second * S))
    assert [mark.time_ns for mark in of(Watermark, events)] == [1 * S]
    (mark,) = of(Watermark, operator.on_tick(Tick(**COMMON, time_ns=60 * S, stream=WORLD)))
    assert mark.time_ns == 59 * S


def beat(time_s: int, quiet_s: int = 0) -> Heartbeat:
    return Heartbeat(time_ns=time_s * S, communicators=(WORLD,), quiet_ns=quiet_s * S)


def test_a_heartbeat_promises_as_much_as_a_promise() -> None:
    operator = two_hosts()
    operator.on_progress(progress("a", (0, 1), 1 * S))
    operator.on_progress(progress("b", (2, 3), 1 * S))
    assert operator.on_heartbeats([("a", beat(9))]) == []
    assert [mark.time_ns for mark in of(Watermark, operator.on_heartbeats([("b", beat(8))]))] == [8 * S]
    operator.on_tick(Tick(**COMMON, time_ns=12 * S, stream=WORLD))  # nobody has been silent for five seconds
    assert [mark.time_ns for mark in of(Watermark, operator.on_heartbeats([("b", beat(10))]))] == [9 * S]


def test_a_host_that_was_left_out_is_waited_for_again_when_its_heart_beats() -> None:
    operator = two_hosts()
    operator.on_progress(progress("a", (0, 1), 1 * S))
    operator.on_progress(progress("b", (2, 3), 9 * S))
    left_out = operator.on_tick(Tick(**COMMON, time_ns=10 * S, stream=WORLD))
    assert [mark.time_ns for mark in of(Watermark, left_out)] == [9 * S]
    operator.on_heartbeats([("a", beat(10))])
    assert [mark.time_ns for mark in of(Watermark, operator.on_progress(progress("b", (2, 3), 12 * S)))] == [10 * S]


def test_rounds_that_are_complete_are_told_with_the_next_word_of_any_host() -> None:
    operator = two_hosts()
    operator.on_progress(progress("a", (0, 1), 1 * S))
    operator.on_progress(progress("b", (2, 3), 2 * S))
    operator.on_calls(calls("a", [(0, 0, 1, 2), (1, 0, 1, 2)]))
    operator.on_calls(calls("b", [(2, 0, 1, 2), (3, 0, 1, 2)]))
    assert [len(told) for told in of(Rounds, operator.on_heartbeats([("b", beat(9))]))] == [1]


def test_a_host_that_said_it_would_be_quiet_is_waited_for_so_much_longer() -> None:
    operator = two_hosts()
    operator.on_progress(progress("a", (0, 1), 1 * S))
    operator.on_progress(progress("b", (2, 3), 1 * S))
    for host in ("a", "b"):
        operator.on_heartbeats([(host, beat(10, quiet_s=4))])
    operator.on_progress(progress("b", (2, 3), 30 * S))
    waiting = operator.on_tick(Tick(**COMMON, time_ns=19 * S, stream=WORLD))
    assert of(Watermark, waiting) == []
    left_out = operator.on_tick(Tick(**COMMON, time_ns=20 * S, stream=WORLD))
    assert [mark.time_ns for mark in of(Watermark, left_out)] == [30 * S]


def test_a_heartbeat_opens_nothing_that_its_host_has_closed_and_goes_not_back() -> None:
    operator = two_hosts()
    operator.on_progress(progress("a", (0, 1), 5 * S, closed=True))
    operator.on_progress(progress("b", (2, 3), 5 * S))
    assert operator.on_heartbeats([("a", beat(9))]) == operator.on_heartbeats([("b", beat(4))]) == []
    assert operator.hosts == ("b",)
    assert operator.all_counts() == {"backward_progress": 2}
    with pytest.raises(InvalidEvent, match="'z', which has not announced"):
        operator.on_heartbeats([("z", beat(9))])


def test_what_a_heartbeat_closes_it_closes_by_what_was_counted_last() -> None:
    operator = two_hosts()
    operator.on_calls(calls("a", [(0, 0, 1, 2), (1, 0, 1, 2)]))
    operator.on_progress(progress("a", (0, 1), 1 * S, launched=0))
    operator.on_progress(progress("b", (2, 3), 1 * S, launched=-1))
    for host in ("a", "b"):
        assert of(Rounds, operator.on_heartbeats([(host, beat(9))])) == []  # b may have its rows yet to tell
    (closed,) = of(Rounds, operator.on_progress(progress("b", (2, 3), 10 * S, launched=0))) + of(
        Rounds, operator.on_progress(progress("a", (0, 1), 10 * S, launched=0))
    )
    assert closed.end_ns.tolist() == [[2, 2, 0, 0]]


def test_a_missing_row_closes_its_round_once_its_host_promises_no_more_rows_and_is_counted() -> None:
    """Rows and promises come in one order: the iteration that holds the round need not be judged without it."""
    operator = two_hosts()
    operator.on_calls(calls("a", [(0, 0, 1, 9), (1, 0, 1, 9)]))
    operator.on_calls(calls("b", [(2, 0, 1, 9)]))  # the row of rank 3 was lost
    assert of(Rounds, operator.on_progress(progress("a", (0, 1), 1 * S, launched=0))) == []
    (rounds,) = of(Rounds, operator.on_progress(progress("b", (2, 3), 1 * S, launched=0)))
    assert rounds.end_ns.tolist() == [[9, 9, 9, 0]]
    assert operator.all_counts() == {"missing_rows": 1}


def test_a_silent_host_does_not_keep_rounds_open_once_it_is_left_out() -> None:
    operator = two_hosts()
    operator.on_calls(calls("a", [(0, 0, 1, 9), (1, 0, 1, 9)]))
    assert of(Rounds, operator.on_progress(progress("a", (0, 1), 50 * S, launched=0))) == []
    (rounds,) = of(Rounds, operator.on_tick(Tick(**COMMON, time_ns=60 * S, stream=WORLD)))
    assert rounds.end_ns.tolist() == [[9, 9, 0, 0]]


def pair_rows(rank: int, seqs: list[int], peer: int, direction: int) -> CallBatch:
    rows = [(rank, seq, 10 * seq + 1, 10 * seq + 9) for seq in seqs]
    host = "a" if rank < 2 else "b"
    return calls(host, rows, peer=[peer] * len(rows), direction=[direction] * len(rows))


def test_a_lost_row_of_a_pair_closes_its_round_by_the_pairs_own_counters() -> None:
    """Another send of the rank may be open for ever: it says nothing of this one."""
    operator = two_hosts()
    operator.on_calls(pair_rows(0, [0, 1], 2, DIRECTIONS.index("send")))
    operator.on_calls(pair_rows(2, [1], 0, DIRECTIONS.index("recv")))  # the receiver's row of round 0 was lost
    other = OpenCall(seq=5, op="send", count=4, dtype="float32", launch_ns=1, peer=3, direction="send")
    sender = RankProgress(rank=0, open=(other,), pairs=(PairProgress(peer=2, direction="send", last_launched=1),))
    receiver = RankProgress(rank=2, pairs=(PairProgress(peer=0, direction="recv", last_launched=1),))
    events = operator.on_progress(progress("a", (), 1 * S, reached=(sender, RankProgress(rank=1))))
    events += operator.on_progress(progress("b", (), 1 * S, reached=(receiver, RankProgress(rank=3))))
    assert sorted(seq for block in of(PairRounds, events) for seq in block.seq.tolist()) == [0, 1]


def test_a_round_that_a_rank_has_not_left_stays_open_however_long_it_takes() -> None:
    operator = two_hosts()
    operator.on_calls(calls("a", [(0, 0, 1, 9), (1, 0, 1, 9)]))
    waiting = OpenCall(seq=0, op="all_reduce", count=4, dtype="float32", launch_ns=1)
    inside = tuple(RankProgress(rank=r, last_launched=0, open=(waiting,)) for r in (2, 3))
    operator.on_progress(progress("a", (0, 1), 100 * S, launched=0))
    assert of(Rounds, operator.on_progress(progress("b", (2, 3), 100 * S, reached=inside))) == []


def test_a_round_that_was_lost_whole_is_counted_and_holds_nothing_up() -> None:
    operator = two_hosts()
    for seq in (0, 2):  # round 1 fell out of every ring
        operator.on_calls(calls("a", [(0, seq, 1, 9), (1, seq, 1, 9)]))
        operator.on_calls(calls("b", [(2, seq, 1, 9), (3, seq, 1, 9)]))
    for second in (1, 6):
        for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
            operator.on_progress(progress(host, ranks, second * S, launched=2))
    assert operator.all_counts() == {"missing_rows": 4}
    operator.on_calls(calls("a", [(0, 1, 1, 9)]))
    assert operator.all_counts() == {"missing_rows": 4, "late_rows": 1}


def test_a_communicator_that_is_first_seen_in_mid_job_misses_nothing() -> None:
    operator = two_hosts()
    for seq in (500_000, 500_001):
        operator.on_calls(calls("a", [(0, seq, 1, 9), (1, seq, 1, 9)]))
        operator.on_calls(calls("b", [(2, seq, 1, 9), (3, seq, 1, 9)]))
    events = []
    for second in (1, 6):
        for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
            events += operator.on_progress(progress(host, ranks, second * S, launched=500_001))
    assert [rounds.seq.tolist() for rounds in of(Rounds, events)] == [[500_000, 500_001]]
    assert operator.all_counts() == {}


def test_repeated_and_late_rows_are_counted_and_change_nothing() -> None:
    operator = two_hosts()
    batch = calls("a", [(0, 0, 1, 9), (1, 0, 1, 9), (1, 0, 2, 8)])
    operator.on_calls(batch)
    operator.on_calls(calls("b", [(2, 0, 1, 9), (3, 0, 1, 9)]))
    operator.on_progress(progress("a", (0, 1), 100, 0))
    operator.on_calls(batch)  # sent again after the round was closed
    assert operator.all_counts() == {"duplicate_rows": 1, "late_rows": 3}


def test_times_that_go_backwards_within_a_call_are_taken_for_unseen_and_counted() -> None:
    operator = CommunicatorOperator(announced(ranks=(0,), members=(0,)), lateness_ns=5 * S)
    operator.on_topology(announced(ranks=(0,), members=(0,)))
    operator.on_calls(calls("a", [(0, 0, 100, 50), (0, 1, 100, 150)]))
    (rounds,) = of(Rounds, operator.on_progress(progress("a", (0,), 200, 1)))
    assert rounds.end_ns.tolist() == [[0], [150]]
    assert operator.all_counts() == {"backward_times": 1}


def test_a_rank_that_is_twice_in_one_round_is_in_it_once() -> None:
    """What a host says next of that rank raised a `KeyError`."""
    operator = two_hosts()
    call = OpenCall(seq=4, op="all_reduce", count=1, dtype="int8", launch_ns=5)
    for time_ns, calls_of_it in ((1, (call, call)), (2, (call,)), (3, ())):
        operator.on_progress(progress("a", (0,), time_ns, reached=(RankProgress(rank=0, open=calls_of_it),)))


def test_progress_that_goes_backwards_is_counted_and_promises_nothing() -> None:
    operator = two_hosts()
    operator.on_progress(progress("b", (2, 3), 9 * S))
    operator.on_progress(progress("a", (0, 1), 9 * S))
    assert operator.on_progress(progress("a", (0, 1), 3 * S)) == []
    assert operator.all_counts() == {"backward_progress": 1}


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (calls("a", [(7, 0, 1, 2)]), "ranks [7] are no members"),
        (calls("z", [(0, 0, 1, 2)]), "'z', which has not announced"),
        (calls("a", [(0, 0, 1, 2), (1, 1 << 40, 1, 2)]), "the sequence numbers 0 to 1099511627776"),
        (calls("a", [(0, 0, 1, 2)], op=[10], peer=[9], direction=[1]), "peers [9] are no members"),
    ],
)
def test_rows_that_cannot_be_true_are_refused_whole(batch: CallBatch, says: str) -> None:
    operator = two_hosts()
    with pytest.raises(InvalidEvent, match=says.replace("[", r"\[").replace("]", r"\]")):
        operator.on_calls(batch)
    assert operator.on_progress(progress("a", (0, 1), 100)) != []  # and the stream goes on


def test_two_hosts_cannot_claim_the_same_rank() -> None:
    with pytest.raises(InvalidEvent, match="rank 1 is announced by host 'b' and by host 'a'"):
        two_hosts().on_topology(announced("b", (1,)))


def test_a_host_that_claims_a_rank_of_another_one_has_claimed_none() -> None:
    operator = CommunicatorOperator(announced("a", (1,), members=(0, 1)), lateness_ns=5 * S)
    operator.on_topology(announced("a", (1,), members=(0, 1)))
    with pytest.raises(InvalidEvent, match="rank 1 is announced by host 'b' and by host 'a'"):
        operator.on_topology(announced("b", (0, 1), members=(0, 1)))
    assert not operator.is_complete
    operator.on_topology(announced("c", (0,), members=(0, 1)))
    assert operator.is_complete


def test_point_to_point_calls_are_paired_by_their_own_numbers() -> None:
    operator = CommunicatorOperator(announced(ranks=(0, 1), members=(0, 1)), lateness_ns=5 * S)
    operator.on_topology(announced(ranks=(0, 1), members=(0, 1)))
    rows = [(0, 0, 10, 30), (1, 0, 20, 30), (1, 0, 40, 60), (0, 0, 50, 60)]
    operator.on_calls(calls("a", rows, op=[10, 11, 10, 11], peer=[1, 0, 0, 1], direction=[1, 2, 1, 2]))
    (pairs,) = of(PairRounds, operator.on_progress(progress("a", (0, 1), 100)))
    assert (pairs.ranks.tolist(), pairs.arrival_ns.tolist()) == ([[0, 1], [1, 0]], [[10, 20], [40, 50]])
    assert not pairs.is_digest


def test_an_iteration_is_over_when_every_rank_has_reported_its_step() -> None:
    operator = two_hosts()
    for step, at in ((5, 1), (6, 3)):
        for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
            names = ("optimizer_step",) * 2
            times = (at * S + ranks[0], at * S + ranks[1])
            operator.on_markers(
                Markers(
                    **COMMON, host=host, communicator=WORLD, ranks=ranks, names=names, steps=(step,) * 2, times_ns=times
                )
            )
    first, second = of(IterationSample, operator.on_progress(progress("a", (0, 1), 4 * S)))
    assert (first.step, first.step_time_s) == (5, 0.0)
    assert (second.step, second.step_time_s) == (6, 2.0)


def test_a_stream_ends_when_all_its_hosts_have_closed() -> None:
    operator = two_hosts()
    operator.on_progress(progress("a", (0, 1), 5, closed=True))
    (mark,) = of(Watermark, operator.on_progress(progress("b", (2, 3), 5, closed=True)))
    assert mark.time_ns == CLOSED_NS
    assert operator.is_closed


@examples(6, deep=800)
@given(st.data())
def test_every_row_comes_out_exactly_once_in_any_order_of_arrival(data: st.DataObject) -> None:
    """Whatever the order and the cut_at of the batches: each (round, rank) is in exactly one closed round."""
    n_rounds = data.draw(st.integers(1, 8))
    rows = [(rank, seq, 10 * seq + rank, 10 * seq + 9) for seq in range(n_rounds) for rank in range(4)]
    order = data.draw(st.permutations(rows))
    operator = two_hosts()
    out: list[Rounds] = []
    while order:
        size = data.draw(st.integers(1, len(order)))
        part, order = order[:size], order[size:]
        for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
            mine = [row for row in part if row[0] in ranks]
            if mine:
                operator.on_calls(calls(host, mine))
            out += of(Rounds, operator.on_progress(progress(host, ranks, 0)))
    seqs = np.concatenate([rounds.seq for rounds in out])
    assert sorted(seqs.tolist()) == list(range(n_rounds))
    assert all((rounds.end_ns == 10 * rounds.seq[:, None] + 9).all() for rounds in out)
    assert operator.all_counts() == {}


def test_rounds_that_nobody_has_asked_for_yet_are_not_given_up_for_want_of_room() -> None:
    """Short calls without a pause: more of them come between two looks than may be open at once."""
    operator, n = two_hosts(), 40_000
    events: list[object] = []
    for first in (0, n, 2 * n):
        for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
            rows = [(rank, seq, seq, seq + 1) for rank in ranks for seq in range(first, first + n)]
            events += operator.on_calls(calls(host, rows))
            events += operator.on_promise(progress(host, ranks, first + n, launched=first + n - 1))
    assert not any(isinstance(event, Watermark) for event in events)
    events += operator.advance()
    assert isinstance(events[-1], Watermark)
    assert events[-1].time_ns == 3 * n
    seqs = [seq for event in events if isinstance(event, Rounds) for seq in event.seq.tolist()]
    assert seqs == list(range(3 * n))
    assert not operator.all_counts()
