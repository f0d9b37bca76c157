"""What is held back lets a job's time go on when all of it would, and not before; nothing is lost of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.codec import encode
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import IterationSample, OpenCall, PairProgress, Progress, RankProgress, Topology, Watermark
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.rounds.held_back import HeldBack
from streams.rounds.merge import CLOSED_NS
from streams.snapshots.schema import state_codec
from tests.fakes import hand_made_rounds
from tests.fakes.events import topology

TICK_NS = 10
COMMUNICATORS = ("a", "b", "c")
HOST = "host:j/h"

RAISES = st.lists(
    st.tuples(st.sampled_from((*COMMUNICATORS, HOST)), st.integers(0, 25), st.booleans()), min_size=1, max_size=60
)


def raised(stream: str, time_ns: int) -> Watermark:
    return Watermark(job="j", attempt=0, time_ns=time_ns, stream=stream)


def no_rounds(_: object) -> list[Any]:
    return []


@given(RAISES)
def test_time_goes_on_in_the_same_ticks_and_each_is_told_once(raises: list[tuple[str, int, bool]]) -> None:
    held = HeldBack(TICK_NS)
    held.expect(COMMUNICATORS)
    true, told = dict.fromkeys(COMMUNICATORS, -1), dict.fromkeys(COMMUNICATORS, -1)
    latest = 0
    for stream, by_ns, is_restored in raises:
        if is_restored:
            codec = state_codec(Settings())
            held = codec.decode(codec.encode(held))
        before = min(told[name] for name in COMMUNICATORS) // TICK_NS
        true[stream] = max(true.get(stream, 0), 0) + by_ns
        latest = max(latest, true[stream])
        heard = held.take([raised(stream, true[stream])], no_rounds)
        assert len({one.stream for one in heard}) == len(heard)
        told |= {one.stream: one.time_ns for one in heard}
        of_all = min(true[name] for name in COMMUNICATORS) // TICK_NS
        assert min(told[name] for name in COMMUNICATORS) // TICK_NS == of_all
        assert bool(heard) == (of_all > before)
        if heard:
            assert told == true


def sample(step_time_s: float) -> IterationSample:
    return IterationSample(
        job="j",
        attempt=0,
        time_ns=25,
        communicator="a",
        step=4,
        ranks=(0,),
        ends_ns=(25,),
        step_time_s=step_time_s,
        boundary="optimizer_step",
    )


def test_rounds_are_asked_for_when_watermarks_are_told_and_stand_before_them() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    rounds = sample(0.0)
    assert held.take([raised("a", 30)], lambda _: [rounds]) == []
    assert held.take([raised("b", 31)], lambda _: [rounds]) == [rounds, raised("a", 30), raised("b", 31)]


def test_the_end_of_a_long_iteration_is_told_at_once_with_all_that_is_held() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    assert held.take([raised("a", 21)], no_rounds) == []
    short, long = sample(4.9 * TICK_NS / 1e9), sample(5 * TICK_NS / 1e9)
    assert held.take([short, raised("a", 25)], no_rounds) == []
    assert held.take([long, raised("a", 26)], no_rounds) == [short, long, raised("a", 26)]


def block(communicator: str, *seqs: int, width: int = 2) -> Rounds:
    ranks = list(range(width))
    rounds = hand_made_rounds.rounds(communicator, ranks, [[(seq, seq + 1)] * width for seq in seqs])
    return replace(rounds, job="j", attempt=0, seq=np.array(seqs, np.int64))


def test_rounds_of_a_communicator_wait_for_its_time_and_are_one_block_then() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    said = [block("a", 0, 1), block("b", 7), block("a", 2)]
    for one in said:
        assert held.take([one, raised("a", 21)], no_rounds) == []
        codec = state_codec(Settings())
        held = codec.decode(codec.encode(held))
    told = held.take([block("a", 4, 5), raised("b", 20)], no_rounds)
    assert [(one.communicator, one.seq.tolist()) for one in told if isinstance(one, Rounds)] == [
        ("a", [0, 1, 2, 4, 5]),
        ("b", [7]),
    ]
    assert told[2:] == [raised("a", 21), raised("b", 20)]
    assert told[0].end_ns.tolist() == np.concatenate([b.end_ns for b in (said[0], said[2], block("a", 4, 5))]).tolist()


def test_a_communicator_is_announced_at_once_with_what_stands_before_it() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    assert held.take([sample(0.0)], no_rounds) == []
    told = held.take([topology(), raised("a", 5)], no_rounds)
    assert [type(one) for one in told] == [IterationSample, Topology]
    assert held.take([raised("b", 10)], no_rounds) == [raised("a", 5), raised("b", 10)]


def test_no_more_rounds_wait_than_are_said_at_once() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    wide = block("a", *range(100), width=100)
    assert held.take([wide], no_rounds) == []
    (told,) = held.take([replace(wide, seq=wide.seq + 100)], no_rounds)
    assert (len(told), held.take([raised("a", 3)], no_rounds)) == (200, [])


def test_promises_wait_by_what_they_take_of_a_message() -> None:
    """Those of a second of a large job are more than one message may be: what cannot be sent on is lost."""
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    call = OpenCall(seq=1_234_567, op="reduce_scatter", count=1 << 24, dtype="bfloat16", launch_ns=10**18)
    pair = PairProgress(peer=16_383, direction="send", last_launched=1_234_567, last_completed=1_234_566)
    ranks = tuple(
        RankProgress(rank=rank, last_launched=1_234_567, last_completed=1_234_566, open=(call,), pairs=(pair, pair))
        for rank in range(8)
    )
    said = Progress(job="j", attempt=0, time_ns=3, host="h", communicator="a", ranks=ranks)
    told = [held.take([said] * 18, no_rounds) for _ in range(1_000)]
    pieces = [Conclusions(job="j", attempt=0, said=tuple(piece)) for piece in told if piece]
    assert sum(len(piece.said) for piece in pieces) > 17_000
    assert 500 > len(pieces) > 100
    assert max(len(encode(piece)) for piece in pieces) < 2_000_000


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 25)), max_size=40))
def test_every_round_is_told_once_and_before_its_time(said: list[tuple[str, int, int]]) -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    next_seq, time_ns, told_until_ns = dict.fromkeys("ab", 0), dict.fromkeys("ab", 0), dict.fromkeys("ab", -1)
    told: dict[str, list[int]] = {"a": [], "b": []}
    for name, n_rounds, by_ns in [*said, ("a", 1, 100), ("b", 1, 100)]:
        seqs = range(next_seq[name], next_seq[name] + n_rounds)
        next_seq[name], time_ns[name] = seqs.stop, time_ns[name] + by_ns
        for one in held.take([block(name, *seqs), raised(name, time_ns[name])], no_rounds):
            if isinstance(one, Rounds):
                told[one.communicator] += one.seq.tolist()
            else:
                told_until_ns[one.stream] = one.time_ns
        for stream in "ab":
            if told_until_ns[stream] == time_ns[stream]:
                assert told[stream] == list(range(next_seq[stream])), "its time goes on behind its rounds"
    assert told == {stream: list(range(next_seq[stream])) for stream in "ab"}


def test_what_ends_is_told_at_once_and_no_longer_waited_for() -> None:
    held = HeldBack(TICK_NS)
    held.expect(COMMUNICATORS)
    assert held.take([raised("a", 35), raised(HOST, 31)], no_rounds) == []
    assert [one.stream for one in held.take([raised("b", CLOSED_NS)], no_rounds)] == ["a", HOST, "b"]
    held.forget(["b", "c"])
    assert [one.time_ns for one in held.take([raised("a", 41)], no_rounds)] == [41]


def test_rounds_of_a_stream_that_ends_are_asked_for_alone() -> None:
    asked: list[object] = []
    held = HeldBack(TICK_NS)
    held.expect(["a", "b"])
    held.take([raised("a", CLOSED_NS)], lambda streams: asked.append(streams) or [])
    held.take([raised("b", 20)], lambda streams: asked.append(streams) or [])
    assert asked == [["a"], None]


def test_nothing_is_told_before_a_new_communicator_has_come_to_it() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a"])
    assert len(held.take([raised("a", 20)], no_rounds)) == 1
    held.expect(["a", "b"])
    assert held.take([raised("a", 60)], no_rounds) == []
    assert len(held.take([raised("b", 20)], no_rounds)) == 2


@given(st.lists(st.tuples(st.sampled_from(["expect", "forget", "raise"]), st.sampled_from("abc"), st.integers(0, 40))))
def test_the_lowest_tick_is_that_of_the_streams_that_are_expected(said: list[tuple[str, str, int]]) -> None:
    held = HeldBack(tick_ns=10)
    ticks: dict[str, int] = {}
    for what, stream, time_ns in said:
        if what == "expect":
            held.expect([stream, stream])
            ticks.setdefault(stream, -1)
        elif what == "forget":
            held.forget([stream, stream])
            ticks.pop(stream, None)
        else:
            held.take([raised(stream, time_ns)], no_rounds)
            if stream in ticks:
                ticks[stream] = max(ticks[stream], time_ns // 10)
        if ticks:
            assert held.next_ns == (min(ticks.values()) + 1) * 10
