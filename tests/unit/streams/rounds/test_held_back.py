"""What is held back lets a job's time go on when all of it would, and not before; nothing is lost of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.events import IterationSample, Watermark
from pacehound.settings import Settings
from streams.rounds.held_back import HeldBack
from streams.rounds.merge import CLOSED_NS
from streams.snapshots.schema import state_codec

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
    assert held.take([short, raised("a", 25)], no_rounds) == [short]
    assert held.take([long, raised("a", 26)], no_rounds) == [long, raised("a", 26)]


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
